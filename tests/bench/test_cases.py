"""The computations that are measured: complete, equal everywhere, and right."""

from __future__ import annotations

import ctypes
import importlib
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.cases import ANY, REFERENCE, Array, Case, Group, gpu, load, module_of, way_of
from bench.cases.skinny import SIZE
from bench.cases.whole import Layers, inference, training
from bench.cpu import GROUPS, SECTIONS
from bench.kernels import Fleet, hopeless
from bench.process import Bench
from bench.programs.frameworks import framework
from bench.report import SHARE, VALUE
from bench.whole import NETWORKS, put_in_place
from bench.worker import ProgramError
from lamina.core.options import current
from lamina.errors import CompilerNotFoundError
from lamina.runtime import compiler


@pytest.fixture(params=[*GROUPS, *(f"whole.{name}" for name in NETWORKS)])
def group(request: pytest.FixtureRequest) -> Group:
    return load(request.param)


def test_columns_name_a_module_and_a_way_to_run_it() -> None:
    assert (module_of("torch.compile"), way_of("torch.compile")) == ("torch", "compile")
    assert (module_of("lamina unjitted"), way_of("lamina unjitted")) == ("lamina", "unjitted")
    assert (module_of("jax"), way_of("jax")) == ("jax", "")
    assert module_of("reference") == "torch"


def test_every_group_is_a_section() -> None:
    assert set(GROUPS) <= set(SECTIONS)


def test_every_case_has_a_function_for_each_of_its_columns(group: Group) -> None:
    names = [case.name for case in group.cases]
    assert len(set(names)) == len(names)
    assert any(case.quick for case in group.cases)
    for case in group.cases:
        assert all(map(callable, map(case.function, ("lamina", *case.columns))))
        assert {one.of for one in case.targets} <= {*case.columns, "best peer", SHARE, VALUE}
        assert case.bound is None or case.bound[0] in ("fma", "read", "copy")
        assert case.bound or SHARE not in {one.of for one in case.targets}


@pytest.mark.parametrize("name", gpu.GROUPS)
def test_every_case_of_a_gpu_has_a_function_for_each_of_its_columns(name: str) -> None:
    cases = gpu.GROUPS[name].cases
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        assert all(map(callable, map(case.function, ("lamina", *case.columns))))
        assert {one.of for one in case.targets} <= {*case.columns, "best peer", SHARE}
        assert case.bound is not None
        assert case.bound[0] in ("fma", "copy")


def test_a_missing_function_is_an_error() -> None:
    with pytest.raises(KeyError):
        Case("one", ((2,),), {"lamina": abs}, ()).function("torch")


def test_data_are_new_for_every_seed_and_every_case() -> None:
    one, other = (Case(name, ((3, 4), (4,)), {ANY: abs}, ()) for name in ("one", "other"))
    first, again, new = one.arrays(1), one.arrays(1), one.arrays(2)
    assert [array.shape for array in first] == [(3, 4), (4,)]
    assert all(array.dtype == np.float32 for array in first)
    np.testing.assert_array_equal(first[0], again[0])
    assert not np.array_equal(first[0], new[0])
    assert not np.array_equal(first[0], other.arrays(1)[0])


def test_who_is_far_behind_has_trials_only() -> None:
    trials = {"lamina": [90.0], "torch": [1.0], "jax": [7.0], "tinygrad": [9.0]}
    assert hopeless(trials) == {"tinygrad"}
    assert hopeless({"lamina": [1.0], "torch": [2.0]}) == set()
    assert hopeless({"torch": [2.0]}) == set()
    assert hopeless({}) == set()


def test_one_disturbed_turn_leaves_nobody_out() -> None:
    assert hopeless({"lamina": [1.0, 1.1, 1.0], "torch": [105.0, 2.0, 2.1]}) == set()


@pytest.mark.parametrize("name", ["M=1, W in Q8_0", "M=1, W in Q4_0"])
def test_quantised_weights_are_what_the_peers_multiply_with(name: str) -> None:
    case = load("skinny").case(name)
    arrays = case.arrays(5)
    own = framework("lamina", 1)
    (result,) = own.results(own.step(case, [own.array(one) for one in arrays], "lamina")())
    wanted = arrays[0].astype(np.float64) @ arrays[-1].T.astype(np.float64)
    assert arrays[-1].shape == (SIZE, SIZE)
    np.testing.assert_allclose(result, wanted, atol=1e-4 * float(np.abs(wanted).max()))


def _scaled(module: Any, x: Any) -> Any:
    return x * 2.0


def _counting(module: Any, x: Any) -> Any:
    state = [x]

    def step() -> Any:
        state[0] = state[0] + 1.0
        return state[0]

    return step


