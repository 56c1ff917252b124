# SPDX-License-Identifier: MIT
"""FlashAttention-3 through the C interface of flash3/flash3.h, by ctypes."""
import ctypes as c

SUCCESS = 0
DTYPES = {"fp16": 0, "bf16": 1}  # Flash3Problem.bf16
ADDRESSES = "q k v o lse dout dq dk dv workspace"
NUMBERS = "backward bf16 causal batch heads heads_k seqlen_q seqlen_k head_dim"


class Flash3Error(RuntimeError):
    """A library that is not one of flash3.h, or a call of it that did not succeed."""


class Problem(c.Structure):
    """Flash3Problem."""

    _fields_ = [(name, c.c_void_p) for name in ADDRESSES.split()] + [(name, c.c_int32) for name in NUMBERS.split()]


class Flash3:
    def __init__(self, path):
        self.lib = c.CDLL(str(path))
        pointer = c.POINTER(Problem)
        try:
            self.declare("flash3_commit", c.c_char_p)
            self.declare("flash3_why_not", c.c_char_p, pointer)
            self.declare("flash3_workspace_size", c.c_size_t, pointer)
            self.declare("flash3_run", c.c_int32, pointer, c.c_void_p)
        except AttributeError as error:
            raise Flash3Error(f"{path.name}: not a library of flash3.h: {error}") from error
        self.commit = self.lib.flash3_commit().decode()

    def declare(self, name, result, *arguments):
        function = getattr(self.lib, name)
        function.restype, function.argtypes = result, arguments

    @staticmethod
    def problem(case):
        """Of a case, without addresses."""
        numbers = {name: getattr(case, name) for name in NUMBERS.split() if hasattr(case, name)}
        return Problem(backward=case.op == "bwd", bf16=DTYPES[case.dtype], **numbers)

    def why_not(self, case):
        """Why it does not take part; None if it does."""
        if case.dtype not in DTYPES:
            return f"does not serve {case.dtype}"
        reason = self.lib.flash3_why_not(self.problem(case))
        return reason.decode() if reason is not None else None

    def workspace_size(self, problem):
        return self.lib.flash3_workspace_size(problem)

    def run(self, problem, stream):
        status = self.lib.flash3_run(problem, stream)
        if status != SUCCESS:
            raise Flash3Error(f"flash3_run: cudaError_t {status}")
