"""The table of contents: what it names exists, runs, and says what it writes."""

from __future__ import annotations

import gc
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from importlib import import_module
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, backends, pipeline
from lamina.backends import backend
from lamina.compiled import RUNNERS, Planned, with_code
from lamina.core.options import Options, current, using
from lamina.core.target import CUDA, cpu_target
from lamina.frontend.session import SESSION
from lamina.graph.few_places import sums_over_places
from lamina.graph.rewrite import Rule
from lamina.graph.sent_rows import sums_as_rows
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Combine, Op
from lamina.runtime.profile import passes
from lamina.runtime.source import Source
from tests.distributed.lockstep import hole, opened

SUBPASSES = [subpass for one in pipeline.PASSES for subpass in one.subpasses]
SETTINGS = [
    replace(current(), device=device, arch=arch, tf32=tf32)
    for device, arch in [("cpu", ""), ("metal", ""), *(("cuda:0", arch) for arch in CUDA)]
    for tf32 in (False, True)
]


def resolved(where: str) -> Any:
    """What ``module:name`` names."""
    module, _, name = where.partition(":")
    return reduce(getattr, name.split("."), import_module(module))


def codes_of(where: str) -> set[CodeType]:
    """The code of a function, or of each of some rules; without what caches it. Of a function that
    makes a rule, its own code."""
    found = resolved(where)
    parts = [found] if isinstance(found, Rule) or not isinstance(found, tuple) else list(found)
    functions = [part.apply if isinstance(part, Rule) else part for part in parts]
    return {getattr(one, "__wrapped__", one).__code__ for one in functions}


