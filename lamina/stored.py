"""Programs on disk, so that a later process runs them without the passes of the compiler.

The passes take seconds for a network of 30 layers, and print the same text in each process; to
import them takes a quarter of a second. So the disk cache, which has the compiled code, also has
two kinds of files about programs, both JSON:

    KEY.json    a program: its text, where its results are, and for a GPU its launches
    KEY.name    the key of such a program, for a graph with CALLs: see `find_name`

A key is a digest of the graph, the options, the facts of the device, and the path of the compiler.
A digest of the compiler's files is inside of each file: an edited compiler ignores the files of an
older one, and overwrites them.

A network repeats subgraphs, such as the decoding of a weight. In the graph that `jit` traces each
is a CALL; compiling begins by opening these, which takes time. KEY.name leads from the graph with
CALLs, whose key is made without opening any, to the key of the program of the opened graph.
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
from lamina.fuse.launch import BufferView, Program, Recipe
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

# The path of the compiler: two versions side by side have files of their own.
_PACKAGE = os.path.dirname(__file__)


@dataclass(frozen=True)
class StoredProgram:
    """A program as it is on disk.

    program: its memory and its results. If it was read from a file, it has as many steps as before,
        but each is empty: kernels are not stored
    source: its text
    launches: of a GPU's program how its kernels are launched; () for a CPU, whose text calls them
    once: the program that fills the arrays which this one keeps from call to call, if it keeps any
    """

    program: Program
    source: Source
    launches: tuple[Launch, ...] = ()
    once: StoredProgram | None = None


def key_of(sinks: Sequence[Node], options: Options, target: Target) -> str | None:
    """The key of the program of `sinks` on disk. None if it is not to be stored:

    - a file does not hold what collectives exchange;
    - options may ask the passes to print or verify, or to search, which measures anew."""
    if options.debug or options.check or options.search:
        return None
    if any(node.op in Group.COLLECTIVE for node in toposort(sinks)):
        return None
    return digest(to_text(sinks, _line_of), repr(options), target.facts, _PACKAGE)


def _line_of(node: Node, names: Names) -> str:
    """The line of a node in the text of a graph. That of a CALL has a digest of its graph, which is
    computed once for all CALLs of that graph."""
    if node.op is not Op.CALL:
        return line_of(node, names)
    return f"{names[node]} = {_digest_of(node.arg)} {[names[operand] for operand in node.src]}"


@memoized(2048)
def _digest_of(graph: Node) -> str:
    return digest(to_text([graph], _line_of))


def find_name(key: str, options: Options) -> str | None:
    """The key of the program for the graph with CALLs of key `key`, if `store_name` stored it."""
    name = _content(f"{key}.name", options)
    return name if isinstance(name, str) else None


def store_name(key: str, name: str, options: Options) -> None:
    """Store that the graph with CALLs of key `key` is compiled as the program of key `name`."""
    _write(f"{key}.name", name, options)


def load(key: str, options: Options) -> StoredProgram | None:
    """The program of key `key`; None if there is no file, or if it is damaged."""
    parts = _content(f"{key}.json", options)
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError):
        return None if parts is None else read(parts)
    return None


def store(key: str, stored: StoredProgram, options: Options) -> None:
    """Write the file of a program, if the disk has room for it."""
    _write(f"{key}.json", parts_of(stored), options)


def _content(file: str, options: Options) -> Any:
    """The content of a file. None if there is no file, if a compiler with other files wrote it, or
    if it is damaged."""
    path = disk_cache(options).load(file)
    if path is None:
        return None
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        written = json.loads(path.read_bytes())
        return written["content"] if written["compiler"] == compiler() else None
    return None


def _write(file: str, content: Any, options: Options) -> None:
    """Write a file. A failure is no error: `disk_cache` has warned the user, this process has the
    program, and a later one compiles it again."""
    written = {"compiler": compiler(), "content": content}
    with contextlib.suppress(DeviceError):
        disk_cache(options).store(file, json.dumps(written).encode())


def parts_of(stored: StoredProgram) -> dict[str, Any]:
    """A program as data that JSON can write. `read` is the inverse, but for kernels of steps."""
    program, source = stored.program, stored.source
    return {
        "steps": len(program.steps),
        "outputs": [[view.kind, view.number, view.dtype.name, view.size, view.offset]
                    for view in program.outputs],
        "arena": program.arena,
        "block": program.block,
        "recipes": [[recipe.digest, recipe.inputs] for recipe in program.recipes],
        "prelude": source.prelude,
        "needed": dict(source.needed),
        "kernels": dict(source.kernels),
        "entry": source.entry,
        "launches": [_parts_of_launch(launch) for launch in stored.launches],
        "once": None if stored.once is None else parts_of(stored.once),
    }  # fmt: skip


def read(parts: Any) -> StoredProgram:
    """The program of which `parts_of` returned `parts`, with empty steps."""
    outputs = tuple(
        BufferView(kind, number, BY_NAME[dtype], size, offset)
        for kind, number, dtype, size, offset in parts["outputs"]
    )
    needed = _with_tuples(parts["needed"])
    source = Source(parts["prelude"], parts["kernels"], parts["entry"], needed=needed)
    launches = tuple(map(_launch_of, parts["launches"]))
    steps = ((),) * parts["steps"]
    once = None if parts["once"] is None else read(parts["once"])
    recipes = tuple(Recipe(digest, tuple(inputs)) for digest, inputs in parts["recipes"])
    program = Program(
        steps, outputs, parts["arena"], parts["block"],
        None if once is None else once.program, recipes,
    )  # fmt: skip
    return StoredProgram(program, source, launches, once)


def _parts_of_launch(launch: Launch) -> dict[str, Any]:
    return {**launch._asdict(), "maps": [vars(tensor_map) for tensor_map in launch.maps]}


def _launch_of(parts: Any) -> Launch:
    maps = [TensorMap(**_with_tuples(tensor_map)) for tensor_map in parts["maps"]]
    return Launch(**{**_with_tuples(parts), "maps": tuple(maps)})


def _with_tuples(parts: Mapping[str, Any]) -> dict[str, Any]:
    """`parts` with tuples in place of lists: JSON writes tuples as lists."""
    return {name: _as_tuples(value) for name, value in parts.items()}


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, (list, tuple)) else value


@cache
def compiler() -> str:
    """A digest of the names, sizes and times of all files of this package. Each stored file has it,
    so that an edited compiler loads no program of an older one."""
    return digest(*_files_of(_PACKAGE))


def _files_of(folder: str) -> Iterator[str]:
    for parent, subfolders, names in os.walk(folder):
        subfolders[:] = sorted(name for name in subfolders if name != "__pycache__")
        for name in sorted(names):
            path = os.path.join(parent, name)
            state = os.stat(path)
            yield f"{path[len(folder):]} {state.st_size} {state.st_mtime_ns}"
