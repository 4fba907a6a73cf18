"""One run of the benchmarks: what takes part, in which environment, and the taking of turns."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.cases import module_of
from bench.machine import ROOT, version
from bench.report import LAMINA
from bench.samples import in_turns
from bench.worker import ProgramError
from lamina.runtime.cpu import usable_cores

PEERS = ("numpy", "torch", "jax", "tinygrad", "onnxruntime")


def default_threads(quick: bool) -> list[int]:
    """All cores, and one."""
    cores = usable_cores()
    return [cores] if quick or cores == 1 else [cores, 1]


@dataclass
class Bench:
    """One run: the folder for everything temporary, the seed, what is installed, how thorough."""

    folder: Path
    seed: int
    quick: bool
    clang: str | None
    threads: Sequence[int] = (1,)  # targets are for the first of these numbers
    most_rounds: int | None = None
    failures: list[str] = field(default_factory=list)
    order: random.Random = field(init=False)  # of the turns

    def __post_init__(self) -> None:
        self.order = random.Random(self.seed)

    def rounds(self, normal: int, quick: int) -> int:
        """How often to measure."""
        rounds = quick if self.quick else normal
        return rounds if self.most_rounds is None else min(rounds, self.most_rounds)

    def scaled(self, seconds: float) -> float:
        """How long to measure what usually takes `seconds`."""
        return seconds / 2 if self.quick else seconds

    def installed(self, *columns: str) -> list[str]:
        """Those of `columns` that can be measured here. A quick run compiles nothing of peers
        whose compilers take seconds."""
        slow = ("torch.compile", "tinygrad", "onnxruntime") if self.quick else ()
        return [
            column
            for column in columns
            if column not in slow and (module := module_of(column)) in self.frameworks(module)
        ]

    def frameworks(self, *names: str) -> list[str]:
        """Those of `names` that can be measured here, lamina first."""
        return [
            name
            for name in dict.fromkeys((LAMINA, *names))
            if name == LAMINA
            or (version(name) is not None and (name != "tinygrad" or self.clang is not None))
        ]

    def environment(self, cache: Path, threads: int = 0, **more: str) -> dict[str, str]:
        """The variables of a program whose compiled kernels are kept in `cache`, and of one that
        is to use so many threads (0: all)."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("LAMINA_")}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        searched = (str(ROOT), kept.get("PYTHONPATH"))
        kept["PYTHONPATH"] = os.pathsep.join(path for path in searched if path)
        kept["LAMINA_CACHE_DIR"] = str(cache / "lamina")
        kept["CACHEDB"] = str(cache / "tinygrad" / "cache.db")
        kept["TORCHINDUCTOR_CACHE_DIR"] = str(cache / "inductor")
        kept["JAX_PLATFORMS"] = "cpu"
        if self.clang is not None:
            kept["CC"] = self.clang
        if not kept.get("CC"):  # Triton runs what CC names, and an empty CC names no program
            kept.pop("CC", None)
        if threads:
            for name in ("LAMINA_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "CPU_COUNT"):
                kept[name] = str(threads)
        return kept | more

    def new_cache(self) -> Path:
        """An empty folder."""
        return Path(tempfile.mkdtemp(dir=self.folder, prefix="cache-"))

    @contextlib.contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Turn a program's failure into a note of the report."""
        try:
            yield
        except ProgramError as error:
            self.failures.append(f"{what}: {error}")
            print(f"  {what}: {error}", file=sys.stderr)


def take_turns(
    bench: Bench, what: str, functions: Mapping[str, Callable[[], Any]], rounds: int
) -> dict[str, list[Any]]:
    """`in_turns` of programs that may fail, in a random order; one that does is noted and left
    out."""
    working = dict(functions)
    failed: set[str] = set()

    def guarded(name: str) -> Callable[[], Any]:
        def call() -> Any:
            if name not in failed:
                with bench.noting(f"{what}, {name}"):
                    return working[name]()
                failed.add(name)
            return None

        return call

    results = in_turns({name: guarded(name) for name in working}, rounds, bench.order)
    return {name: values for name, values in results.items() if name not in failed}