@pytest.mark.parametrize("column", ["lamina", "lamina unjitted", "numpy", "torch"])
def test_frameworks_run_what_they_are_given(column: str) -> None:
    pytest.importorskip(module_of(column))
    own = framework(module_of(column), 1)
    values = np.array([1.0, 2.0], np.float32)
    step = own.step(Case("scaled", ((2,),), {ANY: _scaled}, ()), [own.array(values)], column)
    np.testing.assert_array_equal(own.results(step())[0], [2.0, 4.0])


@pytest.mark.parametrize("column", ["lamina unjitted", "numpy", "torch"])
def test_steps_have_state(column: str) -> None:
    pytest.importorskip(module_of(column))
    own = framework(module_of(column), 1)
    case = Case("counting", ((1,),), {ANY: _counting}, (), makes_step=True)
    step = own.step(case, [own.array(np.zeros(1, np.float32))], column)
    assert [own.results(step())[0].item() for _ in range(3)] == [1.0, 2.0, 3.0]


def _classifier(layers: Layers) -> Any:
    """A network with every kind of weight that `bench.cases.whole` draws."""
    nn = layers.nn
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5))


def _images_and_classes(random: np.random.Generator) -> list[Array]:
    return [random.standard_normal((6, 3, 4, 4), np.float32), random.integers(0, 5, 6)]


@pytest.mark.parametrize(
    ("case", "steps"),
    [
        (inference("inference", _classifier, lambda random: _images_and_classes(random)[:1]), 1),
        (training("SGD", _classifier, _images_and_classes, adam=False), 3),
        (training("AdamW", _classifier, _images_and_classes, adam=True), 3),
    ],
    ids=["inference", "SGD", "AdamW"],
)
def test_networks_are_the_same_in_both_frameworks(case: Case, steps: int) -> None:
    pytest.importorskip("torch")
    found = {}
    for column in ("lamina", "torch", "torch.channels_last", REFERENCE):
        own = framework(module_of(column) if column != REFERENCE else column, 1)
        arrays = [own.array(one) for one in case.arrays(7)]
        step = own.step(case, arrays, column)
        found[column] = [own.results(step())[0] for _ in range(steps)]
    wanted = found.pop(REFERENCE)
    for values in found.values():
        np.testing.assert_allclose(values, wanted, rtol=1e-4, atol=1e-5)


def test_programs_measure_a_case_and_write_its_results(tmp_path: Path) -> None:
    bench = Bench(tmp_path, seed=3, quick=True, clang=None)
    case = load("gemm").case("64 A @ B.T")
    with Fleet(bench) as fleet:
        worker = fleet.worker("numpy", 1)
        assert fleet.worker("numpy", 1) is worker
        answer = worker.tell(["case", "gemm", case.name, ["numpy"]])
        assert answer == {"errors": {}, "kernels": 0}
        seconds = worker.tell(["time", "numpy", 0.001, 3])["seconds"]
        assert len(seconds) == 3
        assert min(seconds) > 0.0
        a, b = case.arrays(3)
        found = np.load(fleet.folder(1) / "numpy.npz")["arr_0"]
        np.testing.assert_allclose(found.reshape(64, 64), a @ b.T, rtol=1e-5, atol=1e-5)
        fleet.drop()
        with pytest.raises(ProgramError, match="KeyError: 'numpy'"):
            worker.tell(["time", "numpy", 0.001, 1])
        fleet.drop()
        assert fleet.worker("numpy", 1) is not worker


def test_a_library_that_is_loaded_is_not_written_over(tmp_path: Path) -> None:
    loaded, other = tmp_path / "pool.so", tmp_path / "other.so"
    loaded.write_bytes(b"loaded")
    other.write_bytes(b"other")
    with loaded.open("rb") as mapped:
        put_in_place(str(other), str(loaded))
        assert mapped.read() == b"loaded"
    assert loaded.read_bytes() == b"other"
    assert {*tmp_path.iterdir()} == {loaded, other}


def test_limits_are_measured(tmp_path: Path) -> None:
    try:
        compiler.find(current())
    except CompilerNotFoundError as error:
        pytest.skip(str(error))
    bench = Bench(tmp_path, seed=3, quick=True, clang=None)
    with Fleet(bench) as fleet:
        worker = fleet.worker("limit", 1)
        for kind in ("fma", "read", "copy"):
            (seconds,) = worker.tell([kind, float(1 << 20)])["seconds"]
            assert 0.0 < seconds < 1.0


def test_limits_move_no_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some processors write lines of zeros quicker than what programs write."""
    monkeypatch.setattr(sys, "argv", ["limits", "1", str(tmp_path)])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    try:
        limits = importlib.import_module("bench.programs.limits")
    except CompilerNotFoundError as error:
        pytest.skip(str(error))
    for block in limits.memory(1 << 12):
        assert 0 not in ctypes.string_at(block, 1 << 12)
