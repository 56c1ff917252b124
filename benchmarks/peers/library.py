# SPDX-License-Identifier: MIT
"""libcuflash through its C ABI: the structs of include/cuflash/cuflash.h and the functions, by ctypes."""
import ctypes as c

STATUS_SUCCESS = 0
DTYPES = {"fp32": 0, "fp16": 2, "bf16": 14}  # cuflashDataType_t
DTYPE_BITS = {"fp32": 1, "fp16": 2, "bf16": 4}  # cuflashKernelInfo_t.dtypes
DEVICE_CUDA, DEVICE_HOST = 0, 1
MASK_NONE, MASK_CAUSAL = 0, 1
OPERATIONS = {"fwd": 0, "bwd": 1}  # cuflashOperation_t
WORKSPACE_ALIGNMENT = 256


class CuflashError(Exception):
    """A call of the library that did not succeed: its status and sentence."""


def fields(kind, names):
    return [(name, kind) for name in names.split()]


class Tensor(c.Structure):
    """cuflashTensor_t and cuflashConstTensor_t, which have one layout."""

    _fields_ = fields(c.c_void_p, "data") + fields(c.c_int64, "batch_stride row_stride head_stride")


PROBLEM = (
    fields(c.c_size_t, "struct_size")
    + fields(c.c_int32, "dtype device batch num_heads num_heads_k seqlen_q seqlen_k head_dim head_dim_v mask alignment")
    + fields(c.c_int32, "window_left window_right")
    + fields(c.c_float, "softmax_scale softcap")
)
LENGTHS = (
    fields(c.c_int64, "total_q total_k")
    + fields(c.c_void_p, "cu_seqlens_q cu_seqlens_k seqused_q seqused_k alibi_slopes")
    + fields(c.c_int64, "alibi_batch_stride")
)
RESERVED = (
    fields(c.c_void_p, "bias")
    + fields(c.c_int64, "bias_batch_stride bias_head_stride bias_row_stride")
    + fields(c.c_void_p, "sinks")
    + fields(c.c_uint64, "dropout_seed dropout_offset")
    + fields(c.c_float, "dropout_p")
    + fields(c.c_int32, "page_size")
    + fields(c.c_void_p, "page_table")
    + fields(c.c_int64, "page_table_batch_stride")
    + fields(c.c_void_p, "q_descale k_descale v_descale")
)


class ForwardParams(c.Structure):
    _fields_ = (
        PROBLEM
        + fields(c.c_int32, "reserved0")
        + LENGTHS
        + fields(Tensor, "q k v o")
        + fields(c.c_void_p, "softmax_lse")
        + fields(c.c_char_p, "kernel")
        + RESERVED
    )


class BackwardParams(c.Structure):
    _fields_ = (
        PROBLEM
        + fields(c.c_int32, "deterministic")
        + LENGTHS
        + fields(Tensor, "q k v o dout")
        + fields(c.c_void_p, "softmax_lse dlse")
        + fields(Tensor, "dq dk dv")
        + fields(c.c_char_p, "kernel")
        + RESERVED
        + fields(c.c_void_p, "dbias dsinks")
    )


class KernelInfo(c.Structure):
    _fields_ = (
        fields(c.c_size_t, "struct_size")
        + fields(c.c_char_p, "name architectures")
        + fields(c.c_int32, "operation device min_sm max_sm dtypes features max_head_dim reserved0")
    )


# Names of the C types, for the test that compares sizes and offsets with the header.
C_NAMES = {
    "cuflashTensor_t": Tensor,
    "cuflashConstTensor_t": Tensor,
    "cuflashForwardParams_t": ForwardParams,
    "cuflashBackwardParams_t": BackwardParams,
    "cuflashKernelInfo_t": KernelInfo,
}
PARAMS = {"fwd": ForwardParams, "bwd": BackwardParams}
PREFIX = {"fwd": "cuflashForward", "bwd": "cuflashBackward"}


def chosen_kernel(explanation):
    """The kernel that an explain text says would run: the line '  scalar           chosen: capacity ...'."""
    for line in explanation.splitlines():
        words = line.split(None, 2)
        if len(words) > 1 and words[1] == "chosen:":
            return words[0]
    raise CuflashError(f"no kernel is chosen:\n{explanation}")


