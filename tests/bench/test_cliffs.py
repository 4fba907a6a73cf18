"""Programs that are drawn: the same ones each time, and the same mathematics in every framework."""

from __future__ import annotations

import itertools
import math
import os
import random
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.cliffs.command import main
from bench.cliffs.draw import draw, family_of, indices
from bench.cliffs.families import FAMILIES
from bench.cliffs.outcome import distance
from bench.cliffs.program import SEED, MissingOperationError, Program, function_of
from bench.cliffs.run import SEARCHED, Crew, examine, examine_all
from bench.cliffs.sketch import CPU, GPU, TINY, Sketch
from bench.process import Bench
from bench.programs.drawn import Lamina, Runner, made
from bench.worker import ProgramError, ProgramTimeoutError
from lamina.core.options import current
from lamina.errors import CompilerNotFoundError
from lamina.runtime import compiler
from tests.bench.made_up import rising

Answer = Callable[[str, Sequence[Any]], dict[str, Any]]
INDICES = range(3 * len(FAMILIES))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, seed=1, quick=True, clang=None)


def _results(column: str, program: Program) -> list[np.ndarray[Any, Any]]:
    device = "interp" if column == "lamina" else "cpu"
    own = made(column, device, 1)
    arrays = [
        own.array(values, program.dtype if one.is_float else "")
        for one, values in zip(program.inputs, program.arrays(0), strict=True)
    ]
    return [own.numpy(one) for one in own.step(program, arrays)()]


def _drawn(family: str, count: int) -> list[Program]:
    """Small programs of a family, the last one with derivatives if the family has them."""
    many = (draw(1, index, TINY) for index in indices(0, 40, [family]))
    plain = list(itertools.islice(many, count))
    return plain + list(itertools.islice((one for one in many if one.gradients), 1))


def test_a_program_follows_from_its_seed_and_its_index() -> None:
    first, again = ([draw(7, index, CPU) for index in INDICES] for _ in range(2))
    assert first == again
    np.testing.assert_array_equal(first[0].arrays(3)[0], again[0].arrays(3)[0])
    assert not np.array_equal(first[0].arrays(3)[0], first[0].arrays(4)[0])
    texts = {one.text() for one in first} | {draw(8, index, CPU).text() for index in INDICES}
    assert len(texts) == 2 * len(INDICES)


def test_a_draw_is_the_same_one_on_every_machine() -> None:
    assert draw(1, 4, CPU).text() == (
        "def program(lm, x0):\n"
        "    # x0: float32 (149145,)\n"
        "    v0 = lm.min(x0, axis=(0,), keepdims=True)\n"
        "    v1 = lm.minimum(x0, v0)\n"
        "    return v1\n"
    )


def test_families_take_turns() -> None:
    assert [family_of(index) for index in range(len(FAMILIES))] == list(FAMILIES)
    assert list(indices(0, 3, [])) == [0, 1, 2]
    assert {family_of(index) for index in indices(5, 4, ["norm", "scan"])} == {"norm", "scan"}


@pytest.mark.parametrize("limits", [CPU, GPU])
def test_no_input_is_larger_than_the_limit(limits: Any) -> None:
    for index in INDICES:
        program = draw(2, index, limits)
        sizes = [int(np.prod(one.shape)) for one in program.inputs]
        assert max(sizes) <= 8 * limits.elements, program.text()


def test_sizes_are_multiples_primes_and_odd_ones() -> None:
    sketch = Sketch(random.Random(1), CPU)
    sizes = [sketch.size(1, 4096) for _ in range(1000)]
    assert min(sizes) == 1
    assert max(sizes) > 2048
    assert sum(size % 64 == 0 for size in sizes) > 100
    assert sum(size % 2 for size in sizes) > 200


def test_inputs_that_nothing_needs_are_left_out() -> None:
    for index in INDICES:
        program = draw(3, index, TINY)
        used = {name for line in program.lines for name in line.arguments} | {SEED}
        assert {one.name for one in program.inputs} <= used
        assert {line.result for line in program.lines} <= used | {program.result}


