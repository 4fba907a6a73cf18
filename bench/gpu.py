"""The figures of a GPU: ``python -m bench cuda``."""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.cases import Array, Group, module_of, way_of
from bench.cases.gpu import GROUPS, GpuCase
from bench.machine import commit, version
from bench.report import LAMINA, VALUE, Report, Row, Section, Target, sections_of
from bench.samples import in_turns
from bench.training import PADDED, training

DEVICE, ROUNDS = "cuda:0", 7
SETS = 2  # of the arrays that calls bound by memory take in turn, so that none finds them cached
TURN_SECONDS, MOST_CALLS = 0.03, 200
AGAIN, LIMIT = "again", "limit"
FEW_CALLS, FEW_TURNS = 4, 40  # of a round at equal clocks
INTRODUCTION = (
    "Lamina and PyTorch run in one process, in turns, on the same random data. A turn is a queue "
    "of calls that ends with a synchronisation; its time divided by the calls counts, so that "
    "what a call costs the host counts wherever the GPU waits for it. As many calls come before "
    "it untimed: the GPU's clock depends on what it computes, for some time after it did, and is "
    "to be that of the turn and not that of the turn before. A ratio is the median over "
    "the rounds of a peer's time divided by lamina's: **above 1 lamina is faster**. The noise is "
    "how far from 1 the ratio of a peer to itself was, or may well be; a ratio within it, and "
    "within 5 %, counts as 1. Each result is compared with PyTorch's in float32, and in "
    "float64 where memory is the bound and for tf32: its largest error with its largest value, "
    "and the norm of the one with the norm of the other. cuDNN measures its ways to convolve "
    "before it takes one. Training is timed peer after peer, some steps at a time. In brackets is "
    "the fastest round. Written by `python -m bench cuda`; the samples are in the JSON file beside "
    "this page."
)
Step = Callable[[], Any]
Around = Callable[[], AbstractContextManager[Any]]


def _drawn(case: GpuCase, seed: int) -> list[Any]:
    """The inputs of a case as PyTorch's arrays on the GPU."""
    import torch

    if callable(case.inputs):
        arrays = [torch.from_numpy(one).cuda() for one in case.arrays(seed)]
    else:
        random = torch.Generator("cuda").manual_seed(seed)
        arrays = [torch.randn(one, generator=random, device="cuda") for one in case.inputs]
    kind = getattr(torch, case.kind)
    return [one.to(kind) if one.is_floating_point() else one for one in arrays]


def _ours(array: Any) -> Any:
    """An array of PyTorch's as one of lamina's, on the GPU."""
    import torch

    import lamina as lm

    host = array.cpu()
    if array.dtype is not torch.bfloat16:
        return lm.asarray(host.numpy(), device=DEVICE)
    return lm.asarray(host.view(torch.int16).numpy().view(lm.bfloat16.numpy), device=DEVICE)


def _numpy(value: Any) -> list[Array]:
    """A result, or each of several, in a line of float32."""
    import lamina as lm

    parts = value if isinstance(value, (list, tuple)) else [value]
    host = (
        one.cast(lm.float32) if isinstance(one, lm.Tensor) else one.float().cpu() for one in parts
    )
    return [one.numpy().reshape(-1) for one in host]


def error_of(got: Array, want: Array) -> float:
    """The larger of two ratios: of the largest error to the largest value, and of their norms.
    NaN where a value is one."""
    apart = got - want
    norms = ((np.linalg.norm(apart, kind), np.linalg.norm(want, kind)) for kind in (np.inf, 2))
    return float(np.max([one / max(whole, 1e-30) for one, whole in norms]))


def _synchronize() -> None:
    import torch

    from lamina.runtime.buffer import heap_of

    heap_of(DEVICE).synchronize()
    torch.cuda.synchronize()


def _timed(step: Step, around: Around = nullcontext) -> Callable[[], float]:
    """A turn of `step`, within what `around` gives: the seconds of one call."""

    def queue(calls: int) -> float:
        started = time.perf_counter()
        for _ in range(calls):
            step()
        _synchronize()
        return (time.perf_counter() - started) / calls

    with around():
        queue(1)
        calls = min(max(int(TURN_SECONDS / max(queue(1), 1e-6)), 1), MOST_CALLS)

    def turn() -> float:
        with around():
            queue(calls)
            return queue(calls)

    return turn


