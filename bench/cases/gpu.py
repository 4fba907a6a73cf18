"""What is measured on a GPU: memory, products, attention, convolutions. Floats are of the dtype
`kind`; ways to run PyTorch are its compiler, its two fused attentions, and channels last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.cases import ANY, Array, Case, Group, attention
from bench.report import BEST, SHARE, Target

ROWS, WIDTH = 16384, 8192
TOKENS, VOCABULARY, EMBEDDING = 65536, 50257, 768
SHORT = {"float32": "f32", "bfloat16": "bf16"}
BOTH = ("torch", "torch.compile")
CHANNELS_SECOND, PRODUCT = "lamina.channels_second", "lamina.product_alone"


@dataclass(frozen=True)
class GpuCase(Case):
    """A case whose floats are of the dtype `kind`. channels_last: lamina's own arrays have the
    second axis of PyTorch's as their last one, so has its result. tf32: products of float32 may
    round their factors to 11 bits, everybody's. equal_clocks: a column of lamina's own, to which
    it is compared once more with the GPU's clock the same for both."""

    kind: str = "float32"
    channels_last: bool = False
    tf32: bool = False
    equal_clocks: str = ""


def _memory(kind: str) -> list[GpuCase]:
    """What is held to the speed of a copy. Inputs are much larger than the cache."""
    nbytes = ROWS * WIDTH * {"float32": 4.0, "bfloat16": 2.0}[kind]
    targets = (Target(0.92, SHARE), Target(1.0, "torch.compile"))

    def case(
        name: str, lamina: Any, torch: Any, moved: float = 2 * nbytes, inputs: Any = None
    ) -> GpuCase:
        functions = {"lamina": lamina, "torch": torch}
        shapes = inputs or ((ROWS, WIDTH), (WIDTH,), (WIDTH,))
        return GpuCase(f"{name}, {SHORT[kind]}", shapes, functions, BOTH, ("copy", moved), targets,
                       tolerance=1e-5 if kind == "float32" else 1e-2, kind=kind)  # fmt: skip

    def looked_up(random: np.random.Generator) -> list[Array]:
        table = random.standard_normal((VOCABULARY, EMBEDDING), dtype=np.float32)
        return [random.integers(0, VOCABULARY, TOKENS), table]

    return [
        case("softmax", lambda lm, x, *_: lm.softmax(x, axis=-1),
             lambda torch, x, *_: torch.softmax(x, -1)),
        case("layer_norm", lambda lm, x, *affine: lm.layer_norm(x, (WIDTH,), *affine),
             lambda torch, x, *affine: torch.nn.functional.layer_norm(x, (WIDTH,), *affine)),
        case("rms_norm", lambda lm, x, gain, _: lm.rms_norm(x, (WIDTH,), gain, 1e-5),
             lambda torch, x, gain, _: torch.nn.functional.rms_norm(x, (WIDTH,), gain, 1e-5)),
        case("gelu(x * a + b)", lambda lm, x, *_: lm.gelu(x * 1.25 + 0.125),
             lambda torch, x, *_: torch.nn.functional.gelu(x * 1.25 + 0.125)),
        case("sum", lambda lm, x, *_: lm.sum(x), lambda torch, x, *_: x.sum(), nbytes),
        case("sum of rows", lambda lm, x, *_: lm.sum(x, axis=1), lambda torch, x, *_: x.sum(1),
             nbytes),
        case("sum of columns", lambda lm, x, *_: lm.sum(x, axis=0), lambda torch, x, *_: x.sum(0),
             nbytes),
        case("transpose", lambda lm, x, *_: lm.permute_dims(x, (1, 0)).contiguous(),
             lambda torch, x, *_: x.t().contiguous()),
        case("embedding", lambda lm, ids, table: lm.embedding(ids, table),
             lambda torch, ids, table: torch.nn.functional.embedding(ids, table),
             2 * nbytes / ROWS / WIDTH * TOKENS * EMBEDDING, looked_up),
    ]  # fmt: skip