def called_by(run: Callable[[], object]) -> set[CodeType]:
    """The code of every Python function that `run` calls."""
    seen: set[CodeType] = set()

    def watch(frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            seen.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(before)
    return seen


def everything() -> None:
    """Reductions, movement, sorts, numbers that differ, complex numbers, a softmax built twice, a
    constant."""
    x = Tensor(np.linspace(0, 1, 3 * 37).reshape(3, 37), lm.float32)
    for number in (1.5, 2.5):
        (lm.softmax(x * number, axis=1) + 0.0 * x.T.T).numpy()
    (lm.asarray(np.full(5, 1 + 2j)) * 2).numpy()
    lm.cumulative_sum(x, axis=1).numpy()
    lm.argsort(x, axis=0).numpy()
    lm.jit(lambda y: y * x.exp())(lm.ones((3, 37)).realize()).numpy()
    x.assign(x + 1.0).realize()
    with using(schedule="bind(a0, parallel)"):
        (lm.ones((31,)) * 1.5).numpy()
    with using(search=1):
        (lm.ones((29,)) * 1.5).numpy()
    for_a_gpu()
    for_a_cpu_with_products_of_bytes("unsigned_by_signed")
    for_a_cpu_with_products_of_bytes("unsigned_by_signed", "byte_tiles")


def for_a_cpu_with_products_of_bytes(*engines: str) -> None:
    """A product of bytes for a CPU with units that multiply them, which this one may lack."""
    target = cpu_target(vector_bytes=64, cores=2, engines=frozenset(engines))
    x = Tensor.of(hole(0, np.zeros((64, 64), np.int8)), "cpu").cast(lm.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backends, "target_of", lambda options: target)
        pipeline.compile_source([opened(x @ x)], replace(current(), device="cpu"))


def for_a_gpu() -> None:
    """A product, a scatter, short sorts and a collective, compiled for an H200."""
    options = replace(current(), device="cuda:0", arch="sm_90a")
    x = Tensor.of(hole(0, np.zeros((64, 64), np.float32)), "cpu")
    total = Tensor.of(Node(Op.ALL_REDUCE, (x.node,), Combine(ADD, 2, 1)), "cpu")
    places = lm.argsort(x, axis=1)
    results = [x @ x, places, lm.scatter(x, 0, places, x, "add")]
    pipeline.compile_source([opened(one) for one in results], options)
    pipeline.compile_source([opened(total)], options)


@pytest.fixture(scope="module")
def called() -> Iterator[set[CodeType]]:
    """What compiling and running `everything` calls, where nothing was compiled before."""
    SESSION.forget()
    with using(device="cpu"):
        yield called_by(everything)


@pytest.mark.parametrize("subpass", SUBPASSES, ids=lambda subpass: subpass.name)
def test_a_subpass_names_a_function_that_runs(
    subpass: pipeline.Subpass, called: set[CodeType]
) -> None:
    assert codes_of(subpass.where) & called, f"nothing calls {subpass.where}"


@pytest.mark.parametrize("one", [*pipeline.PASSES, pipeline.LOAD], ids=lambda one: one.name)
def test_a_pass_runs(one: pipeline.Pass, called: set[CodeType]) -> None:
    assert one.function.__code__ in called  # type: ignore[attr-defined]


def test_names_are_unique_and_each_says_what_it_does() -> None:
    table = [*SUBPASSES, *pipeline.PASSES, pipeline.LOAD]
    names = [one.name for one in table]
    assert len(names) == len(set(names))
    assert all(0 < len(one.does) <= 80 and one.does[0].islower() for one in table)
    assert all(one.does.startswith("takes ") for one in (*pipeline.PASSES, pipeline.LOAD))


# Rules of the pass "suit_device" that all devices have.
RULES_OF_THE_PASS = (sums_as_rows, sums_over_places, pipeline.reduce_in_parts)


@pytest.mark.parametrize("options", SETTINGS, ids=lambda one: f"{one.device}-{one.arch}-{one.tf32}")
def test_every_rule_of_a_backend_is_a_subpass(options: Options) -> None:
    """A rule that is added to a backend alone would be hidden from the table."""
    (split,) = [one for one in pipeline.PASSES if one.name == "suit_device"]
    subpasses = {subpass.name: subpass.where for subpass in split.subpasses}
    rules = (*RULES_OF_THE_PASS, *backend(options).graph_rules(options))
    for rule in rules:
        assert rule.name in subpasses, f"{rule.name} has no Subpass"
        module, _, name = subpasses[rule.name].partition(":")
        assert rule.name.lower() == name.lower()
        assert hasattr(import_module(module), name)


KINDS_OF = {
    "": {"cpu", "cuda", "metal"}, "CPUs": {"cpu"}, "GPUs": {"cuda", "metal"}, "CUDA": {"cuda"},
}  # fmt: skip


def test_a_rule_names_the_devices_that_have_it() -> None:
    (suit_device,) = [one for one in pipeline.PASSES if one.name == "suit_device"]
    for subpass in suit_device.subpasses:
        if subpass.name in {rule.name for rule in RULES_OF_THE_PASS}:
            assert not subpass.devices
            continue
        having = {
            options.kind
            for options in SETTINGS
            if any(rule.name == subpass.name for rule in backend(options).graph_rules(options))
        }
        assert having == KINDS_OF[subpass.devices], subpass.name


def test_every_subpass_of_suit_device_is_a_rule_of_a_backend() -> None:
    (split,) = [one for one in pipeline.PASSES if one.name == "suit_device"]
    rules = {rule.name for one in SETTINGS for rule in backend(one).graph_rules(one)}
    rules |= {rule.name for rule in RULES_OF_THE_PASS}
    assert {subpass.name for subpass in split.subpasses} == rules


def test_a_pass_writes_the_dialect_that_it_names() -> None:
    SESSION.forget()
    with using(device="cpu"), passes() as records:
        (lm.ones((3, 43)) * 1.25).sum().item()
    dialects = {"graph": list, "kernels": pipeline.Program}
    assert [one.pass_ for one in records] == [*pipeline.PASSES, pipeline.LOAD]
    for one in records:
        assert isinstance(one.after, dialects.get(one.pass_.writes, Planned))
        assert (getattr(one.after, "source", None) is not None) == (
            one.pass_.writes in ("source", "code")
        )


def test_no_cycles_are_collected_while_passes_run() -> None:
    collected = list[str]()

    def note(phase: str, _: object) -> None:
        names = [frame.name for frame in traceback.extract_stack()]
        if "_run_pass" in names:
            collected.append(phase)

    x = Tensor.of(hole(0, np.zeros((5, 41), np.float32)), "cpu")
    thresholds = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(1)
    try:
        pipeline.compile_source([opened(lm.softmax(x, axis=1))], replace(current(), device="cpu"))
        assert gc.isenabled()
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(note)
    assert not collected


def test_compilers_work_on_both_parts_of_a_program_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both_began = threading.Barrier(2, timeout=60)

    def load(source: Source, launches: object, options: Options) -> Any:
        both_began.wait()
        return source.prelude

    on_cpu = replace(current(), device="cpu")
    monkeypatch.setitem(RUNNERS, "cpu", replace(RUNNERS["cpu"], load=load))
    program = pipeline.Program(steps=(), outputs=(), arena=0, block=0)
    once = Planned(program, {}, source=Source(prelude="once"))
    planned = Planned(program, {}, source=Source(prelude="every call"), once=once)
    loaded = with_code(planned, on_cpu)
    assert loaded.once is not None
    assert (loaded.code, loaded.once.code) == ("every call", "once")


def test_every_pass_and_step_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    SESSION.forget()
    with using(device="cpu", debug=3):
        (lm.ones((3, 47)) * 1.25).sum().item()
    lines = capsys.readouterr().err.splitlines()
    shown = [line.split(":")[0].replace(" (unchanged)", "") for line in lines if line[:3] == "-- "]
    table = (*pipeline.PASSES, pipeline.LOAD)
    expected = []
    for one in table:
        expected.append(f"-- {one.name}")
        expected += [f"--   {subpass.name}" for subpass in one.subpasses]
    assert shown == expected