def _at_equal_clocks(steps: dict[str, Step]) -> dict[str, list[float]]:
    """Microseconds of a call in each round, by the GPU's own clock, from turns so short that what
    the GPU has computed before, which its speed depends on, is the same for all of them."""
    from lamina.runtime.buffer import heap_of

    device: Any = heap_of(DEVICE)
    start, end = (device.call("cuEventCreate", 0) for _ in range(2))

    def turn(step: Step) -> float:
        step()
        device.call("cuEventRecord", start, device.stream)
        for _ in range(FEW_CALLS):
            step()
        device.call("cuEventRecord", end, device.stream)
        device.call("cuEventSynchronize", end)
        milliseconds: float = device.call("cuEventElapsedTime", start, end)
        return 1e3 * milliseconds / FEW_CALLS

    turns = {name: functools.partial(turn, step) for name, step in steps.items()}
    rounds = [in_turns(turns, FEW_TURNS) for _ in range(ROUNDS)]
    return {name: [median(one[name]) for one in rounds] for name in steps}


def _rotating(function: Callable[..., Any], sets: Sequence[Sequence[Any]]) -> Step:
    """Calls with each of several sets of arrays in turn."""
    steps = itertools.cycle([functools.partial(function, *one) for one in sets])
    return lambda: next(steps)()


def _torch_step(case: GpuCase, column: str, sets: list[list[Any]]) -> Step:
    import torch

    way, function = way_of(column), functools.partial(case.function(column), torch)
    if way == "channels_last":
        layout = torch.channels_last
        sets = [[one.contiguous(memory_format=layout) for one in arrays] for arrays in sets]
    if way == "compile":
        torch._dynamo.reset()  # else it stops compiling after some
        function = torch.compile(function)
    return _rotating(function, sets)