def _product(name: str, m: int, k: int, n: int, goal: float, kind: str = "bfloat16",
             turned: str = "") -> GpuCase:  # fmt: skip
    """An (m, k) by (k, n) product; `turned` names operands that lie transposed, of "a" and "b".
    The kind "tf32" is float32 with rounded factors."""
    shapes = (k, m) if "a" in turned else (m, k), (n, k) if "b" in turned else (k, n)

    def multiply(_: Any, a: Any, b: Any) -> Any:
        return (a.T if "a" in turned else a) @ (b.T if "b" in turned else b)

    tf32, tolerance = kind == "tf32", {"float32": 1e-5, "tf32": 2e-3}.get(kind, 1e-2)
    return GpuCase(f"{name} {SHORT.get(kind, kind)}", shapes, {ANY: multiply}, ("torch",),
                   ("fma", 2.0 * m * k * n), (Target(goal, "torch"),), tolerance=tolerance,
                   kind="float32" if tf32 else kind, tf32=tf32)  # fmt: skip


def _epilogue(size: int) -> GpuCase:
    def lamina(lm: Any, a: Any, b: Any, bias: Any) -> Any:
        return lm.gelu(a @ b + bias)

    def torch(torch: Any, a: Any, b: Any, bias: Any) -> Any:
        return torch.nn.functional.gelu(a @ b + bias)

    functions = {"lamina": lamina, "torch": torch, PRODUCT: lambda lm, a, b, bias: a @ b}
    return GpuCase(f"{size} bf16, bias and gelu", ((size, size), (size, size), (size,)), functions,
                   (*BOTH, PRODUCT), ("fma", 2.0 * size**3), (Target(1 / 1.03, PRODUCT),),
                   tolerance=1e-2, kind="bfloat16", equal_clocks=PRODUCT)  # fmt: skip


def _gpt2(tokens: int = 16384) -> list[GpuCase]:
    """A batch of 16 with 1,024 tokens each: the products of one block, and their derivatives."""
    layers = {"qkv": (768, 2304), "out": (768, 768), "up": (768, 3072), "down": (3072, 768)}
    return [
        case
        for name, (k, n) in layers.items()
        for case in (
            _product(f"GPT-2 {name}", tokens, k, n, 0.95),
            _product(f"GPT-2 {name}, of the input", tokens, n, k, 0.95, turned="b"),
            _product(f"GPT-2 {name}, of the weight", k, tokens, n, 0.95, turned="a"),
        )
    ]


def _attention(
    name: str, shape: tuple[int, ...], causal: bool, forward: float, backward: float
) -> list[GpuCase]:
    batch, heads, length, width = shape
    flops = 4.0 * batch * heads * length * length * width / (2 if causal else 1)
    peers, (alone, both) = ("torch.cudnn", "torch.flash"), attention.functions(causal)

    def case(what: str, functions: Any, count: int, work: float, goal: float) -> GpuCase:
        return GpuCase(f"{name}, {what}", (shape,) * count, functions, peers, ("fma", work),
                       (Target(goal, BEST),), tolerance=1e-2, kind="bfloat16")  # fmt: skip

    return [
        case("forward", alone, 3, flops, forward),
        case("forward and backward", both, 4, 3.5 * flops, backward),
    ]  # fmt: skip


def _convolution(
    channels: int, filters: int, side: int, window: int, kind: str = "bfloat16"
) -> GpuCase:
    """Of 64 images, with zeros around them; those in float32 are reported without a target."""
    padding, tolerance = window // 2, {"float32": 1e-5}.get(kind, 1e-2)
    goals = () if kind == "float32" else (Target(0.8, BEST),)

    def turned(lm: Any, x: Any, w: Any) -> Any:
        x, w = (lm.permute_dims(one, (0, 3, 1, 2)) for one in (x, w))
        return lm.permute_dims(lm.conv2d(x, w, padding=padding), (0, 2, 3, 1))

    functions = {
        "lamina": turned,
        CHANNELS_SECOND: lambda lm, x, w: lm.conv2d(x, w, padding=padding),
        "torch": lambda torch, x, w: torch.nn.functional.conv2d(x, w, padding=padding),
    }
    name = f"{window}x{window}, {channels} to {filters} channels, {side} x {side}, {SHORT[kind]}"
    shapes = (64, channels, side, side), (filters, channels, window, window)
    flops = 2.0 * 64 * side * side * filters * channels * window * window
    columns = ("torch", "torch.channels_last", CHANNELS_SECOND)
    return GpuCase(name, shapes, functions, columns, ("fma", flops), goals, tolerance=tolerance,
                   kind=kind, channels_last=True)  # fmt: skip


