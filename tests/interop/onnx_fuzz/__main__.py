"""Many mutations, in processes of bounded memory, which a crash or a long run ends."""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import resource
import signal
import sys
import tempfile
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

from lamina.interop.onnx import load
from tests.interop.onnx_fuzz.check import FuzzError, outcome_of, prepare, small_limits
from tests.interop.onnx_fuzz.models import Sample, samples

_MEMORY = 4 << 30  # bytes of address space for a process
_SILENCE = 600  # seconds of the clock, however busy the machine is


def _cases(with_nodes: bool) -> list[Sample]:
    """The models here, and a sixth of those that come with ONNX."""
    found = samples()
    if with_nodes:
        from tests.interop.onnx_nodes import as_array, cases_of

        for case in cases_of("node")[::6]:
            if case.model is not None and len(case.model.SerializeToString()) < 100_000:
                inputs = case.data_sets[0][0]
                found.append(Sample(case.model, [as_array(value) for value in inputs]))
    return found


def _work(
    pipe: Connection, first: int, last: int, seconds: float, with_nodes: bool
) -> None:
    """Says each seed before it is run, and what came of it. A signal ends the process where a
    seed takes more seconds of the processor."""
    cases = _cases(with_nodes)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    faulthandler.enable()
    with tempfile.TemporaryDirectory() as folder, small_limits():
        inner = prepare(Path(folder))
        load(cases[0].model)(*cases[0].arguments)  # imports the rows
        for seed in range(first, last):
            pipe.send((seed, None))
            signal.setitimer(signal.ITIMER_PROF, seconds)
            try:
                pipe.send((seed, outcome_of(cases, seed, inner).kind))
            except FuzzError as error:
                pipe.send((seed, f"FAILS {error}"[:1500]))
    pipe.send((last, "end"))


def _run(first: int, last: int, seconds: float, with_nodes: bool) -> Counter[str]:
    """The number of seeds for each kind of outcome; those that fail are printed."""
    counts: Counter[str] = Counter()
    while first < last:
        here, there = multiprocessing.Pipe(duplex=False)
        worker = multiprocessing.Process(
            target=_work, args=(there, first, last, seconds, with_nodes)
        )
        worker.start()
        there.close()
        first = _listen(here, worker, first, last, counts)
    return counts


def _listen(
    pipe: Connection, worker: multiprocessing.process.BaseProcess, first: int, last: int,
    counts: Counter[str],
) -> int:  # fmt: skip
    """The seed to go on with once the process has ended."""
    seed = first
    while True:
        failure = ""
        try:
            if pipe.poll(_SILENCE):
                seed, outcome = pipe.recv()
            else:
                failure = f"it said nothing for {_SILENCE} s"
        except EOFError:
            worker.join()
            failure = f"exit status {worker.exitcode}"  # -27 where it took too long
        if failure:
            worker.kill()
            worker.join()
            counts["FAILS"] += 1
            print(f"seed {seed}: {failure}", flush=True)
            return seed + 1
        if outcome == "end":
            worker.join()
            return last
        if outcome is not None:
            counts[outcome.split()[0]] += 1
            if outcome.startswith("FAILS"):
                print(outcome, flush=True)
            if sum(counts.values()) % 500 == 0:
                print(dict(counts), flush=True)


def main() -> int:
    """1 if a mutation did what no file should do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seconds", type=float, default=10, help="of the processor, "
                        "for a mutation")  # fmt: skip
    parser.add_argument("--nodes", action="store_true", help="mutate ONNX's own tests too")
    options = parser.parse_args()
    counts = _run(options.seed, options.seed + options.count, options.seconds, options.nodes)
    print(f"{options.count} mutations: {dict(counts)}")
    return int(counts["FAILS"] > 0)


if __name__ == "__main__":
    sys.exit(main())