@pytest.mark.parametrize("family", FAMILIES)
def test_lamina_and_torch_compute_the_same(family: str) -> None:
    pytest.importorskip("torch")
    programs = _drawn(family, 2)
    assert len(programs) == (3 if FAMILIES[family].gradients else 2)
    for program in programs:
        theirs, ours = (_results(column, program) for column in ("reference", "lamina"))
        assert distance(ours, theirs) < 1e-4, program.text()


@pytest.mark.parametrize("family", FAMILIES)
def test_jax_computes_the_same_where_it_has_the_operations(family: str) -> None:
    pytest.importorskip("jax")
    for program in _drawn(family, 2):
        try:
            theirs = _results("jax", program)
        except MissingOperationError:
            continue
        assert distance(theirs, _results("lamina", program)) < 1e-4, program.text()


def test_a_framework_that_lacks_an_operation_says_so() -> None:
    program = _drawn("convolution", 1)[0]
    assert program.forward("jax") == ""
    with pytest.raises(MissingOperationError, match="jax lacks an operation"):
        function_of(program, "jax", None)


def test_the_framework_of_lamina_jits_on_its_device() -> None:
    own = made("lamina", "interp", 1)
    assert isinstance(own, Lamina)
    assert own.array(np.ones(2, np.float32), "bfloat16").device == "interp"


class MadeUpCrew(Crew):
    """Its programs answer as the test says; results are the same everywhere."""

    def __init__(self, bench: Bench, answer: Answer, device: str = "cpu") -> None:
        super().__init__(bench, device, 1.0)
        self.answer = answer
        self.ended: list[str] = []
        self.values = {"lamina": 1.0}

    def tell(self, column: str, *message: object) -> dict[str, Any]:
        return self.answer(column, message)

    def end(self, column: str) -> None:
        self.ended.append(column)

    def results(self, column: str) -> list[np.ndarray[Any, Any]]:
        return [np.full(3, self.values.get(column, 1.0))]


def _answers(column: str, message: Sequence[Any]) -> dict[str, Any]:
    if message[0] == "case":
        return {"first": 0.5, "kernels": 2 if column == "lamina" else 0}
    if message[0] == "idle":
        return {"idle": True}
    if message[0] == "cost":
        return {"bound": 1.0, "predicted": 3.0}
    if message[0] == "time":
        return {"seconds": {"lamina": 4.0, "torch": 2.0}.get(column, 3.0)}
    return {"kernels": [rising(1), rising(2)]}


def test_an_outcome_says_who_is_ahead_and_where_the_time_goes(bench: Bench) -> None:
    outcome = examine(bench, MadeUpCrew(bench, _answers), 0, ["torch", "torch.compile"])
    seconds = {"lamina": [4.0] * 2, "torch": [2.0] * 2, "torch.compile": [3.0] * 2}
    assert outcome.samples == seconds
    assert outcome.itself == ([2.0] * 2, [2.0] * 2)
    assert (outcome.ratio, outcome.peer, outcome.kernels) == (0.5, "torch", 2)
    assert outcome.first == {"lamina": 0.5, "torch": 0.5, "torch.compile": 0.5}
    assert [one.seconds for one in outcome.slow] == [2.0, 1.0]
    assert (outcome.bound, outcome.predicted) == (1.0, 3.0)
    assert outcome.compared
    assert not outcome.failed


def test_all_columns_of_a_round_run_on_one_core(bench: Bench) -> None:
    cores: dict[str, list[int]] = {}

    def noted(column: str, message: Sequence[Any]) -> dict[str, Any]:
        if message[0] == "time":
            cores.setdefault(column, []).append(message[2])
        return _answers(column, message)

    examine(bench, MadeUpCrew(bench, noted), 5, ["torch", "torch.compile"])
    trial, first, second = cores["lamina"]
    assert trial == first != second
    assert cores["torch.compile"] == [trial, first, second]
    # The best peer has a turn more in each round.
    assert sorted(cores["torch"]) == [trial, first, first, second, second]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep no thread on a core")
