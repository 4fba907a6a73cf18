"""What the session finds through a node or a memory, and what it lets go."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from dis import get_instructions
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina import nn
from lamina.core.recent import Recent
from lamina.frontend import realize as memory
from lamina.frontend.session import SESSION, Session
from lamina.ir.node import Node
from lamina.runtime.profile import passes


def test_the_oldest_keys_are_forgotten() -> None:
    table: Recent[str] = Recent(2)
    table.put(1, "one")
    table.put(2, "two")
    assert table.get(1) == "one"
    table.put(3, "three")
    assert (table.get(1), table.get(2), table.get(3), len(table)) == ("one", None, "three", 2)


def test_tensors_are_found_through_the_memory_that_holds_them() -> None:
    x = lm.asarray([1.0, 2.0]).realize()
    same = lm.Tensor.of(x.node, x.device)
    lazy = x + 1.0
    place = memory.home_of(x.node)
    assert place is not None
    assert {id(one) for one in SESSION.unfinished()} >= {id(lazy)}
    SESSION.settle()
    assert {id(one) for one in SESSION.tensors_in(place)} == {id(x), id(same)}
    same.assign(lazy)
    SESSION.settle()
    assert {id(one) for one in SESSION.tensors_in(place)} == {id(x)}
    same.realize()
    assert x.tolist() == [1.0, 2.0]
    assert same.tolist() == [2.0, 3.0]


def test_a_tensor_whose_value_is_in_memory_is_settled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tensors live, a step looks at those that it has to do with, be the others in
    memory or not."""
    others = [lm.asarray([float(number)]) for number in range(200)]
    others += [other + 1.0 for other in others]
    w = lm.Tensor([1.0], requires_grad=True)
    optimizer = nn.optim.SGD([w], lr=0.5)
    for _ in range(2):
        (w * 3.0).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    asked: list[Node] = []
    home_of = Session.home_of

    def watched(self: Session, node: Node) -> Node | None:
        asked.append(node)
        return home_of(self, node)

    monkeypatch.setattr(Session, "home_of", watched)
    monkeypatch.setattr(memory, "home_of", lambda node: watched(SESSION, node))
    settled: list[Node] = []
    monkeypatch.setattr(Session, "_link", lambda self, node: settled.append(node))
    (w * 3.0).sum().backward()
    assert not settled
    optimizer.step()
    assert w.grad is not None
    w.grad.realize()
    assert asked
    assert not {one.node for one in others}.intersection(asked + settled)


def test_backward_settles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    w = lm.Tensor([1.0], requires_grad=True)
    loss = (w * 3.0).sum()

    def refuse(self: Session) -> None:
        raise AssertionError

    monkeypatch.setattr(Session, "settle", refuse)
    loss.backward()
    assert w.grad is not None
    assert w.grad.tolist() == [3.0]


def test_a_reader_that_is_assigned_leaves_memory_to_whoever_shares_it() -> None:
    """Assigning `x` has `y` written first, whose memory `same` has as well."""
    x, y = (lm.asarray([number]) for number in (1.0, 2.0))
    x.assign(x + y)
    same = lm.Tensor.of(y.node, y.device)
    y.assign(x + x)
    x.realize()
    assert (x.tolist(), y.tolist(), same.tolist()) == ([3.0], [6.0], [2.0])


def readers_by_a_scan(place: Node) -> set[int]:
    """What `Session.readers_of` says of `place`, by looking at every tensor."""
    readers = memory.readers_of(SESSION.tensors(), {place})
    return {id(tensor) for tensor in SESSION.tensors() if tensor.node in readers}


