# SPDX-License-Identifier: MIT
"""Attention and its gradients in fp64, of a few (batch, key head) pairs, and the error of results against them.

Tensors are (batch, row, head, head_dim) here.
"""
import torch

ROWS_AT_ONCE = 2048


def sampled_pairs(case):
    """The first and the last (batch, key head) pair."""
    return sorted({(0, 0), (case.batch - 1, case.heads_k - 1)})


def query_heads(case, head_k):
    group = case.heads // case.heads_k
    return range(head_k * group, (head_k + 1) * group)


def hide(scores, first_row):
    """-inf where a causal row does not see a key; lengths are equal."""
    rows = torch.arange(first_row, first_row + scores.shape[0], device=scores.device)
    keys = torch.arange(scores.shape[1], device=scores.device)
    scores.masked_fill_(keys[None, :] > rows[:, None], float("-inf"))


def attention(q, k, v, dout, causal):
    """o, dq, dk, dv of one head in the dtype of the inputs, all (rows, head_dim), without storing all scores."""
    scale = q.shape[1] ** -0.5
    o, dq, dk, dv = (torch.zeros_like(x) for x in (q, q, k, v))
    for begin in range(0, q.shape[0], ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        scores = scale * (q[rows] @ k.T)
        if causal:
            hide(scores, begin)
        p = torch.softmax(scores, -1)
        dp = dout[rows] @ v.T
        ds = p * (dp - (p * dp).sum(-1, keepdim=True))
        o[rows] = p @ v
        dq[rows] = scale * (ds @ k)
        dk += scale * (ds.T @ q[rows])
        dv += p.T @ dout[rows]
    return o, dq, dk, dv


def reference(case, q, k, v, dout):
    """{(name, batch, head): rows} of o, dq and, summed over the query heads that share it, dk and dv."""
    results = {}
    for batch, head_k in sampled_pairs(case):
        dk_sum = dv_sum = 0
        for head in query_heads(case, head_k):
            one = [x[batch, :, h].double() for x, h in ((q, head), (k, head_k), (v, head_k), (dout, head))]
            results["o", batch, head], results["dq", batch, head], dk, dv = attention(*one, case.causal)
            dk_sum, dv_sum = dk_sum + dk, dv_sum + dv
        results["dk", batch, head_k], results["dv", batch, head_k] = dk_sum, dv_sum
    return results


def relative_error(expected, outputs):
    """Largest |x - y| / |y|, L2 norms over the sampled heads, of the outputs {name: tensor}; nan if not finite."""
    worst = 0.0
    for name, tensor in outputs.items():
        squared_error = squared = 0.0
        for (of, batch, head), y in expected.items():
            if of == name:
                squared_error += (tensor[batch, :, head].double() - y).square().sum().item()
                squared += y.square().sum().item()
        error = (squared_error / squared) ** 0.5
        if not error < float("inf"):
            return float("nan")
        worst = max(worst, error)
    return worst