def test_a_turn_beside_a_gpu_has_all_threads_on_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    usable = os.sched_getaffinity(0)
    cores = sorted(usable)
    ends, seen = threading.Event(), []
    other = threading.Thread(target=ends.wait)
    other.start()

    def measured(seconds: float) -> float:
        seen.extend(os.sched_getaffinity(one) for one in (0, other.native_id or 0))
        return seconds

    runner = Runner.__new__(Runner)
    runner.device = "cuda:0"
    monkeypatch.setattr(runner, "_measure", measured)
    assert runner.measure(2.0, len(cores) + 1) == 2.0
    assert seen == [{cores[1 % len(cores)]}] * 2
    assert os.sched_getaffinity(0) == os.sched_getaffinity(other.native_id or 0) == usable
    ends.set()
    other.join()


def test_the_first_choice_is_compared_with_a_search(bench: Bench) -> None:
    def slower_first(column: str, message: Sequence[Any]) -> dict[str, Any]:
        if column == SEARCHED and message[0] == "time":
            return {"seconds": 3.2}
        return _answers(column, message)

    outcome = examine(bench, MadeUpCrew(bench, slower_first), 0, ["torch"], searches=True)
    assert outcome.regret == 1.25
    assert SEARCHED not in outcome.samples  # which is no peer
    assert math.isnan(examine(bench, MadeUpCrew(bench, slower_first), 0, ["torch"]).regret)


def test_a_search_is_a_setting_of_the_process(bench: Bench) -> None:
    crew = MadeUpCrew(bench, _answers)
    words = crew.command(SEARCHED, 1)
    assert crew.environment_of(words, {"A": "b"}) == {"A": "b", "LAMINA_SEARCH": "8"}
    assert crew.environment_of(crew.command("lamina", 1), {}) == {}


def test_a_wrong_result_is_wrong_and_not_measured(bench: Bench) -> None:
    crew = MadeUpCrew(bench, _answers)
    crew.values["lamina"] = 1.01
    outcome = examine(bench, crew, 0, ["torch"])
    assert outcome.wrong
    assert outcome.failed
    assert outcome.distances == {"lamina": pytest.approx(0.01), "torch": 0.0}
    assert outcome.samples == {}
    assert outcome.ratio is None


def test_what_overflows_in_pytorch_too_is_not_compared(bench: Bench) -> None:
    """Such as a sum of bytes that is cast to float16."""
    crew = MadeUpCrew(bench, _answers)
    crew.values |= {"lamina": np.inf, "torch": np.inf}
    outcome = examine(bench, crew, 0, ["torch", "torch.compile"])
    assert not outcome.failed
    crew.values |= {"torch": 1.0}
    assert examine(bench, crew, 0, ["torch", "torch.compile"]).wrong


def test_a_result_that_is_wrong_on_few_data_is_right(bench: Bench) -> None:
    """Such as a derivative of relu where a rounding decides."""
    crew = MadeUpCrew(bench, _answers)

    def results_of(column: str, message: Sequence[Any]) -> dict[str, Any]:
        if message[0] == "case":
            crew.values["lamina"] = 1.5 if message[2] == 0 else 1.0
        return _answers(column, message)

    crew.answer = results_of
    assert not examine(bench, crew, 0, ["torch"]).failed


def test_a_reference_that_is_wrong_on_a_gpu_alone_is_no_reason(bench: Bench) -> None:
    """Such as a pooling of PyTorch whose index overflows in every dtype."""
    crew = MadeUpCrew(bench, _answers, "cuda:0")
    crew.values |= {"torch": 1.5, "torch.compile": 1.0, "reference": 1.5, "reference.cpu": 1.0}
    outcome = examine(bench, crew, 0, ["torch", "torch.compile"])
    assert not outcome.failed
    assert outcome.distances == {"lamina": 0.0, "torch": 0.5, "torch.compile": 0.0}
    assert outcome.failures.keys() == {"torch"}  # which is as wrong
    assert outcome.peer == "torch.compile"
    assert outcome.first.keys() == {"lamina", "torch", "torch.compile"}


