# SPDX-License-Identifier: MIT
"""What is compared: the cases of each set, and their work."""
from dataclasses import asdict, dataclass

DTYPES = ("fp32", "fp16", "bf16")
OPERATIONS = ("fwd", "bwd")
GRID_TOKENS = 16384
GRID_HIDDEN = 2048
GRID_SEQLENS = (512, 1024, 2048, 4096, 8192, 16384)


@dataclass(frozen=True)
class Case:
    op: str
    dtype: str
    head_dim: int
    causal: bool
    batch: int
    heads: int
    heads_k: int
    seqlen_q: int
    seqlen_k: int

    def __post_init__(self):
        if self.causal and self.seqlen_q != self.seqlen_k:
            raise ValueError("the libraries differ in what causal means for unequal lengths: not comparable")

    def fields(self):
        return asdict(self)

    @property
    def pairs(self):
        """(row, key) pairs that the mask lets through in one head."""
        return self.seqlen_q * (self.seqlen_q + 1) // 2 if self.causal else self.seqlen_q * self.seqlen_k

    @property
    def flops(self):
        """As flops() of benchmarks/cases.h: two matrix products forward, five backward, over visible pairs."""
        products = 2 if self.op == "fwd" else 5
        return 2 * products * self.batch * self.heads * self.pairs * self.head_dim

    @property
    def score_elements(self):
        """Of the matrix that an unfused computation stores."""
        return self.batch * self.heads * self.seqlen_q * self.seqlen_k

    def name(self):
        heads = f"{self.heads}" if self.heads == self.heads_k else f"{self.heads}/{self.heads_k}"
        rows = f"{self.seqlen_q}" if self.seqlen_q == self.seqlen_k else f"{self.seqlen_q}/{self.seqlen_k}"
        mask = "causal" if self.causal else "full"
        return f"{self.op} {self.dtype} d{self.head_dim} {mask} {self.batch}x{heads}x{rows}"


def product(dtypes, shapes, operations=OPERATIONS):
    """Cases of all dtypes and shapes, full and causal; a shape is (batch, heads, heads_k, seqlen, head_dim)."""
    return [
        Case(op, dtype, head_dim, causal, batch, heads, heads_k, seqlen, seqlen)
        for dtype in dtypes
        for batch, heads, heads_k, seqlen, head_dim in shapes
        for causal in (False, True)
        for op in operations
    ]


def grid_shape(seqlen, head_dim):
    heads = GRID_HIDDEN // head_dim
    return (GRID_TOKENS // seqlen, heads, heads, seqlen, head_dim)


def fp32_cases():
    return product(["fp32"], [(4, 16, 16, 2048, head_dim) for head_dim in (64, 128, 256)])


def baseline_cases():
    return product(DTYPES, [(4, 16, 16, 2048, head_dim) for head_dim in (64, 128)])


def grid_cases():
    """Of FlashAttention's grid: bf16 at six lengths, fp16 at one, and grouped heads."""
    return (
        product(["bf16"], [grid_shape(seqlen, head_dim) for head_dim in (64, 128, 256) for seqlen in GRID_SEQLENS])
        + product(["fp16"], [grid_shape(8192, 128)])
        + product(["bf16"], [(2, 32, 8, 8192, 128)])
    )


def ladder_cases():
    """What every room can do in a bearable time, for the steps from one to the next."""
    return product(["bf16"], [(2, 16, 16, 4096, head_dim) for head_dim in (64, 128)]) + product(
        ["fp16"], [(2, 16, 16, 4096, 128)]
    )


SETS = {"fp32": fp32_cases, "baseline": baseline_cases, "ladder": ladder_cases, "grid": grid_cases}
# Libraries that a set compares with where --libraries does not say it, flash3 only with --flash3. flash2, flash3, cudnn:
# no fp32.
SET_LIBRARIES = {
    "fp32": ("cuflash", "mem_efficient", "naive"),
    "baseline": ("cuflash", "cudnn", "flash2", "flash3", "mem_efficient", "naive"),
    "ladder": ("cuflash", "flash2", "naive"),
    "grid": ("cuflash", "cudnn", "flash2", "flash3"),
}
# Kernels of cuflash that a set measures where --kernels does not say it; None: auto and all that accept.
SET_KERNELS = {"fp32": None, "baseline": None, "ladder": None, "grid": ("auto", "cp_async", "deterministic")}


@dataclass(frozen=True)
class Variant:
    """How cuflash is asked: for which kernel, and whether gradients have to repeat."""

    kernel: str
    chosen: bool = False  # by dispatch, to which it is left
    deterministic: bool = False

    def label(self):
        return f"{self.kernel}, deterministic" if self.deterministic else self.kernel


def select(cases, op=None, dtype=None, head_dim=None, mask=None):
    """Those of the cases that have one of the given values; None takes all."""
    return [
        case
        for case in cases
        if (op is None or case.op in op)
        and (dtype is None or case.dtype in dtype)
        and (head_dim is None or case.head_dim in head_dim)
        and (mask is None or ("causal" if case.causal else "full") in mask)
    ]
