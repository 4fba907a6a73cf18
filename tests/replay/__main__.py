"""Record the generated text of every program, or compare it with a record."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from pathlib import Path
from typing import Any

from tests.replay.programs import programs
from tests.replay.text import record, rename

SHOWN_LINES = 40


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--shown", type=int, default=3, help="differences to print")
    parser.add_argument("--helpers", action="store_true", help="compare the helper functions too")
    parser.add_argument(
        "--renamed", default="", help="old=new,...: identifiers of the record that were renamed"
    )
    options = parser.parse_args()
    texts = {}
    for name, program in programs():
        if options.only in name:
            texts[name] = _attempt(program)
    if options.action == "record":
        options.file.write_text(json.dumps(texts, indent=0), encoding="utf-8")
        print(f"{len(texts)} programs recorded, {_failures(texts)} of which do not compile")
        return 0
    names = dict(pair.split("=") for pair in options.renamed.split(",") if pair)
    before = json.loads(options.file.read_text(encoding="utf-8"))
    return _compare(before, texts, names, options)


def _attempt(program: Any) -> dict[str, Any]:
    """The record of a program; an error in its place."""
    try:
        return record(program())
    except Exception as error:  # any failure is a difference, not the end of the comparison
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}


def _failures(texts: dict[str, Any]) -> int:
    return sum("error" in text for text in texts.values())


def _compare(
    before: dict[str, Any], after: dict[str, Any], names: dict[str, str], options: Any
) -> int:
    ignored = () if options.helpers else ("helpers",)
    different = []
    for name, text in after.items():
        old = rename(before.get(name, {"error": "not recorded"}), names)
        parts = [part for part in old.keys() | text.keys() if part not in ignored]
        if any(old.get(part) != text.get(part) for part in parts):
            different.append(name)
            if len(different) <= options.shown:
                _show(name, old, text, ignored)
    print(f"{len(after) - len(different)} of {len(after)} programs have equal text")
    for name in different:
        print(f"  differs: {name}")
    return 1 if different else 0


def _show(name: str, old: dict[str, Any], new: dict[str, Any], ignored: tuple[str, ...]) -> None:
    def lines(value: dict[str, Any]) -> list[str]:
        kept = {part: text for part, text in value.items() if part not in ignored}
        return [
            line
            for text in kept.values()
            for kernel in (text if isinstance(text, list) else [text])
            for line in kernel.splitlines()
        ]

    found = list(difflib.unified_diff(lines(old), lines(new), name, "now", lineterm="", n=2))
    print("\n".join(found[:SHOWN_LINES]), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
