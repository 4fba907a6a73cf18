"""A process from its start to its first result.

Arguments: the column, the seed, a group of `bench.cases`, a case, and the bytes of memory that it
may take (0: all). Prints when the result was there, the seconds that making the data took, and
the memory: before the computation, and at most.
"""

from __future__ import annotations

import resource
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.cases import load, module_of
from bench.programs.frameworks import framework
from bench.programs.protocol import emit

STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def memory(field: str) -> int | None:
    """Bytes of VmRSS, or of VmHWM, its maximum; None where the system does not say."""
    if not STATUS.exists():
        return None
    lines = dict(line.split(":", 1) for line in STATUS.read_text(encoding="utf-8").splitlines())
    return int(lines[field].split()[0]) * 1024


def of_lamina(facts: dict[str, Any]) -> Any:
    """Watches the compiler: fills `facts` with what its parts took. Returns a context manager."""
    from lamina.runtime import compiler, profile

    run = compiler.run
    facts["compiler"] = 0.0

    def timed(*arguments: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return run(*arguments, **options)
        finally:
            facts["compiler"] += time.perf_counter() - started

    compiler.run = timed
    return profile.passes()


def main(column: str, seed: str, group: str, name: str, limit: str) -> None:
    """Run the case once."""
    if int(limit):
        resource.setrlimit(resource.RLIMIT_AS, (int(limit),) * 2)
    own = framework(module_of(column), 0)
    facts: dict[str, Any] = {}
    started = time.perf_counter()
    case = load(group).case(name)
    values = case.arrays(int(seed))
    facts["loading"] = time.perf_counter() - started
    arrays = [own.array(one) for one in values]
    del values
    before = memory("VmRSS")
    if before:
        FORGET.write_text("5", encoding="ascii")  # VmHWM starts anew
    step = own.step(case, arrays, column)
    if column.startswith("lamina"):
        with of_lamina(facts) as record:
            own.results(step())
        passes: dict[str, float] = defaultdict(float)
        for one in record:
            passes[one.pass_.name] += one.seconds
        facts["passes"] = passes
    else:
        own.results(step())
    facts["ended"] = time.time()
    facts["kernels"] = own.kernels()
    if before:
        facts |= {"before": before, "peak": memory("VmHWM")}
    emit(**facts)


main(*sys.argv[1:])
