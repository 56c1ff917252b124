#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Golden vectors for attention: an implementation of the definition in include/cuflash/cuflash.h that shares nothing
with the library, not even an idea. Scores are materialised in float64, masks are tables of booleans filled key by key
from the definition, gradients are the textbook formulas. The host kernel is tested against the file that this script
writes, and all other kernels against the host kernel.

    generate_golden.py            writes attention.bin beside this script
    generate_golden.py --check    computes everything again and compares it with attention.bin

Before a case is written, its gradients are checked against differences of the loss, with nothing rounded.

FILE FORMAT, little-endian
    file    16 bytes "cuflash golden 1", uint32 number of cases, the cases
    case    string name, uint32 number of arrays, the arrays
    array   string name, 2 characters type (i4 f4 u2 f8), uint32 number of elements, the elements
    string  uint32 number of bytes, the bytes

ARRAYS OF A CASE
    the parameters of cuflashForwardParams, by name, of one element each; i4, but softmax_scale and softcap are f4
    cu_seqlens_q cu_seqlens_k seqused_q seqused_k (i4), alibi_slopes dlse (f4): there if the case has them
    q k v dout     inputs in the case's dtype: f4, or u2 with the bits of fp16 or bf16
    o lse          forward results (f8); NaN marks what must not be written
    o_in lse_in    o and lse rounded to the case's dtype and to f4: inputs of backward; 0 where o and lse have NaN
    dq dk dv       gradients (f8) that follow from o_in and lse_in; NaN as above