def _attention(column: str) -> Around:
    """That in which PyTorch has only the attention that `column` names, if any. It is entered once
    a turn: what that takes the host is no part of a call."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
    backend = backends.get(way_of(column))
    return functools.partial(sdpa_kernel, backend) if backend else nullcontext


def _copy(nbytes: float) -> Step:
    """Moves so many bytes, half of them read and half written."""
    import torch

    bytes_of = functools.partial(torch.randint, 256, dtype=torch.uint8, device="cuda")
    sources = [bytes_of((int(nbytes) // 2,)) for _ in range(SETS)]
    target = torch.empty_like(sources[0])
    return _rotating(target.copy_, [[one] for one in sources])


def _rows(case: GpuCase, seed: int, notes: list[str]) -> Iterator[Row]:
    import torch

    import lamina as lm

    def laid(array: Any) -> Any:
        return array.movedim(1, -1).contiguous() if case.channels_last else array

    def own(column: str, given: list[list[Any]]) -> tuple[Any, list[list[Any]]]:
        function = lm.jit(functools.partial(case.function(column), lm))
        return function, [[_ours(one) for one in arrays] for arrays in given]

    copies = bool(case.bound) and case.bound[0] == "copy"
    sets = [_drawn(case, seed + at) for at in range(SETS if copies else 1)]
    program, ours = own(LAMINA, [[laid(one) for one in arrays] for arrays in sets])
    steps: dict[str, Step] = {LAMINA: _rotating(program, ours)}
    for column in case.columns:
        lamina = module_of(column) == LAMINA
        steps[column] = _rotating(*own(column, sets)) if lamina else _torch_step(case, column, sets)
    turns: dict[str, Callable[[], float]] = {}
    for column, step in steps.items():
        try:
            turns[column] = _timed(step, _attention(column))
        except Exception as error:
            notes.append(f"{case.name}: {column}: {str(error).splitlines()[0]}")
    if case.columns[0] in turns:
        turns[AGAIN] = turns[case.columns[0]]
    if case.bound and case.bound[0] == "copy":
        turns[LIMIT] = _timed(_copy(case.bound[1]))
    samples = {name: [1e6 * one for one in values]
               for name, values in in_turns(turns, ROUNDS).items()}  # fmt: skip
    again, bound = samples.pop(AGAIN, None), samples.pop(LIMIT, ())
    if LAMINA in samples:
        # A sum of numbers of both signs is far smaller than what float32 rounds on the way.
        wide = torch.float64 if copies or case.tf32 else torch.float32
        exact = [one.to(wide) if one.is_floating_point() else one for one in sets[0]]
        want = _numpy(laid(case.function("torch")(torch, *exact)))
        got = _numpy(program(*ours[0]))
        error = np.max([error_of(*pair) for pair in zip(got, want, strict=True)])
        if not error <= case.tolerance:
            notes.append(f"{case.name}: lamina's result is **wrong** by {error:.1g}.")
    itself = (samples[case.columns[0]], again) if again else None
    if case.bound and case.bound[0] == "fma" and LAMINA in samples:
        rate = case.bound[1] / median(samples[LAMINA]) * 1e-6
        notes.append(f"{case.name}: {rate:.0f} TFLOP/s.")
    yield Row(case.name, samples, "us", case.targets, itself, bound)
    if case.equal_clocks:
        mine = {name: step for name, step in steps.items() if module_of(name) == LAMINA}
        mine[AGAIN] = steps[case.equal_clocks]
        samples = _at_equal_clocks(mine)
        itself = samples[case.equal_clocks], samples.pop(AGAIN)
        targets = tuple(one for one in case.targets if one.of == case.equal_clocks)
        yield Row(f"{case.name}, at equal clocks", samples, "us", targets, itself)


def _section(group: Group, seed: int) -> Section:
    import torch

    from lamina.core import options

    section = Section(group.title, group.columns(), notes=list(group.notes))
    for case in group.cases:
        assert isinstance(case, GpuCase)
        torch.backends.cuda.matmul.allow_tf32 = case.tf32
        with options.using(tf32=case.tf32):
            rows = list(_rows(case, seed, section.notes))
        section.rows += rows
        for row in rows:
            print("  " + " | ".join(row.cells(group.columns())), file=sys.stderr, flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    return section


def _launches(seed: int) -> Section:
    """What many small kernels cost, all in all and the host alone."""
    import torch

    import lamina as lm

    def many(x: Any) -> Any:
        for _ in range(500):
            x = x * 0.5 + x.sum(0) * (0.5 / 64)
            x = x * 0.5 + x.sum(1)[:, None] * (0.5 / 64)
        return x

    array = torch.randn(64, 64, generator=torch.Generator("cuda").manual_seed(seed), device="cuda")
    step, peer = functools.partial(lm.jit(many), _ours(array)), functools.partial(many, array)

    def host() -> float:
        _synchronize()
        started = time.perf_counter()
        step()
        return time.perf_counter() - started

    turns = {LAMINA: _timed(step), "torch": _timed(peer)}
    rows = [
        Row("1,000 kernels of 4,096 elements", _micro(in_turns(turns, ROUNDS)), "us"),
        Row("of which the host needs for each", {LAMINA: [1e3 * host() for _ in range(ROUNDS)]},
            "us", (Target(1.0, VALUE),)),
    ]  # fmt: skip
    return Section("Many small kernels", ("torch",), rows)


def _micro(samples: dict[str, list[float]]) -> dict[str, list[float]]:
    return {name: [1e6 * one for one in values] for name, values in samples.items()}


SECTIONS: dict[str, Callable[[int], Section]] = {
    "launches": _launches,
    "training": lambda seed: training(seed, DEVICE),
    "padded": lambda seed: training(seed, DEVICE, PADDED),
    **{name: functools.partial(_section, group) for name, group in GROUPS.items()},
}


def run(output: Path | None, only: Sequence[str] = (), seed: int | None = None) -> str:
    """Measure everything, or the sections named in `only`; returns the page, which is written to
    `output`, unless that is None, with the raw numbers beside it after each section. With `only`
    the other sections of a page that is there are kept."""
    import torch

    from lamina.runtime.buffer import heap_of

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    seed = time.time_ns() % 2**32 if seed is None else seed
    facts = {
        "commit": commit(), "GPU": str(heap_of(DEVICE)), "torch": torch.__version__,
        "CUDA of torch": str(torch.version.cuda), "triton": version("triton") or "not installed",
        "cuda-bindings": importlib.metadata.version("cuda-bindings"), "seed": str(seed),
    }  # fmt: skip
    page = facts["GPU"].partition(",")[0].split()[-1].lower()
    report = Report("lamina on a GPU", INTRODUCTION)
    if only and output is not None:
        report.sections = sections_of(output, page)
    for name in only or SECTIONS:
        started = time.monotonic()
        print(f"{name}:", file=sys.stderr)
        section = SECTIONS[name](seed)
        section.facts = facts
        report.put(section)
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        if output is not None:
            report.write(output, page)
    return report.markdown()