def _order(name: str, shape: tuple[int, ...], lamina: Any, torch: Any) -> GpuCase:
    """What needs several passes over memory; the share is of one. Reported without a target."""
    what = f"{name} of {' x '.join(map(str, shape))}, f32"
    return GpuCase(what, (shape,), {"lamina": lamina, "torch": torch}, ("torch",),
                   ("copy", 8.0 * np.prod(shape)), (), tolerance=1e-5)  # fmt: skip


def _sort(*shape: int) -> GpuCase:
    return _order("sort", shape, lambda lm, x: lm.sort(x, axis=-1),
                  lambda torch, x: torch.sort(x, stable=True).values)  # fmt: skip


def _running_sum(*shape: int) -> GpuCase:
    return _order("running sum", shape, lambda lm, x: lm.cumulative_sum(x, axis=x.ndim - 1),
                  lambda torch, x: torch.cumsum(x, -1))  # fmt: skip


GROUPS = {
    "memory": Group(
        f"Bound by memory ({ROWS} x {WIDTH}, embeddings of {TOKENS} tokens)",
        (*_memory("float32"), *_memory("bfloat16")),
        ("The share is of the time in which a copy moves as many bytes.",
         "Calls read two sets of arrays in turn, each far larger than the cache."),
    ),
    "order": Group(
        "Sorts and running sums",
        (_sort(1 << 24), _sort(16384, 1024), _sort(64, 50257), _running_sum(1 << 24),
         _running_sum(16384, 8192), _running_sum(64, 50257)),
        ("The share is of the time in which a copy reads and writes the array once.",),
    ),
    "products": Group(
        "Products of matrices",
        (
            *(_product(f"{size}", size, size, size, 0.95 if size < 4096 else 0.97)
              for size in (1024, 2048, 4096, 8192)),
            *(_product(f"{few} x 4096 x 4096", few, 4096, 4096, 0.95) for few in (1, 8, 16)),
            *_gpt2(),
            _epilogue(4096),
            *(_product(f"{size}", size, size, size, goal, kind)
              for kind, goal in (("float32", 0.9), ("tf32", 0.95)) for size in (1024, 4096)),
        ),
    ),
    "attention": Group(
        "Attention (bf16)",
        (
            *_attention("B4 H16 S4096 D128", (4, 16, 4096, 128), False, 0.95, 0.7),
            *_attention("B4 H16 S4096 D128, causal", (4, 16, 4096, 128), True, 0.95, 0.7),
            *_attention("B16 H12 S1024 D64, causal", (16, 12, 1024, 64), True, 0.85, 0.7),
        ),
    ),
    "conv": Group(
        "Convolutions of ResNet-50 (batch 64)",
        tuple(_convolution(*one) for one in (
            (64, 64, 56, 3), (128, 128, 28, 3), (256, 256, 14, 3), (512, 512, 7, 3),
            (64, 256, 56, 1), (512, 128, 28, 1), (256, 1024, 14, 1), (2048, 512, 7, 1),
            (64, 64, 56, 3, "float32"), (256, 256, 14, 3, "float32"), (512, 128, 28, 1, "float32"),
        )),
        ("Channels are the last axis in lamina's images, filters and results, as in memory they "
         "are for torch.channels_last; they are the second one for lamina.channels_second.",),
    ),
}  # fmt: skip