Tensors are contiguous in the shapes of the header: (batch, seqlen, heads, dim), packed (total, heads, dim).
"""

import argparse
import math
import struct
import sys
from pathlib import Path

import numpy as np

FILE = Path(__file__).resolve().parent / "attention.bin"
MAGIC = b"cuflash golden 1"

FP32, FP16, BF16 = 0, 2, 14
MANTISSA_BITS = {FP32: 23, FP16: 10, BF16: 7}
MIN_EXPONENT = {FP32: -126, FP16: -14, BF16: -126}
NONE, CAUSAL, WINDOW = 0, 1, 2
BOTTOM_RIGHT, TOP_LEFT = 0, 1

INT_PARAMETERS = (
    "dtype batch num_heads num_heads_k seqlen_q seqlen_k head_dim head_dim_v mask alignment window_left window_right "
    "total_q total_k alibi_batch_stride"
).split()
OPTIONAL_INPUTS = "cu_seqlens_q cu_seqlens_k seqused_q seqused_k alibi_slopes dlse".split()


# ---- The definition --------------------------------------------------------------------------------------------------


def sees(case, i, j, offset):
    """Whether query row i sees key row j."""
    if case["mask"] == CAUSAL:
        return j <= i + offset
    if case["mask"] == WINDOW:
        left, right = case["window_left"], case["window_right"]
        return (left < 0 or j >= i + offset - left) and (right < 0 or j <= i + offset + right)
    return True


def rows_of(case, side, entry):
    """The tensor rows of one entry, as index pairs for a (batch, rows, ...) view; batch is 1 if packed."""
    cu_seqlens, seqused = case.get("cu_seqlens_" + side), case.get("seqused_" + side)
    if cu_seqlens is None:
        rows = [(entry, row) for row in range(case["seqlen_" + side])]
    else:
        rows = [(0, row) for row in range(cu_seqlens[entry], cu_seqlens[entry + 1])][: case["seqlen_" + side]]
    return rows if seqused is None else rows[: seqused[entry]]


def slope_of(case, entry, head):
    slopes = case.get("alibi_slopes")
    return 0.0 if slopes is None else float(slopes[entry * case["alibi_batch_stride"] + head])


def scale_of(case):
    return float(np.float32(case["softmax_scale"] or 1.0 / math.sqrt(case["head_dim"])))


class Pair:
    """One query head of one entry: its rows, its matrices and its mask."""

    def __init__(self, case, tensors, entry, head):
        self.rows_q, self.rows_k = rows_of(case, "q", entry), rows_of(case, "k", entry)
        self.head, self.head_k = head, head // (case["num_heads"] // case["num_heads_k"])
        self.q = gather(tensors["q"], self.rows_q, self.head)
        self.k = gather(tensors["k"], self.rows_k, self.head_k)
        self.v = gather(tensors["v"], self.rows_k, self.head_k)
        length_q, length_k = len(self.rows_q), len(self.rows_k)
        offset = 0 if case["alignment"] == TOP_LEFT else length_k - length_q
        self.visible = np.zeros((length_q, length_k), dtype=bool)
        distance = np.zeros((length_q, length_k))
        for i in range(length_q):
            for j in range(length_k):
                self.visible[i, j] = sees(case, i, j, offset)
                distance[i, j] = abs(i + offset - j)
        self.scale = scale_of(case)
        self.scores = self.scale * self.q @ self.k.T
        self.slope_of_cap = np.ones_like(self.scores)
        cap = float(np.float32(case["softcap"]))
        if cap > 0:
            t = np.tanh(self.scores / cap)
            self.scores, self.slope_of_cap = cap * t, 1.0 - t**2
        self.scores = self.scores - slope_of(case, entry, head) * distance


def gather(tensor, rows, head):
    return np.array([tensor[b, r, head] for b, r in rows]).reshape(len(rows), tensor.shape[-1])


def pairs(case, tensors):
    for entry in range(case["batch"]):
        for head in range(case["num_heads"]):
            yield Pair(case, tensors, entry, head)


def forward(case, tensors):
    """o (batch, rows, heads, dim) and lse (batch, rows, heads); batch is 1 if packed."""
    o = np.full(tensors["dout"].shape, np.nan)
    lse = np.full(tensors["dout"].shape[:-1], np.nan)
    for pair in pairs(case, tensors):
        for i, (b, r) in enumerate(pair.rows_q):
            keys = np.flatnonzero(pair.visible[i])
            if keys.size == 0:
                o[b, r, pair.head], lse[b, r, pair.head] = 0.0, -np.inf
                continue
            s = pair.scores[i, keys]
            lse[b, r, pair.head] = s.max() + np.log(np.exp(s - s.max()).sum())
            o[b, r, pair.head] = np.exp(s - lse[b, r, pair.head]) @ pair.v[keys]
    return o, lse


def backward(case, tensors, o, lse):
    """dq, dk, dv of sum(o * dout) + sum(lse * dlse), from the given o and lse."""
    dq, dk, dv = (np.full(tensors[name].shape, np.nan) for name in "qkv")
    for entry in range(case["batch"]):
        for b, r in rows_of(case, "k", entry):
            dk[b, r], dv[b, r] = 0.0, 0.0
    for pair in pairs(case, tensors):
        dout, out = gather(tensors["dout"], pair.rows_q, pair.head), gather(o, pair.rows_q, pair.head)
        row_lse = gather(lse[..., None], pair.rows_q, pair.head)
        row_dlse = gather(tensors["dlse"][..., None], pair.rows_q, pair.head)
        p = np.zeros_like(pair.scores)
        for i, j in zip(*np.nonzero(pair.visible)):
            p[i, j] = np.minimum(1.0, np.exp(pair.scores[i, j] - row_lse[i, 0]))  # lse is rounded, perhaps downwards
        dp = dout @ pair.v.T
        delta = (dout * out).sum(axis=1, keepdims=True)
        ds = p * (dp - delta + row_dlse) * pair.slope_of_cap
        for i, (b, r) in enumerate(pair.rows_q):
            dq[b, r, pair.head] = pair.scale * ds[i] @ pair.k
        for j, (b, r) in enumerate(pair.rows_k):
            dk[b, r, pair.head_k] += pair.scale * ds[:, j] @ pair.q
            dv[b, r, pair.head_k] += p[:, j] @ dout
    return dq, dk, dv


# ---- Numbers ---------------------------------------------------------------------------------------------------------


def uniform(seed, stream, shape):
    """Multiples of 2^-22 in [-1, 1), by splitmix64: the same with every version of NumPy."""
    count = int(np.prod(shape))
    with np.errstate(over="ignore"):
        x = np.arange(1, count + 1, dtype=np.uint64) + np.uint64(seed << 40) + np.uint64(stream << 32)
        x *= np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return ((x >> np.uint64(41)).astype(np.float64) * 2.0**-22 - 1.0).reshape(shape)


def rounded(x, dtype):
    """To nearest even, in float64. Overflow does not happen here."""
    exponent = np.maximum(np.frexp(np.where(np.isfinite(x), x, 1.0))[1] - 1, MIN_EXPONENT[dtype])
    unit = np.exp2(exponent - MANTISSA_BITS[dtype])
    return np.where(np.isfinite(x), np.rint(x / unit) * unit, x)


def encoded(x, dtype):
    """Bits of values that the dtype holds exactly."""
    if dtype == FP16:
        return x.astype("<f2").view("<u2")
    bits = x.astype("<f4")
    return bits if dtype == FP32 else (bits.view("<u4") >> 16).astype("<u2")


# ---- Cases -----------------------------------------------------------------------------------------------------------


def define(name, **changes):
    """Options beyond the parameters: dlse and alibi ("head" or "batch"), and the largest |q|, |v|, |slope|."""
    case = dict.fromkeys(INT_PARAMETERS, 0)
    case.update(name=name, dtype=FP32, batch=2, num_heads=2, num_heads_k=2, seqlen_q=7, seqlen_k=9, head_dim=8)
    case.update(softmax_scale=0.0, softcap=0.0, dlse=False, alibi=None, q_max=2.0, v_max=1.0, slope_max=0.5)
    unknown = set(changes) - set(case) - set(OPTIONAL_INPUTS)
    if unknown:
        raise ValueError(f"{name}: {unknown}")
    case.update(changes)
    return case


def all_cases():
    names = {FP32: "fp32", FP16: "fp16", BF16: "bf16"}
    sides = {BOTTOM_RIGHT: "bottom_right", TOP_LEFT: "top_left"}

    for dtype, text in names.items():
        yield define(f"plain_{text}", dtype=dtype)
        yield define(f"causal_mha_{text}", dtype=dtype, mask=CAUSAL)
        yield define(f"causal_gqa_{text}", dtype=dtype, mask=CAUSAL, num_heads=4)
        yield define(f"causal_mqa_{text}", dtype=dtype, mask=CAUSAL, num_heads=3, num_heads_k=1)
        yield define(f"softcap_{text}", dtype=dtype, softcap=1.5, q_max=4.0)
        yield define(f"dlse_{text}", dtype=dtype, dlse=True)

    for alignment, side in sides.items():
        for length_q, length_k in ((2, 5), (5, 2), (1, 37), (37, 1), (33, 65)):
            shape = dict(batch=1, seqlen_q=length_q, seqlen_k=length_k, head_dim=4)
            yield define(f"causal_{length_q}x{length_k}_{side}", mask=CAUSAL, alignment=alignment, **shape)
        for left, right in ((0, 0), (3, 0), (0, 3), (2, 5), (-1, 4), (4, -1)):
            shape = dict(batch=1, seqlen_q=19, seqlen_k=23, head_dim=4, mask=WINDOW, alignment=alignment)
            text = f"{left}_{right}".replace("-1", "unlimited")
            yield define(f"window_{text}_{side}", window_left=left, window_right=right, **shape)
    yield define("window_covers_everything", mask=WINDOW, window_left=100, window_right=100)
    yield define("window_unlimited", mask=WINDOW, window_left=-1, window_right=-1)

    # Rows that see nothing: at the start, at the end, and whole blocks of them.
    shape = dict(batch=1, seqlen_q=70, seqlen_k=5, head_dim=4, mask=WINDOW, window_left=2, window_right=1, dlse=True)
    yield define("hidden_rows_bottom_right", **shape)
    yield define("hidden_rows_top_left", alignment=TOP_LEFT, **shape)
    yield define("hidden_keys", batch=1, seqlen_q=5, seqlen_k=70, head_dim=4, mask=CAUSAL, alignment=TOP_LEFT)
    yield define("no_keys", seqlen_k=0)
    yield define("no_queries", seqlen_q=0)

    for length in (31, 32, 33, 64, 65):
        yield define(f"length_{length}", dtype=FP16, batch=1, seqlen_q=length, seqlen_k=length, head_dim=3, mask=CAUSAL)

    for head_dim in (1, 3, 7, 17, 33, 100, 256):
        yield define(f"head_dim_{head_dim}", batch=1, seqlen_q=3, seqlen_k=4, head_dim=head_dim)
    for head_dim, head_dim_v in ((8, 3), (5, 16), (16, 1), (1, 256)):
        shape = dict(batch=1, seqlen_q=3, head_dim=head_dim, head_dim_v=head_dim_v)
        yield define(f"head_dim_{head_dim}_v_{head_dim_v}", **shape)

    yield define("softcap_causal_bf16", dtype=BF16, softcap=5.0, mask=CAUSAL, q_max=8.0)
    yield define("softcap_saturated", softcap=2.0, q_max=1000.0)
    yield define("alibi_per_head", alibi="head")
    yield define("alibi_per_batch", alibi="batch")
    yield define("alibi_top_left", alibi="head", alignment=TOP_LEFT)
    yield define("alibi_causal_gqa", alibi="batch", mask=CAUSAL, num_heads=4, dtype=FP16)
    yield define("alibi_softcap", alibi="head", softcap=1.0, alignment=TOP_LEFT)
    yield define("alibi_steep", alibi="head", slope_max=100.0, seqlen_k=40)
    yield define("dlse_gqa_hidden_rows", dlse=True, num_heads=4, mask=CAUSAL, seqlen_k=4)
    yield define("scale_negative", softmax_scale=-0.75)
    yield define("scale_negative_causal_fp16", softmax_scale=-0.75, mask=CAUSAL, dtype=FP16)
    yield define("scale_large", softmax_scale=3.0)
    yield define("scale_tiny", softmax_scale=1e-6)
    yield define("large_scores", q_max=3000.0)
    yield define("large_values", v_max=1000.0)

    packed_q, packed_k = [0, 5, 5, 12], [0, 3, 10, 10]
    varlen_q = dict(batch=3, seqlen_q=7, total_q=12, cu_seqlens_q=packed_q)
    varlen_k = dict(batch=3, seqlen_k=7, total_k=10, cu_seqlens_k=packed_k)
    varlen = varlen_q | varlen_k
    yield define("varlen", **varlen)
    yield define("varlen_causal_gqa_bf16", dtype=BF16, num_heads=4, mask=CAUSAL, **varlen)
    yield define("varlen_queries_only", mask=CAUSAL, **varlen_q)
    yield define("varlen_keys_only", mask=CAUSAL, **varlen_k)
    yield define("varlen_cut", mask=CAUSAL, **(varlen | dict(seqlen_q=4, seqlen_k=3)))
    yield define("varlen_seqused", mask=CAUSAL, seqused_q=[4, 0, 7], seqused_k=[3, 2, 0], **varlen)
    yield define("varlen_rows_after_the_last", **(varlen | dict(total_q=15, total_k=11)))
    yield define(
        "varlen_mostly_empty", batch=4, seqlen_q=1, total_q=1, cu_seqlens_q=[0, 0, 0, 0, 1],
        seqlen_k=5, total_k=8, cu_seqlens_k=[0, 3, 3, 8, 8],
    )
    yield define("varlen_alibi_dlse", alibi="batch", dlse=True, **varlen)
    yield define("seqused", mask=CAUSAL, seqused_q=[7, 3], seqused_k=[4, 9])
    yield define("seqused_keys_only", seqused_k=[0, 5], dlse=True)
    yield define("seqused_queries_only", seqused_q=[0, 5], mask=CAUSAL, alignment=TOP_LEFT)

    for dtype, text in names.items():
        yield define(
            f"everything_{text}", dtype=dtype, num_heads=6, num_heads_k=2, head_dim=5, head_dim_v=3, mask=WINDOW,
            window_left=3, window_right=1, softcap=2.0, softmax_scale=-0.6, alibi="batch", dlse=True,
            seqused_k=[3, 2, 0], **varlen,
        )


def tensor_shape(case, side, heads, dim):
    rows = (1, case["total_" + side]) if "cu_seqlens_" + side in case else (case["batch"], case["seqlen_" + side])
    return rows + (case[heads], dim)


def inputs_of(case, seed):
    """Tensors as float64, exactly representable in the case's dtype. Without dlse they hold one of zeros."""
    dim, dim_v = case["head_dim"], case["head_dim_v"] or case["head_dim"]
    tensors = {}
    for stream, (name, shape, largest) in enumerate((
        ("q", tensor_shape(case, "q", "num_heads", dim), case["q_max"]),
        ("k", tensor_shape(case, "k", "num_heads_k", dim), 1.0),
        ("v", tensor_shape(case, "k", "num_heads_k", dim_v), case["v_max"]),
        ("dout", tensor_shape(case, "q", "num_heads", dim_v), 1.0),
    )):
        tensors[name] = rounded(largest * uniform(seed, stream, shape), case["dtype"])
    dlse = rounded(uniform(seed, 4, tensors["q"].shape[:-1]), FP32)
    tensors["dlse"] = dlse if case["dlse"] else np.zeros_like(dlse)
    if case["alibi"]:
        entries = case["batch"] if case["alibi"] == "batch" else 1
        case["alibi_batch_stride"] = case["num_heads"] if case["alibi"] == "batch" else 0
        slopes = case["slope_max"] * (1.0 + uniform(seed, 5, entries * case["num_heads"])) / 2.0
        case["alibi_slopes"] = rounded(slopes, FP32)
    return tensors


