"""Programs on disk: what a later process needs to run one without the passes.

The passes take seconds for a network of 30 layers, and give the same text in each process; to
import them takes a quarter of a second. The disk cache of compiled code has a file of JSON for each
program: its text, the places of its results, and of a GPU's program its launches. Its name is a
digest of the graph, the options, the facts of the device, and the folder of the compiler. A digest
of the compiler's files is inside: an edited compiler writes its programs over those of before.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from lamina.core.dtypes import BY_NAME
from lamina.core.options import Options
from lamina.core.recent import memoized
from lamina.core.target import Target
from lamina.errors import DeviceError
from lamina.fuse.launch import Program, Slot
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.ir.text import Names, line_of, to_text
from lamina.runtime.buffer import Launch, TensorMap
from lamina.runtime.cache import digest
from lamina.runtime.cpu import disk_cache
from lamina.runtime.source import Source

__all__ = [
    "StoredProgram", "compiler", "find_name", "key_of", "load", "parts_of", "read", "store",
    "store_name",
]  # fmt: skip

# The folder of the compiler.
_PACKAGE = os.path.dirname(__file__)


@dataclass(frozen=True)
class StoredProgram:
    """A program, its text, and how a GPU launches its kernels; the text of a CPU's calls them. Of
    one that was read, steps are known by their number alone: they have no kernels. `once`: the same
    of the program that makes what this one keeps."""

    program: Program
    source: Source
    launches: tuple[Launch, ...] = ()
    once: StoredProgram | None = None


def key_of(sinks: Sequence[Node], options: Options, target: Target) -> str | None:
    """The name of the program of `sinks`; None of a graph with collectives, as a file does not hold
    what they exchange, and where options ask for what the passes show, or for a search, which
    measures."""
    if options.debug or options.check or options.search:
        return None
    if any(node.op in Group.COLLECTIVE for node in toposort(sinks)):
        return None
    return digest(to_text(sinks, _line_of), repr(options), target.facts, _PACKAGE)


def _line_of(node: Node, names: Names) -> str:
    """The line of a node; a CALL has the digest of its graph."""
    if node.op is not Op.CALL:
        return line_of(node, names)
    return f"{names[node]} = {_digest_of(node.arg)} {[names[operand] for operand in node.src]}"


@memoized(2048)
def _digest_of(graph: Node) -> str:
    return digest(to_text([graph], _line_of))


def find_name(key: str, options: Options) -> str | None:
    """The name that `store_name` noted for a graph of the name `key`."""
    name = _content(f"{key}.name", options)
    return name if isinstance(name, str) else None


def store_name(key: str, name: str, options: Options) -> None:
    """Note that the program of the graph that is called `key` is the one called `name`."""
    _write(f"{key}.name", name, options)


def load(key: str, options: Options) -> StoredProgram | None:
    """The program of that name; None where there is none, or its file is damaged."""
    parts = _content(f"{key}.json", options)
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
        return None if parts is None else read(parts)
    return None


def store(key: str, stored: StoredProgram, options: Options) -> None:
    """Write the file of a program, if there is room for it."""
    _write(f"{key}.json", parts_of(stored), options)


def _content(file: str, options: Options) -> Any:
    """What this compiler wrote to a file; None where it wrote nothing, or the file is damaged."""
    path = disk_cache(options).load(file)
    if path is None:
        return None
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        written = json.loads(path.read_bytes())
        return written["content"] if written["compiler"] == compiler() else None
    return None


def _write(file: str, content: Any, options: Options) -> None:
    """Write a file, which only saves time: where no folder takes it, a warning was given, and this
    process has the program."""
    written = {"compiler": compiler(), "content": content}
    with contextlib.suppress(DeviceError):
        disk_cache(options).store(file, json.dumps(written).encode())


def parts_of(stored: StoredProgram) -> dict[str, Any]:
    """A program as numbers, texts, lists and mappings."""
    program, source = stored.program, stored.source
    return {
        "steps": len(program.steps),
        "outputs": [[one.kind, one.number, one.dtype.name, one.size, one.offset]
                    for one in program.outputs],
        "arena": program.arena,
        "block": program.block,
        "prelude": source.prelude,
        "kernels": dict(source.kernels),
        "entry": source.entry,
        "launches": [_parts_of_launch(launch) for launch in stored.launches],
        "once": None if stored.once is None else parts_of(stored.once),
    }  # fmt: skip


def read(parts: Any) -> StoredProgram:
    """The program that `parts_of` was given."""
    outputs = tuple(
        Slot(kind, number, BY_NAME[dtype], size, offset)
        for kind, number, dtype, size, offset in parts["outputs"]
    )
    source = Source(parts["prelude"], parts["kernels"], parts["entry"])
    launches = tuple(map(_launch_of, parts["launches"]))
    steps = ((),) * parts["steps"]
    once = None if parts["once"] is None else read(parts["once"])
    program = Program(
        steps, outputs, parts["arena"], parts["block"], None if once is None else once.program
    )
    return StoredProgram(program, source, launches, once)


def _parts_of_launch(launch: Launch) -> dict[str, Any]:
    return {**launch._asdict(), "maps": [vars(tensor_map) for tensor_map in launch.maps]}


def _launch_of(parts: Any) -> Launch:
    maps = [TensorMap(**_with_tuples(tensor_map)) for tensor_map in parts["maps"]]
    return Launch(**{**_with_tuples(parts), "maps": tuple(maps)})


def _with_tuples(parts: Mapping[str, Any]) -> dict[str, Any]:
    """`parts` with tuples in place of lists, which JSON makes of them."""
    return {name: _as_tuples(value) for name, value in parts.items()}


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, (list, tuple)) else value


@cache
def compiler() -> str:
    """A digest of the names, sizes and times of all files of this package: an edited compiler finds
    none of what it wrote before."""
    return digest(*_files_of(_PACKAGE))


def _files_of(folder: str) -> Iterator[str]:
    for parent, subfolders, names in os.walk(folder):
        subfolders[:] = sorted(name for name in subfolders if name != "__pycache__")
        for name in sorted(names):
            path = os.path.join(parent, name)
            state = os.stat(path)
            yield f"{path[len(folder):]} {state.st_size} {state.st_mtime_ns}"
