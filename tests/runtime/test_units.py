"""A long program is compiled as several units at once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.options import Options, using
from lamina.errors import CompileError
from lamina.runtime import compiler, cpu, source
from lamina.runtime.cpu import CpuProgram
from lamina.runtime.source import Source

from .sources import HEADER, numbers

PRELUDE = (
    HEADER
    + """
#ifndef LINKAGE
#define LINKAGE static
#endif
#define KERNEL(name) LINKAGE void name(void *arg, long i)
"""
)
ENTRY = "RUN { %s }"


def program(*bodies: str) -> Source:
    kernels = {f"k{at}": f"KERNEL(k{at}) {{ {body} }}" for at, body in enumerate(bodies)}
    calls = " ".join(f"parallel(1, {name}, buffers[0]);" for name in kernels)
    return Source(PRELUDE, kernels, ENTRY % calls)


@pytest.fixture(autouse=True)
def short_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "UNIT_BYTES", 20)


def test_each_kernel_is_in_one_unit() -> None:
    whole = program(*[f"((int64_t *)arg)[{at}] += {at};" for at in range(5)])
    assert len(whole.units) == 5
    for name, text in whole.kernels.items():
        assert sum(text in unit for unit in whole.units) == 1
        assert all(f"KERNEL({name});" in unit for unit in whole.units)
    assert sum(whole.entry in unit for unit in whole.units) == 1
    assert whole.units == program(*[f"((int64_t *)arg)[{at}] += {at};" for at in range(5)]).units


def test_a_short_program_is_one_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "UNIT_BYTES", 1 << 17)
    whole = program("", "")
    assert whole.units == (whole.text,)


def test_units_run_as_one_program(options: Options) -> None:
    whole = program(*[f"((int64_t *)arg)[{at}] += {at} + 1;" for at in range(5)])
    memory = numbers(0, 0, 0, 0, 0)
    CpuProgram(whole.text, options, whole.units).run([memory])
    assert np.frombuffer(memory.view(), np.int64).tolist() == [1, 2, 3, 4, 5]


def test_kernels_are_no_symbols_of_the_library(options: Options) -> None:
    whole = program("", "")
    library = cpu.build(whole.text, options, whole.units)
    assert library.lamina_run
    assert not hasattr(library, "k0")


def test_an_error_names_its_kernel(
    options: Options, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    whole = program("", "int x = zz;", "")
    with pytest.raises(CompileError, match=r"kernel k1:1:.*'zz' undeclared") as caught:
        CpuProgram(whole.text, options, whole.units)
    kept = str(caught.value).rpartition("kept in ")[2].partition("\n")[0]
    assert Path(kept).read_text() == whole.text
    assert "test_units.py" in str(caught.value)
    assert not list(folder.iterdir())


def test_units_compute_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    data = [random.standard_normal(shape).astype(np.float32) for shape in ((9, 7), (7, 11))]
    commands: list[list[str]] = []
    run = compiler.run

    def noted(command: list[str], **variables: str) -> object:
        commands.append(command)
        return run(command, **variables)

    monkeypatch.setattr(cpu.compilers, "run", noted)

    def results(folder: str) -> list[np.ndarray]:
        with using(cache_dir=str(tmp_path / folder)):
            x, w = map(Tensor, data)
            loss = lm.softmax((x @ w).tanh(), axis=-1).square().sum()
            return [one.numpy() for one in (loss, *lm.gradient(loss, [x, w]))]

    several = results("several")
    assert sum("-c" in command for command in commands) > 1
    commands.clear()
    monkeypatch.setattr(source, "UNIT_BYTES", 1 << 17)
    for got, want in zip(several, results("one"), strict=True):
        np.testing.assert_array_equal(got, want)
    assert not any("-c" in command for command in commands)
