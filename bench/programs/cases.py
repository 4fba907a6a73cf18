"""Runs the cases of `bench.cases` in one framework.

Arguments: the framework, the seed, the number of threads (0: all), a folder for results. Each
line that it reads is a JSON list: ["case", group, name, columns] prepares a case for the columns
of this framework, ["time", column, seconds, turns] measures, ["drop"] forgets.
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.cases import REFERENCE, Array, load
from bench.programs.frameworks import framework
from bench.programs.protocol import clock, emit, fastest, repeated

_SAMPLE = 1 << 20  # elements of a result that are compared
_FIRST_CALLS = 3  # before the result that is compared

own = framework(sys.argv[1], int(sys.argv[3]))
seed, folder = int(sys.argv[2]), Path(sys.argv[4])
now = clock(int(sys.argv[3]))
programs: dict[str, Callable[[], Any]] = {}


def prepare(group: str, name: str, columns: list[str]) -> dict[str, Any]:
    """Compile a case for each column and write its results; returns what went wrong, and the
    number of kernels of the last run where it is known."""
    programs.clear()
    gc.collect()
    case = load(group).case(name)
    arrays = [own.array(one) for one in case.arrays(seed)]
    errors = {}
    kernels = None
    for column in columns:
        try:
            step = own.step(case, arrays, column)
            # Some compile on a later call than the first.
            for _ in range(1 if column == REFERENCE and not case.makes_step else _FIRST_CALLS):
                before = own.kernels()
                value = step()
                kernels = own.kernels() - before
            values = [sampled(one) for one in own.results(value)]
            np.savez(folder / f"{column}.npz", *values)
        except Exception as error:
            errors[column] = (str(error).strip() or repr(error)).splitlines()[0][:200]
            continue
        programs[column] = step
    return {"errors": errors, "kernels": kernels}


def sampled(values: Array) -> Array:
    """Elements of `values` at places that every framework draws alike."""
    flat = values.reshape(-1)
    if flat.size <= _SAMPLE:
        return flat
    return flat[np.random.default_rng([seed, flat.size]).integers(0, flat.size, _SAMPLE)]


emit(ready=True)
for line in sys.stdin:
    command, *words = json.loads(line)
    if command == "case":
        emit(**prepare(*words))
    elif command == "time":
        column, seconds, turns = words
        run = repeated(programs[column])
        emit(seconds=[fastest(run, now, seconds) for _ in range(turns)])
    else:
        programs.clear()
        gc.collect()
        emit(dropped=True)