def check_gradients(case, tensors, seed):
    """Differences of the loss along a random direction against the gradients; 6 digits, or the sums' own error."""

    def loss(moved):
        o, lse = forward(case, moved)
        finite_lse = np.where(np.isinf(lse), 0.0, lse)
        terms = np.concatenate([(o * moved["dout"]).ravel(), (finite_lse * moved["dlse"]).ravel()])
        return np.nansum(terms), np.nansum(np.abs(terms))

    gradients = dict(zip("qkv", backward(case, tensors, *forward(case, tensors))))
    for stream, (name, gradient) in enumerate(gradients.items()):
        direction = uniform(seed, 8 + stream, gradient.shape)
        step = 1e-5 / max(1.0, np.abs(tensors["q"]).max(initial=0.0) if name == "k" else 1.0)
        (above, size), (below, _) = (loss({**tensors, name: tensors[name] + s * direction}) for s in (step, -step))
        found, expected = (above - below) / (2 * step), np.nansum(gradient * direction)
        tolerance = 1e-6 * np.nansum(np.abs(gradient * direction)) + 1e-15 * size / step + 1e-9
        if abs(found - expected) > tolerance:
            raise ArithmeticError(f"{case['name']}: d{name} {expected} but differences give {found}")


def arrays_of(case, seed):
    """The arrays of the file format, in order."""
    dtype, tensors = case["dtype"], inputs_of(case, seed)
    check_gradients(case, tensors, seed)
    o, lse = forward(case, tensors)
    o_in, lse_in = rounded(o, dtype), rounded(lse, FP32)
    dq, dk, dv = backward(case, tensors, o_in, lse_in)
    o_in, lse_in = np.nan_to_num(o_in), np.where(np.isnan(lse_in), 0.0, lse_in)

    def by_head(rows):  # lse and dlse have the rows last: (batch, num_heads, seqlen_q), packed (num_heads, total_q)
        return rows.transpose(0, 2, 1)

    arrays = {name: np.array([case[name]], "<i4") for name in INT_PARAMETERS}
    arrays.update({name: np.array([case[name]], "<f4") for name in ("softmax_scale", "softcap")})
    for name in OPTIONAL_INPUTS:
        if case.get(name) is not None and name != "dlse":
            arrays[name] = np.array(case[name], "<f4" if name == "alibi_slopes" else "<i4")
    if case["dlse"]:
        arrays["dlse"] = by_head(tensors["dlse"]).astype("<f4")
    arrays.update({name: encoded(tensors[name], dtype) for name in ("q", "k", "v", "dout")})
    arrays.update(o=o, lse=by_head(lse))
    arrays.update(o_in=encoded(o_in, dtype), lse_in=by_head(lse_in).astype("<f4"))
    arrays.update(dq=dq, dk=dk, dv=dv)
    return {name: np.ascontiguousarray(array).ravel() for name, array in arrays.items()}


