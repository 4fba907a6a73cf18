"""Text generation beside llama.cpp: tokens a second of single texts, and the time to a first token.

    python -m bench.text smollm2 q4_0.gguf q8_0.gguf --output bench/results

A model is a GGUF file, or the name of a published model. llama.cpp runs through two packages, where
these are installed: a wheel of xllamacpp, which is for processors with AVX2, and llama-cpp-python
for the processor that it runs on, with AVX-512 and AMX if this has them, where it was built there:
``pip install --no-binary llama-cpp-python llama-cpp-python``.

Each library and each number of threads has a process of its own; these take turns, and all but one
are stopped. A turn reads a new prompt of 512 tokens, then writes 1 and 65 tokens after a short one;
the difference of the last two is 64 tokens. Figures are medians over the rounds, of processor time
with one thread and of wall-clock time with more.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench import machine
from lamina.models.fetch import find

PROMPT, TOKENS = 512, 64  # tokens that are read, and written
SHORT = 16  # tokens of the prompt of what is written
FIRST_ID, LAST_ID = 1000, 40000  # token numbers that prompts are drawn from: plain words
LIBRARIES = {
    "lamina": None, "lamina, rounded": None, "llama.cpp": "xllamacpp",
    "llama.cpp, native": "llama-cpp-python",
}  # fmt: skip
RATIOS = [
    (ours, peer)
    for peer in ("llama.cpp", "llama.cpp, native") for ours in ("lamina", "lamina, rounded")
]  # fmt: skip

Generate = Callable[[list[int], int], Any]


@dataclass(frozen=True)
class Spent:
    """Seconds of a turn: wall, and processor time of the process."""

    wall: float
    cpu: float


# In the process of one library.


def serve(library: str, path: str, threads: int) -> None:
    """Answer each line on the standard input, a seed, with what the turn of that seed took."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a library may write to the standard output
    makers = {"llama.cpp": _llama, "llama.cpp, native": _native_llama}
    generate = makers.get(library, _lamina)(path, threads, library)
    for line in sys.stdin:
        spent = _turn(generate, int(line))
        answer = json.dumps({name: vars(one) for name, one in spent.items()})
        print(answer, file=answers, flush=True)


def _turn(generate: Generate, seed: int) -> dict[str, Spent]:
    draw = random.Random(seed)
    prompts = [[draw.randint(FIRST_ID, LAST_ID) for _ in range(n)] for n in (PROMPT, SHORT, SHORT)]
    read = _spent(generate, prompts[0], 1)
    one, many = _spent(generate, prompts[1], 1), _spent(generate, prompts[2], 1 + TOKENS)
    return {"read": read, "written": Spent(many.wall - one.wall, many.cpu - one.cpu)}


def _spent(generate: Generate, prompt: list[int], tokens: int) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    generate(prompt, tokens)
    return Spent(time.perf_counter() - wall, time.process_time() - cpu)


def _lamina(path: str, threads: int, library: str) -> Generate:
    import lamina
    from lamina import models
    from lamina.models.generate import Generator

    lamina.set_options(threads=threads)
    model = models.load(path, round_activations="rounded" in library)
    # What `lamina generate` takes for texts of these lengths.
    generators = {size: Generator(model.writer, size, model.device) for size in (256, 1024)}

    def generate(prompt: list[int], tokens: int) -> Any:
        fitting = min(size for size in generators if size >= len(prompt) + tokens)
        return list(generators[fitting].tokens(prompt, tokens))

    return generate


def _llama(path: str, threads: int, library: str) -> Generate:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = path
    parameters.n_ctx, parameters.n_parallel = 1024, 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(parameters)

    def generate(prompt: list[int], tokens: int) -> Any:
        asked = {"prompt": prompt, "max_tokens": tokens, "n_predict": tokens, "temperature": 0,
                 "ignore_eos": True, "cache_prompt": False}  # fmt: skip
        return server.handle_completions(asked)

    return generate


def _native_llama(path: str, threads: int, library: str) -> Generate:
    import llama_cpp
    import numpy as np

    model = llama_cpp.Llama(
        path, n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False
    )

    def generate(prompt: list[int], tokens: int) -> Any:
        model.reset()
        model.eval(prompt)
        for _ in range(tokens - 1):
            logits = llama_cpp.llama_get_logits_ith(model.ctx, -1)
            model.eval([int(np.ctypeslib.as_array(logits, (model.n_vocab(),)).argmax())])

    return generate


# In the process that measures.