class Library:
    def __init__(self, path):
        self.lib = c.CDLL(str(path))
        size = c.POINTER(c.c_size_t)
        for operation, params in PARAMS.items():
            pointer, prefix = c.POINTER(params), PREFIX[operation]
            self.declare(f"{prefix}ParamsInit", pointer, c.c_size_t)
            self.declare(f"{prefix}GetWorkspaceSize", pointer, size)
            self.declare(f"{prefix}Explain", pointer, c.c_char_p, c.c_size_t, size)
            self.declare(prefix, pointer, c.c_void_p, c.c_size_t, c.c_void_p)
        self.declare("cuflashGetKernelInfo", c.c_int32, c.POINTER(KernelInfo))
        for name in ("cuflashGetBuildInfo", "cuflashGetStatusString", "cuflashGetLastErrorMessage"):
            getattr(self.lib, name).restype = c.c_char_p

    def declare(self, name, *arguments):
        function = getattr(self.lib, name)
        function.argtypes = arguments
        function.restype = c.c_int32

    def check(self, status):
        if status != STATUS_SUCCESS:
            name = self.lib.cuflashGetStatusString(status).decode()
            raise CuflashError(f"{name}: {self.lib.cuflashGetLastErrorMessage().decode()}")

    def build_info(self):
        return self.lib.cuflashGetBuildInfo().decode()

    def kernels(self, operation, device=DEVICE_CUDA):
        """KernelInfo of all kernels of an operation, in order of preference."""
        found = []
        for index in range(self.lib.cuflashGetKernelCount()):
            info = KernelInfo(struct_size=c.sizeof(KernelInfo))
            self.check(self.lib.cuflashGetKernelInfo(index, info))
            if (info.operation, info.device) == (OPERATIONS[operation], device):
                found.append(info)
        return found

    def init(self, operation, struct_size=None):
        params = PARAMS[operation]()
        function = getattr(self.lib, f"{PREFIX[operation]}ParamsInit")
        self.check(function(params, c.sizeof(params) if struct_size is None else struct_size))
        return params

    def problem(self, case, kernel=None, device=DEVICE_CUDA, deterministic=False):
        """Params of a case, (batch, row, head, head_dim) in memory, without addresses; for size queries and explain."""
        params = self.init(case.op)
        params.dtype = DTYPES[case.dtype]
        params.device = device
        params.mask = MASK_CAUSAL if case.causal else MASK_NONE
        params.batch, params.num_heads, params.num_heads_k = case.batch, case.heads, case.heads_k
        params.seqlen_q, params.seqlen_k, params.head_dim = case.seqlen_q, case.seqlen_k, case.head_dim
        params.kernel = kernel.encode() if kernel else None
        if deterministic:  # a field of the backward pass alone
            params.deterministic = 1
        for name in ("q", "o", "dout", "dq"):
            self.set_strides(params, name, case.seqlen_q, case.heads, case.head_dim)
        for name in ("k", "v", "dk", "dv"):
            self.set_strides(params, name, case.seqlen_k, case.heads_k, case.head_dim)
        return params

    @staticmethod
    def set_strides(params, name, rows, heads, head_dim):
        if hasattr(params, name):
            setattr(params, name, Tensor(None, rows * heads * head_dim, heads * head_dim, head_dim))

    def workspace_size(self, operation, params):
        size = c.c_size_t()
        self.check(getattr(self.lib, f"{PREFIX[operation]}GetWorkspaceSize")(params, size))
        return size.value

    def explain(self, operation, params):
        text = c.create_string_buffer(8192)
        self.check(getattr(self.lib, f"{PREFIX[operation]}Explain")(params, text, len(text), None))
        return text.value.decode()

    def run(self, operation, params, workspace, workspace_size, stream):
        self.check(getattr(self.lib, PREFIX[operation])(params, workspace, workspace_size, stream))

    def deterministic_room(self, case):
        """The kernel that dispatch chooses for a backward pass whose gradients have to repeat."""
        return chosen_kernel(self.explain(case.op, self.problem(case, deterministic=True)))

    def rooms(self, case):
        """(name of the kernel that dispatch chooses, names of all others that accept the case when forced)."""
        chosen = chosen_kernel(self.explain(case.op, self.problem(case)))
        others = []
        for info in self.kernels(case.op):
            name = info.name.decode()
            if name != chosen and self.accepts(case, name):
                others.append(name)
        return chosen, others

    def accepts(self, case, kernel):
        try:
            self.workspace_size(case.op, self.problem(case, kernel))
            return True
        except CuflashError:
            return False
