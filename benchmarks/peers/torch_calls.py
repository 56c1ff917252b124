# SPDX-License-Identifier: MIT
"""The kernels that compete with cuflash: those behind PyTorch's scaled_dot_product_attention, and the unfused baseline.

The aten operators are called directly: the backward ones with what the forward ones saved, so that nothing but the
library's own kernels lies between the events.
"""
import functools
from dataclasses import dataclass
from typing import Callable

import torch

TORCH_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
LAYOUTS = ("bshd", "bhsd")
SHARE_OF_FREE_MEMORY = 0.8


@dataclass
class Contestant:
    library: str
    kernel: str
    launch: Callable  # returns the outputs as {name: tensor}
    more: dict  # further fields of the record
    view: Callable = lambda x: x  # from an output to (batch, row, head, head_dim)

    @property
    def name(self):
        return f"{self.library}/{self.kernel}"


def random_inputs(case, device="cuda"):
    """q, k, v, dout, standard normal, (batch, row, head, head_dim)."""
    generator = torch.Generator(device).manual_seed(1)
    shapes = ((case.seqlen_q, case.heads), (case.seqlen_k, case.heads_k), (case.seqlen_k, case.heads_k))
    return [
        torch.randn(case.batch, rows, heads, case.head_dim, generator=generator, device=device).to(
            TORCH_DTYPES[case.dtype]
        )
        for rows, heads in (*shapes, shapes[0])
    ]


def swap(x):
    """(batch, row, head, head_dim) as (batch, head, row, head_dim) and back: a view."""
    return x.transpose(1, 2)


def in_layout(x, layout):
    """As PyTorch wants it, (batch, head, row, head_dim), with that order in memory (bhsd) or ours (bshd)."""
    return swap(x) if layout == "bshd" else swap(x).contiguous()


def cudnn(q, k, v, causal):
    return torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False)


def cudnn_backward(q, k, v, dout, saved, causal):
    o, lse, cum_q, cum_k, max_q, max_k, seed, offset = saved[:8]
    return torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
        dout, q, k, v, o, lse, seed, offset, None, cum_q, cum_k, max_q, max_k, 0.0, causal
    )


def flash2(q, k, v, causal):
    return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False)


def flash2_backward(q, k, v, dout, saved, causal):
    o, lse, cum_q, cum_k, max_q, max_k, seed, offset = saved[:8]
    return torch.ops.aten._scaled_dot_product_flash_attention_backward(
        dout, q, k, v, o, lse, cum_q, cum_k, max_q, max_k, 0.0, causal, seed, offset
    )


def mem_efficient(q, k, v, causal):
    return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)


def mem_efficient_backward(q, k, v, dout, saved, causal):
    o, lse, seed, offset = saved
    return torch.ops.aten._scaled_dot_product_efficient_attention_backward(
        dout, q, k, v, None, o, lse, seed, offset, 0.0, [True, True, True, False], causal
    )


def flat(x):
    return x.reshape(-1, *x.shape[2:])


@functools.lru_cache(maxsize=1)
def hidden_keys(rows, keys, device):
    """The mask of a causal case, made once: it is no part of the work."""
    return torch.ones(rows, keys, dtype=torch.bool, device=device).triu(1)


def naive(q, k, v, causal):
    """As a framework without a fused kernel does it: every matrix is stored, in the dtype of the inputs."""
    scores = torch.empty(q.shape[0] * q.shape[1], q.shape[2], k.shape[2], dtype=q.dtype, device=q.device)
    torch.baddbmm(scores, flat(q), flat(k).mT, beta=0, alpha=q.shape[3] ** -0.5, out=scores)
    if causal:
        scores.masked_fill_(hidden_keys(q.shape[2], k.shape[2], q.device), float("-inf"))
    p = torch.softmax(scores, -1)
    return torch.bmm(p, flat(v)).view(q.shape), p


def naive_backward(q, k, v, dout, saved, causal):
    _, p = saved
    scale = q.shape[3] ** -0.5
    dv = torch.bmm(p.mT, flat(dout))
    dp = torch.bmm(flat(dout), flat(v).mT)
    ds = torch.ops.aten._softmax_backward_data(dp, p, -1, p.dtype)
    dq, dk = torch.empty_like(flat(q)), torch.empty_like(flat(k))
    torch.baddbmm(dq, ds, flat(k), beta=0, alpha=scale, out=dq)
    torch.baddbmm(dk, ds.mT, flat(q), beta=0, alpha=scale, out=dk)
    return dq.view(q.shape), dk.view(k.shape), dv.view(v.shape)


@dataclass(frozen=True)
class Peer:
    kernel: str
    forward: Callable
    backward: Callable
    layouts: tuple = LAYOUTS
    dtypes: tuple = ("fp16", "bf16")
    grouped_heads: bool = True


PEERS = {
    "cudnn": Peer("_scaled_dot_product_cudnn_attention", cudnn, cudnn_backward),
    "flash2": Peer("_scaled_dot_product_flash_attention", flash2, flash2_backward),
    "mem_efficient": Peer(
        "_scaled_dot_product_efficient_attention",
        mem_efficient,
        mem_efficient_backward,
        dtypes=tuple(TORCH_DTYPES),
        grouped_heads=False,
    ),
    "naive": Peer(
        "matmul, softmax, matmul",
        naive,
        naive_backward,
        layouts=("bhsd",),
        dtypes=tuple(TORCH_DTYPES),
        grouped_heads=False,
    ),
}


def naive_bytes(case):
    """Scores and probabilities; backward probabilities and two gradients of them."""
    return case.score_elements * (4 if case.dtype == "fp32" else 2) * (2 if case.op == "fwd" else 3)


def why_not(library, case, free_bytes):
    """Why a library does not take part; None if it does."""
    peer = PEERS[library]
    if case.dtype not in peer.dtypes:
        return f"does not serve {case.dtype}"
    if case.heads != case.heads_k and not peer.grouped_heads:
        return "does not serve grouped heads without copies of k and v"
    if library == "naive" and naive_bytes(case) > SHARE_OF_FREE_MEMORY * free_bytes:
        return f"needs {naive_bytes(case) / 2**30:.0f} GiB for its score matrices"
    return None


def contestant(library, case, inputs, layout):
    peer = PEERS[library]
    q, k, v, dout = (in_layout(x, layout) for x in inputs)
    if case.op == "fwd":

        def launch():
            return {"o": peer.forward(q, k, v, case.causal)[0]}

    else:
        saved = peer.forward(q, k, v, case.causal)

        def launch():
            gradients = peer.backward(q, k, v, dout, saved, case.causal)
            return dict(zip(("dq", "dk", "dv"), gradients))  # mem_efficient has a fourth, of a bias

    kernel = peer.kernel + ("_backward" if case.op == "bwd" and library != "naive" else "")
    return Contestant(library, kernel, launch, {"layout": layout}, swap)


def fastest_layout(library, case, inputs, timer):
    """The contestant in the layout that suits the library best, found by timing both."""
    candidates = [contestant(library, case, inputs, layout) for layout in PEERS[library].layouts]
    return min(candidates, key=lambda one: timer.warm_up(one.launch))
