"""``python -m tests.interop.zoo [NAME ...]``: each model in a process of its own.

Outcomes are kept in a JSON file, so that a run goes on where the last one stopped; models that are
named are run again. Needs timm, torchvision and transformers; weights are random.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.interop.zoo.check import Outcome
from tests.interop.zoo.table import MODELS, REMARKS

_MEMORY = 12 << 30  # bytes of address space for a model


def _run(name: str, seconds: int) -> Outcome:
    command = [sys.executable, "-m", "tests.interop.zoo.check", name]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY)),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Outcome(name, error=f"not done in {seconds} s")
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:]
        return Outcome(name, error=f"exit status {done.returncode}: {''.join(last)[:200]}")
    fields = json.loads(done.stdout.splitlines()[-1])
    return Outcome(**{**fields, "left": tuple(fields["left"])})


def page(outcomes: Sequence[Outcome]) -> str:
    """A Markdown table and its counts."""
    library = {model.name: model.library for model in MODELS}
    equal = [one for one in outcomes if one.forward and one.training]
    whole = [one for one in equal if not one.left]
    lines = [
        "# Architectures through `torch.compile(model, backend=\"lamina\")`", "",
        f"{len(outcomes)} models with random weights: {len(equal)} equal eager PyTorch in their "
        f"results and in a training step, {len(whole)} of these with no operation left to "
        "PyTorch. Made by `python -m tests.interop.zoo`, whose docstrings say what equal means.",
        "", "| model | library | results | training | graphs | programs | kernels | remarks |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for one in outcomes:
        remarks = one.error or "; ".join((*one.left, REMARKS.get(one.name, ""))).strip("; ")
        words = ["equal" if is_equal else "no" for is_equal in (one.forward, one.training)]
        numbers = [str(number) for number in (one.graphs, one.programs, one.kernels)]
        cells = [one.name, library[one.name], *words, *numbers, remarks.replace("|", "/")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models; those without an outcome by default")
    parser.add_argument("--seconds", type=int, default=300, help="limit for a model")
    parser.add_argument("--results", type=Path, default=Path("bench/results/zoo.json"))
    parser.add_argument("--markdown", type=Path, help="write the page of all outcomes there")
    options = parser.parse_args()
    outcomes: dict[str, Outcome] = {}
    if options.results.exists():
        known = json.loads(options.results.read_text())
        outcomes = {one["name"]: Outcome(**{**one, "left": tuple(one["left"])}) for one in known}
    for name in options.names or [one.name for one in MODELS if one.name not in outcomes]:
        outcomes[name] = _run(name, options.seconds)
        print(outcomes[name], flush=True)
        rows = [asdict(outcomes[model.name]) for model in MODELS if model.name in outcomes]
        options.results.write_text(json.dumps(rows, indent=1) + "\n")
    if options.markdown:
        listed = [outcomes[model.name] for model in MODELS if model.name in outcomes]
        options.markdown.write_text(page(listed))


if __name__ == "__main__":
    main()