class Turns:
    """The process of one library, which runs in its turns alone."""

    def __init__(self, library: str, path: str, threads: int) -> None:
        command = [sys.executable, "-m", "bench.text", "--serve", library, path, str(threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, start_new_session=True,
        )  # fmt: skip
        self.turn(1)

    def turn(self, seed: int) -> dict[str, Spent]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        os.killpg(self._process.pid, signal.SIGCONT)
        self._process.stdin.write(f"{seed}\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        os.killpg(self._process.pid, signal.SIGSTOP)
        return {name: Spent(**one) for name, one in answer.items()}

    def end(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def rates(
    path: str, threads: int, rounds: int, seed: int, libraries: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """Tokens a second that each of the `libraries` read and wrote in each round."""
    with contextlib.ExitStack() as stack:
        turns = {}
        for library in libraries:
            turns[library] = Turns(library, path, threads)
            stack.callback(turns[library].end)
        found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        draw = random.Random(seed)
        for _ in range(rounds):
            this_round = draw.randint(2, 1 << 30)
            for library in draw.sample(libraries, len(libraries)):
                for name, spent in turns[library].turn(this_round).items():
                    seconds = spent.cpu if threads == 1 else spent.wall
                    found[library][name].append((PROMPT if name == "read" else TOKENS) / seconds)
        return found


def first_token(model: str, cache: str, modules: str) -> Spent:
    """From the start of ``lamina generate`` to its first character, with programs in the folder
    `cache`, and in `modules` what Python keeps of modules, as it does for an installed package."""
    run = "from lamina.cli import main; main()"
    command = [sys.executable, "-c", run, "generate", model, "hi", "--max-tokens", "1"]
    environment = {**os.environ, "LAMINA_CACHE_DIR": cache, "PYTHONPYCACHEPREFIX": modules}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    assert process.stdout is not None
    process.stdout.read(1)
    wall = time.perf_counter() - started
    process.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Spent(wall, cpu)


def installed() -> list[str]:
    """The libraries that can be measured here."""
    return [name for name, package in LIBRARIES.items() if not package or machine.version(package)]


def page(options: argparse.Namespace) -> Iterator[str]:
    models, rounds, seed = options.models, options.rounds, options.seed
    yield from (
        "# Text generation on a CPU", "",
        "Written by `python -m bench.text`, which says how it measures. Figures are medians of "
        f"{rounds} rounds, the fastest in brackets. A ratio is the median over the rounds of "
        "lamina's tokens a second divided by those of a build of llama.cpp.", "",
        "| | |", "| --- | --- |",
        f"| commit | {machine.commit()} |",
        f"| date | {datetime.now(UTC):%Y-%m-%d %H:%M} UTC |",
        f"| CPU | {machine.cpu_model()} |",
        f"| cores | {machine.usable_cores()} |",
        f"| load at the start | {os.getloadavg()[0]:.1f} |",
        *(
            f"| {library} | {package} {machine.version(package) or 'not installed'} |"
            for library, package in LIBRARIES.items() if package
        ),
        f"| seed | {seed} |", "",
        f"| model | threads | | {' | '.join([*LIBRARIES, *map(' / '.join, RATIOS)])} |",
        "| --- " * (3 + len(LIBRARIES) + len(RATIOS)) + "|",
    )  # fmt: skip
    for model in models:
        for count in options.threads:
            found = rates(str(find(model)), count, rounds, seed, options.libraries)
            for name, what in (("written", "tokens/s"), ("read", f"tokens/s of {PROMPT} read")):
                cells = [_cell(found[library][name]) for library in LIBRARIES]
                ratios = [_ratio(found[ours][name], found[peer][name]) for ours, peer in RATIOS]
                yield f"| {Path(model).name} | {count} | {what} | {' | '.join(cells + ratios)} |"
    yield ""
    with tempfile.TemporaryDirectory() as folder:
        path, modules = str(find(models[0])), f"{folder}/modules"
        first_token(path, f"{folder}/first", modules)  # fills `modules`
        cold = first_token(path, f"{folder}/cache", modules)
        warm = [first_token(path, f"{folder}/cache", modules) for _ in range(rounds)]
    yield (
        f"The first token of `lamina generate {Path(models[0]).name}`, from the start of the "
        f"process: {cold.wall:.2f} s with an empty cache ({cold.cpu:.2f} s of processor time), "
        f"{median(one.wall for one in warm):.2f} s with programs in it "
        f"({median(one.cpu for one in warm):.2f} s)."
    )


def _cell(values: Sequence[float]) -> str:
    return f"{median(values):.3g} ({max(values):.3g})" if values else "-"


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=False)]
    return f"{median(ratios):.2f}" if ratios else "-"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.text", description=__doc__)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, machine.usable_cores()])
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--output", type=Path, help="a folder for cpu_text.md too")
    parser.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=installed())
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        library, path, threads = options.serve
        serve(library, path, int(threads))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends the processes that it has
    lines = []
    for line in page(options):
        lines.append(line)
        print(line, flush=True)  # as soon as it is known: a machine may not stay quiet
    if options.output:
        text = "\n".join(lines) + "\n"
        (options.output / "cpu_text.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