@settings(max_examples=60)
@given(steps=st.lists(st.tuples(*[st.integers(0, 5)] * 4), max_size=25))
def test_readers_are_those_of_a_scan(steps: list[tuple[int, int, int, int]]) -> None:
    """In programs that compute, realise, assign, drop and detach tensors, beside NumPy's values."""
    arrays = [np.full(2, float(number)) for number in range(6)]
    tensors = [lm.asarray(array, device="interp") for array in arrays]
    for what, left, right, to in steps:
        if what == 0:
            tensors[to].realize()
        elif what == 1:
            tensors[to].assign(tensors[left] + tensors[right])
            arrays[to] = arrays[left] + arrays[right]
        elif what == 2:
            tensors[to] = tensors[left].detach() * 0.5
            arrays[to] = arrays[left] * 0.5
        elif what == 3:
            tensors[to] = lm.zeros((2,), dtype=lm.float64, device="interp")
            arrays[to] = np.zeros(2)
        elif what == 4:
            tensors[to] = lm.Tensor.of(tensors[left].node, "interp")
            arrays[to] = arrays[left]
        else:
            tensors[to] = tensors[left] + tensors[right]
            arrays[to] = arrays[left] + arrays[right]
        places = {place for one in tensors if (place := memory.home_of(one.node)) is not None}
        for place in places:
            found = {id(tensor) for tensor in SESSION.readers_of([place])}
            assert found == readers_by_a_scan(place)
    for tensor, array in zip(tensors, arrays, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_the_derivative_goes_to_the_tensor_of_a_leaf_and_to_no_other() -> None:
    w = lm.Tensor([2.0], requires_grad=True)
    same = lm.Tensor.of(w.node, w.device)
    frozen = lm.Tensor.of(w.node, w.device)
    assert same.node is frozen.node is w.node
    same.requires_grad = True
    other = lm.Tensor([2.0], requires_grad=True)
    (w * frozen + same * 5.0).sum().backward()
    assert w.grad is not None
    assert same.grad is not None
    assert (w.grad.item(), same.grad.item()) == (4.0, 5.0)
    assert other.grad is None
    assert frozen.grad is None
    w.requires_grad = False
    (w + same * 3.0).sum().backward()
    assert (w.grad.item(), same.grad.item()) == (4.0, 8.0)


def test_what_is_gone_is_in_no_table() -> None:
    gc.collect()
    before = SESSION.counts()
    tensors = [(lm.ones((2,)) * float(number)).realize() for number in range(5)]
    lazy = tensors[0] + 1.0
    counts = SESSION.counts()
    assert counts["tensors"] >= before["tensors"] + 6
    assert counts["unfinished"] == before["unfinished"] + 1
    assert counts["places"] > before["places"]
    del tensors, lazy
    gc.collect()
    counts = SESSION.counts()
    assert all(counts[name] == before[name] for name in ("tensors", "unfinished", "places"))


def test_a_session_that_forgets_compiles_again() -> None:
    x = lm.asarray(np.linspace(0.0, 1.0, 37), device="cpu").realize()

    def run() -> list[str]:
        with passes() as records:
            (x * 2.0 + x).sum().realize()
        return [one.pass_.name for one in records]

    first = run()
    assert first
    assert not run()
    assert SESSION.counts()["results"] > 0
    SESSION.forget()
    assert SESSION.counts()["results"] == 0
    assert run() == first


@pytest.mark.usefixtures("on_cpu")
def test_a_program_is_counted_while_a_function_uses_it() -> None:
    gc.collect()
    before = SESSION.counts()["programs"]
    function = lm.jit(lambda x: x * 41.0)
    function(lm.ones((41,)))
    assert SESSION.counts()["programs"] == before + 1
    del function
    gc.collect()
    assert SESSION.counts()["programs"] == before


def test_every_bounded_cache_is_the_sessions() -> None:
    """A cache made by `lru_cache` alone would be one that `forget` leaves full. Those of
    `functools.cache` hold facts of the machine and tables of the package, which do not change."""
    package = Path(lm.__file__).parent
    kept_apart = {
        "core/recent.py",
        "interop/onnx/checks.py",  # texts of dtypes
        "runtime/buffer.py",  # sizes of blocks
        "runtime/cuda.py",  # what the driver makes of an array, by device
        "runtime/metal.py",  # what a program recorded, with the program
    }
    found = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if "lru_cache" in file.read_text(encoding="utf-8")
    }
    assert found == kept_apart


