"""Names that other libraries have and lamina spells otherwise, each with lamina's spelling.

One table, from which error messages are made and a part of docs/coming-from.md is printed. A row
has names, with spaces between, and an expression that runs, or words with expressions in backticks.
In expressions x and y are tensors of one shape, v is a vector, n are integers, i are indices along
the first axis of x, of x's shape, and mask are bools of it. A row whose names lamina gets is to be
deleted: a test finds it.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType

Rows = Mapping[str, str]

TORCH_METHODS: Rows = {
    "view": "x.reshape(2, -1)",
    "view_as reshape_as": "x.reshape(y.shape)",
    "ravel": "x.flatten()",
    "dim ndimension": "x.ndim",
    "numel nelement": "x.size",
    "element_size itemsize": "x.dtype.itemsize",
    "get_device": "x.device",
    "cuda": 'x.to("cuda:0")',
    "cpu": 'x.to("cpu")',
    "is_cuda": 'x.device.startswith("cuda")',
    "float": "x.cast(lm.float32)",
    "double": "x.cast(lm.float64)",
    "half": "x.cast(lm.float16)",
    "bfloat16": 'x.cast("bfloat16")',
    "char": "x.cast(lm.int8)",
    "short": "x.cast(lm.int16)",
    "int": "x.cast(lm.int32)",
    "long": "x.cast(lm.int64)",
    "byte": "x.cast(lm.uint8)",
    "bool": "x.cast(lm.bool)",
    "cfloat": "x.cast(lm.complex64)",
    "cdouble": "x.cast(lm.complex128)",
    "type": 'x.cast("float64")',
    "type_as": "x.cast(y.dtype)",
    "is_floating_point": "x.dtype.is_float",
    "is_complex": "x.dtype.is_complex",
    "is_signed": 'lm.isdtype(x.dtype, ("signed integer", "real floating"))',
    "data": "x.detach()",
    "is_contiguous": "nothing, as no tensor has strides",
    "grad_fn is_leaf retain_grad register_hook": "lm.gradient(loss, [w])",
    "clamp": "x.clip(0, 1)",
    "clamp_min": "x.clip(0)",
    "clamp_max": "x.clip(max=1)",
    "sub": "x - y",
    "mul": "x * y",
    "div true_divide": "x / y",
    "neg": "-x",
    "eq": "x == y",
    "ne": "x != y",
    "lt": "x < y",
    "le": "x <= y",
    "gt": "x > y",
    "ge": "x >= y",
    "absolute": "x.abs()",
    "bitwise_not": "~n",
    "sgn": "x.sign()",
    "fix": "x.trunc()",
    "arccos": "x.acos()",
    "arccosh": "x.acosh()",
    "arcsin": "x.asin()",
    "arcsinh": "x.asinh()",
    "arctan": "x.atan()",
    "arctan2": "x.atan2(y)",
    "arctanh": "x.atanh()",
    "conj_physical": "x.conj()",
    "t": "x.T",
    "adjoint mH": "x.mT.conj()",
    "swapaxes swapdims": "x.transpose(0, 1)",
    "movedim": "x.moveaxis(0, 1)",
    "mm bmm": "x @ y.mT",
    "mv": "x @ v",
    "ger": "lm.outer(v, v)",
    "expand_as": "x.broadcast_to(y.shape)",
    "repeat_interleave": "x.repeat(2, axis=0)",
    "unbind": "x.unstack(axis=0)",
    "split_with_sizes": "x.split([1, 3])",
    "take_along_dim": "x.take_along_axis(i, axis=0)",
    "index_put": "x[n] = v",
    "amax": "x.max(axis=1)",
    "amin": "x.min(axis=1)",
    "msort": "x.sort(axis=0)",
    "new_tensor": "Tensor(data, x.dtype, x.device)",
    "new_zeros": "lm.zeros((2, 3), dtype=x.dtype, device=x.device)",
    "new_ones": "lm.ones((2, 3), dtype=x.dtype, device=x.device)",
    "new_empty": "lm.empty((2, 3), dtype=x.dtype, device=x.device)",
    "new_full": "lm.full((2, 3), 1.0, dtype=x.dtype, device=x.device)",
    "copy_ set_": "x.assign(y)",
    "fill_": "x.assign(2.0)",
    "zero_": "x.assign(0.0)",
    "normal_": "x.assign(lm.random.normal(x.shape))",
    "uniform_": "x.assign(lm.random.uniform(x.shape))",
    "bernoulli_": "x.assign(lm.random.bernoulli(x.shape))",
    "index_put_ index_copy_": "x[n] = v",
    "requires_grad_": "x.requires_grad = True",
    "detach_": "x = x.detach()",
    "squeeze_": "x = x.squeeze()",
    "unsqueeze_": "x = x.unsqueeze(0)",
    "transpose_ swapaxes_ swapdims_": "x = x.transpose(0, 1)",
    "t_": "x = x.T",
}

TORCH_FUNCTIONS: Rows = {
    "cat concatenate": "lm.concat([x, y])",
    "row_stack": "lm.concat([x, y], axis=0)",
    "tensor as_tensor from_numpy": "Tensor(array)",
    "scalar_tensor": "Tensor(1.0)",
    "is_tensor": "isinstance(x, Tensor)",
    "rand": "lm.random.uniform((2, 3))",
    "rand_like": "lm.random.uniform(x.shape)",
    "randn normal": "lm.random.normal((2, 3))",
    "randn_like": "lm.random.normal(x.shape)",
    "randint": "lm.random.randint((2, 3), 0, 9)",
    "randperm": "lm.random.permutation(9)",
    "bernoulli": "lm.random.bernoulli((2, 3), 0.5)",
    "multinomial": "lm.random.multinomial(v, 2)",
    "manual_seed seed": "lm.random.manual_seed(0)",
    "range": "lm.arange(0, 10)",
    "rsub": "y - x",
    "frobenius_norm": "lm.norm(x)",
    "promote_types": "lm.result_type(x, y)",
    "broadcast_tensors": "lm.broadcast_arrays(x, y)",
    "to_dlpack": "x.__dlpack__()",
    "save": "safetensors.save(path, state)",
    "load": "safetensors.load(path)",
    "compile": "lm.jit(f)",
    "autocast": "x.cast(lm.bfloat16) @ w.cast(lm.bfloat16).T",
    "no_grad enable_grad inference_mode set_grad_enabled": (
        "nothing, as derivatives are made when they are asked for"
    ),
    "vmap": "nothing, as functions broadcast over leading axes",
    "get_default_device": "lm.default_device()",
    "set_default_device": 'lm.set_options(device="cpu")',
    "set_num_threads": "lm.set_options(threads=2)",
    "optim": "nn.optim.SGD(nn.parameters(model), lr=0.1)",
    "lstm": "nn.LSTM(8, 4)",
    "gru": "nn.GRU(8, 4)",
}

TORCH_FUNCTIONAL: Rows = {
    "upsample upsample_nearest": "lm.interpolate(x.reshape(1, 4, 8), scale_factor=2)",
    "multi_head_attention_forward": "nn.MultiheadAttention(8, 2)",
}

TORCH_LAYERS: Rows = {
    "Module": "any class with `__call__`",
    "Parameter": "Tensor(data, requires_grad=True)",
    "Buffer": "Tensor(data)",
    "functional": "`lm.relu(x)`, as there is no second namespace",
    "init": "lm.random.kaiming_uniform((4, 8))",
    "utils": "`nn.optim.clip_grad_norm(nn.parameters(model), 1.0)`, and no other helpers",
    "ZeroPad1d ZeroPad2d ZeroPad3d ConstantPad1d ConstantPad2d ConstantPad3d": (
        "nn.Sequential(lambda x: x.pad((1, 1)))"
    ),
    "CosineSimilarity": "lm.cosine_similarity(x, y)",
}

TORCH_OPTIM: Rows = {
    "lr_scheduler": "nn.optim.SGD(nn.parameters(model), lr=nn.schedules.cosine(0.1, 1000))",
    "swa_utils": "nn.optim.AveragedModel(model)",
}

TORCH_SCHEDULES: Rows = {
    "StepLR": "nn.schedules.step(0.1, 30)",
    "MultiStepLR": "nn.schedules.multi_step(0.1, [30, 80])",
    "ExponentialLR": "nn.schedules.exponential(0.1, 0.9)",
    "PolynomialLR": "nn.schedules.polynomial(0.1, 1000)",
    "LinearLR": "nn.schedules.linear(0.1, 1000)",
    "ConstantLR": "nn.schedules.constant(0.1, 1000)",
    "CosineAnnealingLR": "nn.schedules.cosine(0.1, 1000)",
    "CosineAnnealingWarmRestarts": "nn.schedules.cosine_restarts(0.1, 1000)",
    "OneCycleLR": "nn.schedules.one_cycle(0.1, 1000)",
    "CyclicLR": "nn.schedules.cyclic(0.01, 0.1)",
    "SequentialLR": "nn.schedules.sequential([nn.schedules.linear(0.1, 10), f], [10])",
    "ChainedScheduler": "nn.schedules.chained(0.1, [nn.schedules.linear(0.1, 10), f])",
    "ReduceLROnPlateau": "nn.schedules.ReduceOnPlateau(optimizer)",
    "LambdaLR MultiplicativeLR": "any function of the step",
}

NUMPY_RANDOM: Rows = {
    "rand random": "lm.random.uniform((2, 3))",
    "randn standard_normal": "lm.random.normal((2, 3))",
    "seed": "lm.random.manual_seed(0)",
    "choice": "x[lm.random.randint((2,), 0, 4)]",
    "shuffle": "x[lm.random.permutation(4)]",
}

NUMPY: Rows = {
    "array asanyarray ascontiguousarray": "lm.asarray(data)",
    "ndarray": "Tensor",
    "copy": "x.clone()",
    "copyto": "x.assign(y)",
    "fill": "x.assign(2.0)",
    "append": "lm.concat([x, y])",
    "identity": "lm.eye(3)",
    "ndim": "x.ndim",
    "size": "x.size",
    "power": "x ** y",
    "mod": "x % y",
    "divmod": "x // y, x % y",
    "invert": "~n",
    "left_shift": "n << 1",
    "right_shift": "n >> 1",
    "fabs": "lm.abs(x)",
    "conjugate": "lm.conj(x)",
    "around rint": "lm.round(x)",
    "degrees": "x * (180 / lm.pi)",
    "radians": "x * (lm.pi / 180)",
    "ptp": "x.max() - x.min()",
    "average": "lm.sum(x * y) / lm.sum(y)",
    "flatnonzero": "x.flatten().nonzero()[0]",
    "extract compress": "x[mask]",
    "put_along_axis": "x.scatter(0, i, y)",
    "array_split": "x.chunk(2)",
    "rollaxis": "x.moveaxis(1, 0)",
    "issubdtype": 'lm.isdtype(x.dtype, "integral")',
    "tobytes": "x.numpy().tobytes()",
    "tofile": "x.numpy().tofile(path)",
    "savez": "safetensors.save(path, state)",
}

JAX: Rows = {
    "at": "x[0] = 1.0",
    "block_until_ready": "x.realize()",
    "device_put": 'x.to("cpu")',
    "device_get": "x.numpy()",
    "stop_gradient": "x.detach()",
    "pmap": "nothing, as functions broadcast over leading axes",
    "scan fori_loop while_loop": "a Python loop, which is unrolled",
    "swish": "lm.silu(x)",
    "soft_sign": "lm.softsign(x)",
    "log_sigmoid": "lm.logsigmoid(x)",
    "hard_sigmoid": "lm.hardsigmoid(x)",
    "hard_swish hard_silu": "lm.hardswish(x)",
    "hard_tanh": "x.clip(-1, 1)",
    "PRNGKey": "lm.random.key(0)",
}

# What each namespace of lamina is asked for; the first table that has a name answers.
TABLES: Mapping[str, tuple[Rows, ...]] = {
    "Tensor": (TORCH_METHODS, NUMPY, JAX, TORCH_FUNCTIONS, TORCH_FUNCTIONAL),
    "lamina": (TORCH_FUNCTIONS, TORCH_FUNCTIONAL, TORCH_METHODS, NUMPY, JAX, TORCH_LAYERS),
    "lamina.nn": (TORCH_LAYERS,),
    "lamina.nn.optim": (TORCH_OPTIM,),
    "lamina.nn.schedules": (TORCH_SCHEDULES,),
    "lamina.random": (NUMPY_RANDOM,),
}

# Keyword arguments of other libraries, and the names that lamina has for them.
KEYWORDS: Mapping[str, str] = {
    "dim": "axis",
    "dims": "axes",
    "keepdim": "keepdims",
    "ddof": "correction",
    "unbiased": "correction",
    "p": "ord",
    "input": "x",
    "size": "shape",
}


@cache
def _by_name(where: str) -> Mapping[str, str]:
    rows: dict[str, str] = {}
    for table in reversed(TABLES.get(where, ())):
        rows |= {name: spelling for names, spelling in table.items() for name in names.split()}
    return MappingProxyType(rows)


def spelling(where: str, name: str) -> str | None:
    """How lamina says what another library calls `name`; None where the table does not know it.

    where: "Tensor" for attributes of tensors, or a module; of some there is no table."""
    return _by_name(where).get(name)


def renamed(keywords: Iterable[str], parameters: Sequence[str]) -> list[str]:
    """For keywords of other libraries that a function of `parameters` lacks, such as ``dim``,
    lamina's: "dim is axis here"."""
    return [
        f"{keyword} is {KEYWORDS[keyword]} here"
        for keyword in keywords
        if keyword not in parameters and KEYWORDS.get(keyword) in parameters
    ]