def test_a_result_that_both_references_refuse_is_wrong(bench: Bench) -> None:
    crew = MadeUpCrew(bench, _answers, "cuda:0")
    crew.values["lamina"] = 1.5
    assert examine(bench, crew, 0, ["torch"]).wrong


def test_nothing_is_measured_on_a_gpu_with_other_work(bench: Bench) -> None:
    def busy(column: str, message: Sequence[Any]) -> dict[str, Any]:
        return {"idle": False} if message[0] == "idle" else _answers(column, message)

    outcome = examine(bench, MadeUpCrew(bench, busy, "cuda:0"), 0, ["torch"])
    assert outcome.busy
    assert outcome.samples == {}
    assert not outcome.failed
    outcome = examine(bench, MadeUpCrew(bench, _answers, "cuda:0"), 0, ["torch"])
    assert not outcome.busy
    assert outcome.ratio == 0.5


@pytest.mark.parametrize(("busy_until", "is_idle"), [(0.0, True), (1.0, True), (9.0, False)])
def test_a_device_is_idle_once_tiny_kernels_are_fast(
    tmp_path: Path, busy_until: float, is_idle: bool
) -> None:
    """By a clock on which a kernel takes 2 ms while there is other work, and then 0.05 ms."""
    runner = Runner("lamina", 1, 1, tmp_path, "interp")
    assert isinstance(runner.own, Lamina)
    clock = [0.0]

    def probe() -> None:
        clock[0] += 2e-3 if clock[0] < busy_until else 5e-5

    runner.own.probe = lambda: probe  # type: ignore[method-assign]
    runner.now = lambda: clock[0]
    assert runner.waits_until_idle(3.0) is is_idle
    assert clock[0] == pytest.approx(min(busy_until + 0.02, 3.0), abs=0.01)


def test_what_is_not_finite_is_not_compared(bench: Bench) -> None:
    crew = MadeUpCrew(bench, _answers)
    crew.values = {"lamina": 1.0, "reference": np.nan}
    outcome = examine(bench, crew, 0, ["torch"])
    assert not outcome.compared
    assert not outcome.wrong


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ProgramTimeoutError("late"), "timeout"), (ProgramError("died"), "crash"), (None, "OddError")],
)
def test_failures_are_told_by_their_kind(
    bench: Bench, error: ProgramError | None, kind: str
) -> None:
    def failing(column: str, message: Sequence[Any]) -> dict[str, Any]:
        if column == "lamina" and error is not None:
            raise error
        if column == "lamina":
            return {"error": {"kind": kind, "text": "why"}}
        return _answers(column, message)

    crew = MadeUpCrew(bench, failing)
    outcome = examine(bench, crew, 0, ["torch"])
    assert outcome.failures["lamina"].kind == kind
    assert outcome.failed
    assert outcome.ratio is None
    assert crew.ended == ([] if error is None else ["lamina"])


def test_nothing_begins_after_the_time_is_over(bench: Bench) -> None:
    done: list[Any] = []
    examine_all(bench, MadeUpCrew(bench, _answers), [0, 1], [], -1.0, done.append)
    assert done == []
    examine_all(bench, MadeUpCrew(bench, _answers), [0, 1], [], 100.0, done.append)
    assert [one.program.index for one in done] == [0, 1]


def test_the_command_measures_a_program_and_writes_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    try:
        compiler.find(current())
    except CompilerNotFoundError as error:
        pytest.skip(str(error))
    main(["--seed", "1", "--case", "4", "--peers", "torch", "--threads", "1",
          "--output", str(tmp_path)])  # fmt: skip
    printed = capsys.readouterr().out
    assert "v0 = torch.amin(x0, (0,), keepdim=True)" in printed
    assert (tmp_path / "cliffs_cpu.md").read_text() in printed
    assert "| **all** | 1 | - | - |" in printed


def test_families_that_do_not_exist_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "norm,nothing"])
    assert "--only: nothing: not among product" in capsys.readouterr().err
