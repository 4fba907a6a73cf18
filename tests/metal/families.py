"""A program with every family of kernels, and its launches outside of lamina's runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from lamina import backends, pipeline
from lamina.core.dtypes import bfloat16, float16, float32, int64, uint16
from lamina.core.options import current
from lamina.fuse.program import BufferView
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, ARGMAX, MAX
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Reduce, Scatter
from lamina.schedule.knobs import GpuKnobs
from lamina.targets import gpu, threads
from tests.generators import leaf
from tests.msl.emulator import TSAN_THREADS, Job
from tests.programs import layer_norm, softmax, views_of

ROWS, COLUMNS = 5, 90  # a row has two simdgroups


def matrix(number: int) -> Node:
    return leaf(number, (ROWS, COLUMNS), float32)


def product() -> Node:
    """A matrix product with a tile of rows left over."""
    a, b = leaf(3, (9, 20), float32), leaf(4, (20, 34), float32)
    left = build.expand(build.reshape(a, (9, 20, 1)), (9, 20, 34))
    right = build.expand(build.reshape(b, (1, 20, 34)), (9, 20, 34))
    return build.reduce(ADD, [1], left * right)


def best() -> Node:
    """A reduction of pairs, whose second component has 64 bits."""
    x = matrix(0)
    place = build.expand(build.reshape(build.iota(COLUMNS, int64), (1, COLUMNS)), x.shape)
    return Node(Op.REDUCE, (x, place), Reduce(ARGMAX, (1,), 1))


def added() -> Node:
    """Rows added at the places of an index."""
    places = leaf(5, (8, 6), int64)
    base = build.cast(leaf(6, (4, 6), float16), float32)
    return Node(Op.SCATTER, (base, places, leaf(7, (8, 6), float32)), Scatter(0, ADD))


FAMILIES: dict[str, Node] = {
    "elementwise": build.unary(Op.EXP, matrix(0)) * 0.5 + matrix(1),
    "halves": build.cast(build.cast(matrix(0), bfloat16), float32) + 1.0,
    "rows": build.reduce(ADD, [1], matrix(0)),
    "columns": build.reduce(MAX, [0], matrix(1)),
    "whole": build.reduce(ADD, [0, 1], leaf(2, (3, 700), float32)),
    "pairs": best(),
    "softmax": softmax(matrix(0), 1),
    "layer norm": layer_norm(matrix(1), 1),
    "product": product(),
    "transpose": build.permute(leaf(8, (33, 64), float32), (1, 0)),
    "scan": Node(Op.SCAN, (matrix(0),), Reduce(ADD, (1,))),
    "scatter": added(),
    "argsort": build.argsort(matrix(1)),
    "argsort of long rows": build.argsort(leaf(9, (2, 2500), uint16)),
}


class Prepared(NamedTuple):
    """A program for Metal, the content of its arrays, each apart, the launches, and what the
    arrays of its outputs should hold."""

    source: str
    arrays: list[np.ndarray]
    jobs: list[Job]
    outputs: list[int]
    wanted: list[np.ndarray]


def prepared(*sinks: Node) -> Prepared:
    """Compile `sinks` in one program for small threadgroups, with random inputs."""
    with pytest.MonkeyPatch.context() as patch:
        for limit in ("BLOCK", "MAX_SHARED_THREADS"):
            patch.setattr(threads, limit, TSAN_THREADS)
        patch.setattr(gpu, "RUN", 2 * gpu.KEYS * TSAN_THREADS)
        fusion = replace(backends.OF_GPUS, sort_run=gpu.RUN)
        knobs = GpuKnobs(enough_threads=1 << 12)  # of 1 << 15, a scatter has 1536 threadgroups
        metal = replace(backends.METAL, fusion_target=lambda options: fusion, knobs=knobs)
        patch.setitem(backends.BACKENDS, "metal", metal)
        settings = replace(current(), device="metal")
        planned = pipeline.compile_source(sinks, settings)
    rng, inputs = np.random.default_rng(0), {}
    for node in toposort(sinks):
        if node.op is Op.BUFFER:
            values = rng.standard_normal(node.shape) * 2
            if node.dtype.is_int:
                values = rng.integers(0, 4, node.shape)
            inputs[node.arg.storage] = values.astype(node.dtype.numpy)
    # Each array has an allocation of its own: of scratch, what the views with its number span.
    spans: dict[tuple[str, int], list[BufferView]] = {}
    for view in views_of(planned.program):
        spans.setdefault((view.kind, view.number), []).append(view)
    arrays, places = [], dict[BufferView, tuple[int, int]]()
    for (kind, number), views in spans.items():
        first = 0 if kind == "input" else min(one.offset for one in views)
        garbage = b"\xcd" * (max(one.offset + one.nbytes for one in views) - first)
        places |= {one: (len(arrays), one.offset - first) for one in views}
        arrays.append(inputs[number].reshape(-1) if kind == "input"
                      else np.frombuffer(garbage, views[0].dtype.numpy))  # fmt: skip
    bound = (tuple(places[at] for at in one.arguments) for one in planned.program.launches)
    jobs = [
        Job(one.name, (one.blocks, 1, 1), (one.threads, 1, 1), own)
        for one, own in zip(planned.launches, bound, strict=True)
    ]
    leaves = {node: inputs[node.arg.storage] for node in toposort(sinks) if node.op is Op.BUFFER}
    return Prepared(
        planned.text, arrays, jobs, [places[one][0] for one in planned.program.outputs],
        evaluate(sinks, leaves),
    )


def agrees(given: Prepared, arrays: list[np.ndarray]) -> bool:
    """Whether the arrays after a run hold what the interpreter computes."""
    return all(
        np.allclose(arrays[at], want.reshape(-1), 1e-4, 1e-4)
        for at, want in zip(given.outputs, given.wanted, strict=True)
    )
