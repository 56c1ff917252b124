# SPDX-License-Identifier: MIT
"""Plots of TFLOP/s by sequence length, as SVG files that are the same for the same data. Needs matplotlib."""
from report_tables import ReportError, natural, unique


def draw(path, title, runs):
    """One plot per mask and head_dim; a run has kernel, mask, head_dim ("d64"), seqlen and rate."""
    try:
        import matplotlib
    except ImportError as error:
        raise ReportError("plots need matplotlib (pip install matplotlib); --no-plots leaves them alone") from error
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "cuflash"  # the same data gives the same file
    matplotlib.rcParams["svg.fonttype"] = "none"  # text as text
    from matplotlib import pyplot

    head_dims = sorted({run.head_dim for run in runs}, key=natural)
    masks = sorted({run.mask for run in runs}, key=lambda mask: (mask != "full", natural(mask)))
    kernels = unique(run.kernel for run in runs)
    figure, axes = pyplot.subplots(
        len(masks), len(head_dims), figsize=(4 * len(head_dims), 3 * len(masks)), sharey=True, squeeze=False
    )
    for row, mask in enumerate(masks):
        for column, head_dim in enumerate(head_dims):
            axis = axes[row][column]
            for kernel in kernels:
                points = sorted(
                    (run.seqlen, run.rate)
                    for run in runs
                    if (run.kernel, run.mask, run.head_dim) == (kernel, mask, head_dim)
                )
                axis.plot([x for x, _ in points], [y for _, y in points], marker="o", label=kernel)
            axis.set_title(f"head_dim {head_dim[1:]}, {mask}")
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_xlabel("sequence length")
            axis.set_ylabel("TFLOP/s")
            axis.grid(True, alpha=0.3)
    axes[0][0].legend()
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
