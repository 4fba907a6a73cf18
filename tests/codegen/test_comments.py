"""What a kernel computes, as a formula above its text, which is no part of what is compiled."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

import lamina as lm
from lamina import TensorSpec
from lamina.explain.origins import ORIGINS
from lamina.frontend.lowered import Lowered
from lamina.targets.formulas import formulas


def lowered(function: Callable[..., Any], *shapes: tuple[int, ...], device: str = "cpu") -> Lowered:
    return lm.jit(function).lower(*map(TensorSpec, shapes), device=device)


def lines(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[str]:
    """The formulas of every kernel of a function."""
    return [
        line for kernel in lowered(function, *shapes).planned.plans for line in formulas(kernel)
    ]


def test_a_product_with_a_bias() -> None:
    assert lines(lambda a, b, c: a @ b + c, (60, 200), (200, 70), (70,)) == [
        "p3[row, column] = (sum_k p0[row, k] * p1[k, column]) + p2[column]"
    ]


def test_a_value_with_several_users_has_a_name() -> None:
    assert lines(lambda x: lm.exp(x) / lm.exp(x).sum(axis=1, keepdims=True), (64, 100)) == [
        "v1 = exp(p0[row, column])",
        "p1[row, column] = v1 / (sum_column v1)",
    ]


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (lambda x: (x + 1) * (x - 2), "p1[i] = (p0[i] + 1) * (p0[i] - 2)"),
        (lambda x: -x / (x * x), "p1[i] = -p0[i] / (p0[i] * p0[i])"),
        (lambda x: 1 - lm.sqrt(x), "p1[i] = -sqrt(p0[i]) + 1"),
        (lambda x: lm.where(x < 3, x, 0), "p1[i] = (p0[i] if p0[i] < 3 else 0)"),
        (lambda x: lm.cumsum(x), "p1[row] = running_sum_row p0[row]"),
        (lambda x: lm.argmax(x), "p1[0] = i64(argmax_k(p0[k], i32(k))[1])"),
        (lambda x: lm.argsort(x), "p1[row] = the order of p0[row], ascending"),
        (
            lambda x: lm.topk(x, 3).indices,
            "p1[row] = the order of p0[row], descending, ranks 0 to 3",
        ),
        (lambda x: x[3:] * 2, "p1[i] = p0[i + 3] * 2"),
        (lambda x: lm.flip(x), "p1[i] = p0[-i + 39]"),
        (lambda x: x.cast(lm.int32) // 3, "p1[i] = i32(p0[i]) // 3"),
    ],
)
def test_formulas(function: Callable[..., Any], line: str) -> None:
    assert lines(function, (40,)) == [line]


def test_long_graphs_have_few_lines() -> None:
    def function(x: lm.Tensor) -> lm.Tensor:
        for _ in range(400):
            x = lm.sin(x) + 1
        return x

    (kernel, *_) = lowered(function, (40,)).planned.plans
    found = formulas(kernel)
    assert len(found) <= 25
    assert max(map(len, found)) < 300


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "metal"])
def test_comments_are_not_compiled(device: str) -> None:
    program = lowered(lambda x: x + 1, (40,), device=device)
    (kernel,) = program.kernels
    comment = "/* p1[i] = p0[i] + 1"
    assert kernel.source.startswith(comment)
    assert comment in program.planned.listing
    assert comment not in program.source


def two_kernels(x: lm.Tensor, w: lm.Tensor) -> lm.Tensor:
    hidden = lm.relu(x @ w)
    centred = hidden - hidden.mean(axis=0)
    return lm.softmax(centred, axis=1)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_kernels_have_the_users_lines(device: str) -> None:
    program = lowered(two_kernels, (64, 40), (40, 30), device=device)
    found = [line.partition(": ")[2] for kernel in program.kernels for line in kernel.lines]
    assert all("test_comments.py:" in line for kernel in program.kernels for line in kernel.lines)
    for text in ("hidden = lm.relu(x @ w)", "return lm.softmax(centred, axis=1)"):
        assert text in found
    first, *_, last = program.kernels
    assert "hidden = lm.relu" in first.source
    assert "return lm.softmax" not in first.source
    assert "hidden = lm.relu(x @ w)" not in last.source
    assert "lm.softmax" not in program.source


def test_the_last_stage_has_the_users_lines() -> None:
    listing = lowered(two_kernels, (64, 40), (40, 30)).stages["print"]
    assert re.search(r"at test_comments.py:\d+: hidden = lm.relu\(x @ w\)", listing)


PROGRAM = """\
import lamina as lm
x = lm.asarray([[0.0, 1.0], [2.0, 3.0]])
hidden = lm.relu(x @ x) * {number}
print(lm.softmax(hidden, axis=1).numpy())
print(lm.jit(lambda a: lm.exp(a).sum(axis=0))(x).numpy())
"""


@pytest.mark.parametrize("shown_by", ["LAMINA_DEBUG", "explain"])
def test_what_is_printed_of_a_run_has_the_users_lines(shown_by: str, tmp_path: Path) -> None:
    """Also where a number of the program became an input: the second product differs from the
    first in 2.5 alone."""
    path = tmp_path / "user.py"
    first, second = (PROGRAM.format(number=number) for number in (1.5, 2.5))
    path.write_text(first + second)
    environment = {**os.environ, "LAMINA_DEVICE": "cpu", "LAMINA_CACHE_DIR": str(tmp_path)}
    if shown_by == "LAMINA_DEBUG":
        command = [sys.executable, str(path)]
        environment["LAMINA_DEBUG"] = "4"
    else:
        command = [sys.executable, "-m", "lamina", "explain", "--source", str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    printed = done.stderr if shown_by == "LAMINA_DEBUG" else done.stdout
    for line in (
        "user.py:3: hidden = lm.relu(x @ x) * 1.5",
        "user.py:4: print(lm.softmax(hidden, axis=1).numpy())",
        "user.py:5: print(lm.jit(lambda a: lm.exp(a).sum(axis=0))(x).numpy())",
        "user.py:8: hidden = lm.relu(x @ x) * 2.5",
    ):
        assert f"   at {line}" in printed


def test_notes_keep_no_tensor() -> None:
    """Which nodes there are decides what memory may be overwritten."""
    with ORIGINS.noted():
        value = lm.ones((3, 41)) * 2.0
        (note,) = ORIGINS.of([value.node])
        assert note is value.node
        node = ref(note)
        del value, note
        gc.collect()
        assert node() is None


def test_moved_lines_change_no_source() -> None:
    texts = []
    for shift in ("", "\n\n\n"):
        space: dict[str, Any] = {"lm": lm}
        code = compile(f"{shift}def f(x):\n    return lm.exp(x) + 1\n", "user.py", "exec")
        exec(code, space)
        program = lowered(space["f"], (50,))
        texts.append((program.source, program.kernels[0].lines))
    (first, lines_of_first), (second, lines_of_second) = texts
    assert first == second
    assert lines_of_first == ("user.py:2",)
    assert lines_of_second == ("user.py:5",)
