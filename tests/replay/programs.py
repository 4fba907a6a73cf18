"""The programs: random graphs, the benchmark's cases, drawn programs, and networks with their
derivatives."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import lamina as lm
from bench.cases import gpu, load
from bench.cliffs.draw import draw, limits_of
from bench.cliffs.program import Input, whole_function
from lamina import nn, pipeline
from lamina.core.options import current, using
from lamina.frontend.lowered import TensorSpec
from lamina.graph.split_complex import split_complex
from lamina.runtime.source import Source
from tests.programs import random_program

RANDOM_PROGRAMS = 160
DRAWN_PROGRAMS = 105  # five of each family
CPU_GROUPS = ("gemm", "rows", "stream", "conv", "attention")
DEVICES = ("cpu", "cuda:0")

Program = Callable[[], Source]


def programs() -> Iterator[tuple[str, Program]]:
    """Every program, by name."""
    yield from random_programs()
    yield from benchmark_cases()
    yield from gpu_cases()
    yield from drawn_programs()
    yield from networks()


def random_programs() -> Iterator[tuple[str, Program]]:
    for seed in range(RANDOM_PROGRAMS):
        for device in DEVICES:
            yield f"random {seed} on {device}", lambda seed=seed, device=device: _random(
                seed, device
            )  # type: ignore[misc]


def _random(seed: int, device: str) -> Source:
    program = random_program(random.Random(f"replay{seed}"), 30)
    sinks = split_complex(tuple(program.sinks))
    compiled = pipeline.compile_source(sinks, replace(current(), device=device))
    assert compiled.source is not None
    return compiled.source


def _lowered(function: Callable[..., Any], arguments: Any, device: str, tf32: bool) -> Source:
    with using(tf32=tf32):
        lowered = lm.jit(function).lower(*arguments, device=device)
    source: Source = lowered.planned.source
    return source


def _program(
    function: Callable[..., Any], arguments: Any, device: str, tf32: bool = False
) -> Program:
    return lambda: _lowered(function, arguments, device, tf32)


def benchmark_cases() -> Iterator[tuple[str, Program]]:
    for group in map(load, CPU_GROUPS):
        for case in group.cases:
            if case.makes_step or callable(case.inputs):
                continue
            function = case.function("lamina")
            arguments = [TensorSpec(shape) for shape in case.inputs]
            for device in DEVICES:
                yield (
                    f"{group.title}: {case.name} on {device}",
                    _program(lambda *x, f=function: f(lm, *x), arguments, device),
                )


def gpu_cases() -> Iterator[tuple[str, Program]]:
    for case in (case for group in gpu.GROUPS.values() for case in group.cases):
        if case.makes_step or callable(case.inputs):
            continue
        tf32 = getattr(case, "tf32", False)
        kind = getattr(case, "kind", "float32")
        function = case.functions.get("lamina", case.functions.get("any"))
        arguments = [TensorSpec(_shape(case, shape), kind) for shape in case.inputs]
        yield (
            f"GPU: {case.name}",
            _program(lambda *x, f=function: f(lm, *x), arguments, "cuda:0", tf32),
        )


def _shape(case: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in lamina's order of axes."""
    if getattr(case, "channels_last", False) and len(shape) == 4:
        return (shape[0], *shape[2:], shape[1])
    return shape


def drawn_programs() -> Iterator[tuple[str, Program]]:
    """Programs of `bench.cliffs`, of sizes that nobody chose."""
    for index in range(DRAWN_PROGRAMS):
        for device in DEVICES:
            program = draw(0, index, limits_of(device))
            arguments = [_spec_of(each, program.dtype) for each in program.inputs]
            yield (
                f"drawn {program.name} on {device}",
                _program(whole_function(program, lm), arguments, device),
            )


def _spec_of(array: Input, dtype: str) -> TensorSpec:
    """The shape and dtype of an input of a program whose floats are `dtype`."""
    dtypes = {"index": "int64", "int8": "int8", "mask": "bool"}
    return TensorSpec(array.shape, dtypes.get(array.kind, dtype))


class _Block:
    """A transformer block: attention and a network of two layers, with normalisation before."""

    def __init__(self, width: int, heads: int) -> None:
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project_in, self.project_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def __call__(self, x: Any) -> Any:
        batch, length, width = x.shape
        joined = self.project_in(self.norm_1(x)).reshape(batch, length, 3, self.heads, -1)
        query, key, value = lm.unstack(joined.permute(2, 0, 3, 1, 4))
        mixed = lm.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project_out(mixed.permute(0, 2, 1, 3).reshape(batch, length, width))
        return x + self.down(lm.gelu(self.up(self.norm_2(x))))


def _mlp() -> tuple[Any, list[TensorSpec]]:
    return nn.Sequential(nn.Linear(64, 128), lm.relu, nn.Linear(128, 10)), [TensorSpec((32, 64))]


def _convolutions() -> tuple[Any, list[TensorSpec]]:
    layers = (
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), lm.relu,
        lambda x: lm.max_pool2d(x, 2), nn.Conv2d(16, 32, 3, stride=2), lm.silu,
        lambda x: x.mean(axis=(2, 3)), nn.Linear(32, 10),
    )  # fmt: skip
    return nn.Sequential(*layers), [TensorSpec((8, 3, 32, 32))]


def _recurrent() -> tuple[Any, list[TensorSpec]]:
    layer = nn.LSTM(32, 48)
    return (lambda x: layer(x)[0]), [TensorSpec((6, 4, 32))]


def _embedding() -> tuple[Any, list[TensorSpec]]:
    table = nn.Embedding(1000, 64)
    return (lambda ids: lm.rms_norm(table(ids), (64,))), [TensorSpec((4, 33), lm.int64)]


NETWORKS: dict[str, Callable[[], tuple[Any, list[TensorSpec]]]] = {
    "mlp": _mlp,
    "convolutions": _convolutions,
    "recurrent": _recurrent,
    "embedding": _embedding,
    "block of 64": lambda: (_Block(64, 4), [TensorSpec((2, 40, 64))]),
    "block of 768": lambda: (_Block(768, 12), [TensorSpec((4, 256, 768))]),
}


def networks() -> Iterator[tuple[str, Program]]:
    for name, make in NETWORKS.items():
        for device in DEVICES:
            for kind in ("float32", "bfloat16"):
                for step in (False, True):
                    yield (
                        f"{name}, {kind}, {'training' if step else 'forward'} on {device}",
                        lambda make=make, device=device, kind=kind, step=step: _network(
                            make, device, kind, step
                        ),  # type: ignore[misc]
                    )


def _network(make: Any, device: str, kind: str, step: bool) -> Source:
    lm.random.manual_seed(0)
    network, arguments = make()
    parameters = nn.parameters(network)

    def forward(*inputs: Any) -> Any:
        cast = [x.cast(kind) if x.dtype.is_float else x for x in inputs]
        return network(*cast)

    def train(*inputs: Any) -> Any:
        loss = (forward(*inputs).cast(lm.float32) ** 2).mean()
        return lm.gradient(loss, parameters)

    for parameter in parameters:
        parameter.assign(parameter)
    return _lowered(train if step else forward, arguments, device, False)