def generate():
    return {case["name"]: arrays_of(case, seed) for seed, case in enumerate(all_cases(), start=1)}


# ---- The file --------------------------------------------------------------------------------------------------------


def packed_string(text):
    return struct.pack("<I", len(text)) + text.encode()


def write(cases):
    with FILE.open("wb") as file:
        file.write(MAGIC + struct.pack("<I", len(cases)))
        for name, arrays in cases.items():
            file.write(packed_string(name) + struct.pack("<I", len(arrays)))
            for array_name, array in arrays.items():
                file.write(packed_string(array_name) + array.dtype.str[1:].encode() + struct.pack("<I", array.size))
                file.write(array.tobytes())


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self):
        return struct.unpack("<I", self.take(4))[0]

    def string(self):
        return self.take(self.number()).decode()

    def array(self):
        name, kind = self.string(), np.dtype("<" + self.take(2).decode())
        return name, np.frombuffer(self.take(self.number() * kind.itemsize), kind)


def read():
    reader = Reader(FILE.read_bytes())
    if reader.take(len(MAGIC)) != MAGIC:
        raise ValueError(f"{FILE} is not a golden file")
    return {reader.string(): dict(reader.array() for _ in range(reader.number())) for _ in range(reader.number())}


def same(committed, computed):
    """Results to 1e-12 of the array's largest value; everything else bit for bit."""
    if committed.dtype != computed.dtype or committed.size != computed.size:
        return False
    if computed.dtype != np.dtype("<f8"):
        return committed.tobytes() == computed.tobytes()
    largest = np.abs(computed[np.isfinite(computed)]).max(initial=0.0)
    return np.allclose(committed, computed, rtol=0.0, atol=1e-12 * largest, equal_nan=True)


def differences(committed, computed):
    for name in committed.keys() | computed.keys():
        if name not in committed or name not in computed:
            yield f"{name}: only in the {'file' if name in committed else 'script'}"
            continue
        if list(committed[name]) != list(computed[name]):
            yield f"{name}: has other arrays"
            continue
        yield from (f"{name}: {a} differs" for a in computed[name] if not same(committed[name][a], computed[name][a]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    if not parser.parse_args().check:
        cases = generate()
        write(cases)
        print(f"{FILE.name}: {len(cases)} cases, {FILE.stat().st_size} bytes")
        return 0
    committed = read()
    found = sorted(differences(committed, generate()))
    print("\n".join(found) if found else f"{FILE.name}: {len(committed)} cases are as computed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
