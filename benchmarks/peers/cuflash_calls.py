# SPDX-License-Identifier: MIT
"""cuflash on PyTorch's tensors, (batch, row, head, head_dim), on the current stream."""
import torch

from peers.library import Tensor
from peers.torch_calls import Contestant


def like(tensor):
    """Filled with NaN: what a kernel does not write shows in the check."""
    return torch.full_like(tensor, float("nan"))


class Call:
    """One call, ready to be launched; holds all memory that it needs."""

    def __init__(self, library, operation, params, **tensors):
        self.library, self.operation, self.params, self.tensors = library, operation, params, tensors
        for name, tensor in tensors.items():
            field = getattr(params, name)
            if isinstance(field, Tensor):
                field.data = tensor.data_ptr()
            else:
                setattr(params, name, tensor.data_ptr())
        self.workspace_size = library.workspace_size(operation, params)
        self.workspace = torch.empty(self.workspace_size, dtype=torch.uint8, device=tensors["q"].device)
        self.stream = torch.cuda.current_stream().cuda_stream

    def launch(self):
        address = self.workspace.data_ptr() if self.workspace_size else None
        self.library.run(self.operation, self.params, address, self.workspace_size, self.stream)


def forward(library, case, inputs, kernel):
    q, k, v, _ = inputs
    lse = torch.full((case.batch, case.heads, case.seqlen_q), float("nan"), device=q.device)
    return Call(library, "fwd", library.problem(case, kernel), q=q, k=k, v=v, o=like(q), softmax_lse=lse)


def backward(library, case, inputs, kernel, forward_case, deterministic):
    """With o and lse of the forward kernel that dispatch chooses."""
    saved = forward(library, forward_case, inputs, None)
    saved.launch()
    q, k, v, dout = inputs
    params = library.problem(case, kernel, deterministic=deterministic)
    outputs = {"dq": like(q), "dk": like(k), "dv": like(v)}
    inputs = {"q": q, "k": k, "v": v, "dout": dout}
    given = {name: saved.tensors[name] for name in ("o", "softmax_lse")}
    return Call(library, "bwd", params, **inputs, **given, **outputs)


def contestant(library, case, inputs, variant, forward_case):
    forced = None if variant.chosen or variant.deterministic else variant.kernel
    if case.op == "fwd":
        call, names = forward(library, case, inputs, forced), ("o",)
    else:
        call = backward(library, case, inputs, forced, forward_case, variant.deterministic)
        names = ("dq", "dk", "dv")
    outputs = {name: call.tensors[name] for name in names}

    def launch():
        call.launch()
        return outputs

    more = {"layout": "bshd", "chosen": variant.chosen, "workspace_bytes": call.workspace_size}
    return Contestant("cuflash", variant.label(), launch, more)