def test_a_reset_session_draws_the_same_numbers_and_keeps_values() -> None:
    x = lm.asarray([1.0, 2.0])
    SESSION.reset()
    first = lm.random.uniform((3,)).tolist()
    SESSION.reset()
    assert lm.random.uniform((3,)).tolist() == first
    assert (x + x).tolist() == [2.0, 4.0]


class Interrupt:
    """Raises KeyboardInterrupt in `_execute` where a handler of signals may run, which is after a
    call and at the end of a round of a loop, the `number`-th time since the program has run."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.has_run = False
        code = memory._execute.__code__
        self.checked: set[int] = set()
        checks = False
        for instruction in get_instructions(code):
            if checks:
                self.checked.add(instruction.offset)
            checks = instruction.opname.startswith(("CALL", "JUMP_BACKWARD"))

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code is not memory._execute.__code__:
            self.has_run = self.has_run or frame.f_code.co_name == "execute"
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and self.has_run and frame.f_lasti in self.checked:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        return self


@pytest.fixture
def untraced() -> Iterator[None]:
    tracer = sys.gettrace()
    yield
    sys.settrace(tracer)


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("device", ["cpu", "interp"])
def test_an_interrupt_never_makes_an_update_run_twice(device: str) -> None:
    interrupts = 0
    for number in range(40):
        arrays = [np.full(2, value) for value in (1.0, 2.0, 3.0)]
        states = [lm.asarray(array, device=device).realize() for array in arrays]
        for state in states:
            state.assign(state + 10.0)
        sys.settrace(Interrupt(number))
        try:
            lm.realize(*states)
        except KeyboardInterrupt:
            interrupts += 1
        finally:
            sys.settrace(None)
        assert [state.tolist() for state in states] == [[11.0] * 2, [12.0] * 2, [13.0] * 2], number
    assert 0 < interrupts < 40


def test_a_tensor_is_found_while_it_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As another thread asks that runs in between, which the call inside stands for."""
    y = lm.asarray([1.0, 2.0]).realize() + 1.0
    home_of = Session.home_of
    unfinished: list[set[int]] = []

    def asking(self: Session, node: Node) -> Node | None:
        if node is y.node:
            monkeypatch.setattr(Session, "home_of", home_of)
            unfinished.append({id(tensor) for tensor in self.unfinished()})
        return home_of(self, node)

    monkeypatch.setattr(Session, "home_of", asking)
    SESSION.settle()
    assert len(unfinished) == 1
    assert id(y) in unfinished[0]


def test_an_interrupt_forgets_no_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    x = lm.asarray([1.0, 2.0]).realize()
    y = x + 1.0

    def interrupted(self: Session, node: Node) -> Node | None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Session, "home_of", interrupted)
        for _ in list(SESSION.unsettled):  # whichever comes first
            with pytest.raises(KeyboardInterrupt):
                SESSION.settle()
    x.assign(0.0).realize()
    assert y.tolist() == [2.0, 3.0]


def test_a_tensor_that_changes_while_it_is_settled_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = lm.asarray([1.0, 2.0]).realize()
    node = x.node
    SESSION.unsettle(x)
    home_of = Session.home_of

    def changing(self: Session, asked: Node) -> Node | None:
        place = home_of(self, asked)
        if asked is node:
            monkeypatch.setattr(Session, "home_of", home_of)
            x.assign(x + 1.0)
        return place

    monkeypatch.setattr(Session, "home_of", changing)
    SESSION.settle()
    assert id(x) in {id(tensor) for tensor in SESSION.unfinished()}
    assert x.tolist() == [2.0, 3.0]
