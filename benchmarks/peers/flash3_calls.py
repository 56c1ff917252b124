# SPDX-License-Identifier: MIT
"""FlashAttention-3 on PyTorch's tensors, (batch, row, head, head_dim), on the current stream: those that cuflash has."""
from dataclasses import replace

import torch

from peers.cuflash_calls import like
from peers.torch_calls import Contestant

KERNELS = {"fwd": "run_mha_fwd_", "bwd": "run_mha_bwd_"}


class Call:
    """One call, ready to be launched; holds all memory that it needs."""

    def __init__(self, flash3, case, **tensors):
        self.flash3, self.problem, self.tensors = flash3, flash3.problem(case), tensors
        size = flash3.workspace_size(self.problem)
        self.workspace = torch.empty(size, dtype=torch.uint8, device=tensors["q"].device)
        for name, tensor in {**tensors, "workspace": self.workspace}.items():
            setattr(self.problem, name, tensor.data_ptr())
        self.stream = torch.cuda.current_stream().cuda_stream

    def launch(self):
        self.flash3.run(self.problem, self.stream)


def forward(flash3, case, inputs):
    q, k, v, _ = inputs
    lse = torch.full((case.batch, case.heads, case.seqlen_q), float("nan"), device=q.device)
    return Call(flash3, case, q=q, k=k, v=v, o=like(q), lse=lse)


def backward(flash3, case, inputs):
    """With o and lse of its own forward kernel."""
    saved = forward(flash3, replace(case, op="fwd"), inputs)
    saved.launch()
    q, k, v, dout = inputs
    return Call(flash3, case, **saved.tensors, dout=dout, dq=like(q), dk=like(k), dv=like(v))


def contestant(flash3, case, inputs):
    if case.op == "fwd":
        call, names = forward(flash3, case, inputs), ("o",)
    else:
        call, names = backward(flash3, case, inputs), ("dq", "dk", "dv")
    outputs = {name: call.tensors[name] for name in names}

    def launch():
        call.launch()
        return outputs

    return Contestant("flash3", KERNELS[case.op], launch, {"layout": "bshd", "version": flash3.commit})
