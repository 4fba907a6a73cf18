"""Checkpoints of several processes, which another number of processes can load.

Each process writes the parts that it has to a file of its own, and `index.json` says which box of
which tensor is where:

    index.json                  {"folder": "save-3", "texts": {...}, "tensors": {...}}
    save-3/rank-0.safetensors   the boxes of rank 0
    save-3/rank-0.json          which these are, as the others were told
    save-3/rank-1.safetensors   ...

The index is replaced last, when all files are on disk: a save that is killed at any moment leaves
the index, and the files, of the one before. The next save removes what it has left.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lamina.core.shape import Shape, prod
from lamina.distributed import setup
from lamina.distributed.layout import Box, Layout, layouts_of, whole
from lamina.distributed.operations import all_reduce
from lamina.distributed.sharding import layout_of
from lamina.errors import ArgumentError, FormatError
from lamina.frontend.realize import download
from lamina.frontend.session import own_of
from lamina.frontend.tensor import Tensor
from lamina.io import safetensors
from lamina.io.files import replaced_file
from lamina.nn.optim import Optimizer
from lamina.nn.state import load_state_dict, state_dict

__all__ = ["load_checkpoint", "save_checkpoint"]

INDEX, FOLDER = "index.json", "save-"
Array = Any  # numpy.ndarray


@dataclass(frozen=True)
class Piece:
    """A box of a tensor, of which each process that has it has the same elements."""

    name: str
    start: Shape
    shape: Shape


@dataclass(frozen=True)
class Entry:
    """A tensor of a checkpoint as this process has it."""

    tensor: Tensor
    layout: Layout


def save_checkpoint(
    folder: str | os.PathLike[str],
    model: Any,
    optimizer: Optimizer | None = None,
    texts: Mapping[str, str] | None = None,
) -> None:
    """Write the tensors of a model, and of its optimiser, to `folder`; all processes call it.

    Of what several have, one writes it: a tensor is known by its name alone, so the stages of a
    pipeline need names of their own, such as ``{"layer 3": layer}`` for a model. Parts are those of
    the layers of this package, of tensors that `shard` made, and of any layer with a method
    `layouts` (`lamina/distributed/layout.py`). texts: to be found again, such as the number of the
    step. Raises OSError where a file cannot be written, and ArgumentError, on all processes, where
    several have other values of one parameter; the save before stays."""
    place = Path(folder)
    entries = _entries(model, optimizer)
    number = _number_of_last(place) + 1
    target = place / f"{FOLDER}{number}"
    if setup.rank() == 0:
        _remove_others(place, keep=number - 1)
        target.mkdir(parents=True)
    _wait_for_all()
    _write_pieces(target, entries)
    _wait_for_all()
    _write_tensors(target, entries)
    _wait_for_all()
    if setup.rank() == 0:
        _write_index(place, target, optimizer, dict(texts or {}))
        _remove_others(place, keep=number)
    _wait_for_all()


def load_checkpoint(
    folder: str | os.PathLike[str], model: Any, optimizer: Optimizer | None = None
) -> dict[str, str]:
    """Read what `save_checkpoint` has written, into a model whose processes may have other parts;
    each reads what it needs. Returns the texts.

    Raises FileNotFoundError where there is no checkpoint, and FormatError, before anything has
    changed, where that lacks a tensor or a part of one, or has one of another shape or dtype."""
    place = Path(folder)
    index = json.loads((place / INDEX).read_text(encoding="utf-8"))
    files = _Files(place / index["folder"])
    entries = _entries(model, optimizer)
    arrays = {
        name: _read(name, entry, index["tensors"], files) for name, entry in entries.items()
    }
    load_state_dict({name: entry.tensor for name, entry in entries.items()}, arrays)
    if optimizer is not None:
        optimizer.count = int(index["count"])
    texts: dict[str, str] = index["texts"]
    return texts


def _entries(model: Any, optimizer: Optimizer | None) -> dict[str, Entry]:
    """Everything that a checkpoint has, by name. What an optimiser keeps for a parameter is named
    after that, and is the same part of its whole."""
    layouts = layouts_of(model)
    entries: dict[str, Entry] = {}
    name_of: dict[Tensor, str] = {}
    for name, tensor in state_dict(model).items():
        own = own_of(tensor)
        if own not in name_of:
            name_of[own] = name
            layout = layout_of(tensor) or layouts.get(name, whole(own.shape))
            entries[f"model.{name}"] = Entry(own, layout)
    if optimizer is None:
        return entries
    for slot, tensors in optimizer.state.items():
        if slot == "step":
            for number, tensor in enumerate(tensors):
                entries[f"optimizer.step.{number}"] = Entry(tensor, whole(tensor.shape))
            continue
        for parameter, tensor in zip(optimizer.parameters, tensors, strict=True):
            if parameter not in name_of:
                raise ArgumentError(
                    f"checkpoint: a parameter of the optimiser, {parameter.dtype.name} "
                    f"{parameter.shape}, is not in the model"
                )
            like = entries[f"model.{name_of[parameter]}"]
            layout = like.layout if tensor.shape == parameter.shape else whole(tensor.shape)
            entries[f"optimizer.{slot}.{name_of[parameter]}"] = Entry(tensor, layout)
    return entries


# Saving.


def _number_of_last(place: Path) -> int:
    """The number of the last save that was finished; 0 if there was none."""
    index = place / INDEX
    if not index.exists():
        return 0
    folder: str = json.loads(index.read_text(encoding="utf-8"))["folder"]
    return int(folder.removeprefix(FOLDER))


def _remove_others(place: Path, keep: int) -> None:
    """Remove the files of all saves but one: of older ones, and of those that were killed."""
    for folder in place.iterdir() if place.exists() else ():
        is_save = re.fullmatch(rf"{FOLDER}\d+", folder.name) is not None and folder.is_dir()
        if is_save and folder.name != f"{FOLDER}{keep}":
            shutil.rmtree(folder)


def _wait_for_all() -> None:
    """Go on when all processes are here."""
    if setup.size() > 1:
        all_reduce(Tensor(1.0)).item()


def _write_pieces(target: Path, entries: Mapping[str, Entry]) -> None:
    """Write which boxes this process has, for all to read."""
    described = {}
    for name, entry in entries.items():
        described[name] = {
            "dtype": entry.tensor.dtype.name,
            "shape": entry.layout.shape,
            "boxes": [_described(entry, box) for box in entry.layout.boxes],
        }
    path = target / f"rank-{setup.rank()}.json"
    path.write_text(json.dumps(described), encoding="utf-8")


def _described(entry: Entry, box: Box) -> dict[str, Any]:
    """A box, with a digest of its elements where all that have it have to agree: those of a
    parameter. Running statistics of the rows of each process may differ."""
    described: dict[str, Any] = {"start": box.start, "shape": box.shape}
    if entry.tensor.requires_grad:
        elements = download(entry.tensor)[box.own_slices].tobytes()
        described["digest"] = hashlib.blake2b(elements, digest_size=16).hexdigest()
    return described


def _plan(target: Path) -> dict[str, dict[str, Any]]:
    """The tensors of the index: each box is in the file of the first process that has it. Raises
    ArgumentError where another one has other elements."""
    tensors: dict[str, dict[str, Any]] = {}
    planned: dict[Piece, tuple[int, str | None]] = {}  # by box: the rank, and the digest
    for rank in range(setup.size()):
        text = (target / f"rank-{rank}.json").read_text(encoding="utf-8")
        for name, described in json.loads(text).items():
            facts = {"dtype": described["dtype"], "shape": described["shape"], "boxes": []}
            boxes = tensors.setdefault(name, facts)["boxes"]
            for box in described["boxes"]:
                piece = Piece(name, tuple(box["start"]), tuple(box["shape"]))
                digest = box.pop("digest", None)
                if piece not in planned:
                    planned[piece] = rank, digest
                    boxes.append({"file": _file_of(rank), **box})
                first, expected = planned[piece]
                if digest != expected:
                    raise _differ(name, first, rank)
    return tensors


def _differ(name: str, first: int, second: int) -> ArgumentError:
    return ArgumentError(
        f"ranks {first} and {second} have other values of {name}, of which one would be lost",
        operation="save_checkpoint",
        remedy="give stages of a pipeline names of their own, such as a model {'layer 3': layer}; "
        "of copies that are to be equal, look for what made them differ",
    )


def _write_tensors(target: Path, entries: Mapping[str, Entry]) -> None:
    """Write the boxes of this process that no process before it has."""
    file = _file_of(setup.rank())
    plan = _plan(target)
    arrays: dict[str, Tensor] = {}
    for name, entry in entries.items():
        own = {tuple(box["start"]) for box in plan[name]["boxes"] if box["file"] == file}
        for box in entry.layout.boxes:
            if box.start in own:
                values = np.array(download(entry.tensor)[box.own_slices])
                arrays[_key(name, box.start)] = Tensor(values, device="cpu")
    if arrays:
        safetensors.save(target / file, arrays)


def _key(name: str, start: Shape) -> str:
    """The name of a box in its file, such as ``model.weight@0,16``."""
    return f"{name}@{','.join(map(str, start))}"


def _file_of(rank: int) -> str:
    return f"rank-{rank}.safetensors"


def _write_index(
    place: Path, target: Path, optimizer: Optimizer | None, texts: dict[str, str]
) -> None:
    """Replace the index, by which the save becomes the last one."""
    count = 0 if optimizer is None else optimizer.count
    index = {"folder": target.name, "count": count, "texts": texts, "tensors": _plan(target)}
    with replaced_file(place / INDEX) as file:
        file.write(json.dumps(index, indent=1).encode())


# Loading.


class _Files:
    """The files of a save, each opened when it is first asked for; nothing is read until then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: dict[str, dict[str, Tensor]] = {}

    def array(self, file: str, piece: Piece) -> Array:
        """The elements of a box. Raises FormatError where the file lacks it."""
        if file not in self._opened:
            self._opened[file] = safetensors.load(self._folder / file, device="cpu")
        tensors = self._opened[file]
        key = _key(piece.name, piece.start)
        if key not in tensors or tensors[key].shape != piece.shape:
            raise FormatError(f"{self._folder / file}: no {key} of shape {piece.shape}")
        return download(tensors[key])


def _read(name: str, entry: Entry, index: Mapping[str, Any], files: _Files) -> Array:
    """What this process is to have of a tensor, from all boxes of it that were saved."""
    saved = index.get(name)
    dtype, shape = entry.tensor.dtype, entry.layout.shape
    if saved is None:
        raise FormatError(f"load_checkpoint: the checkpoint has no {name}")
    if saved["dtype"] != dtype.name or tuple(saved["shape"]) != shape:
        found = f"{saved['dtype']} {tuple(saved['shape'])}"
        raise FormatError(
            f"load_checkpoint: {name} is {found} there, {dtype.name} {shape} is needed"
        )
    values = np.zeros(entry.tensor.shape, dtype.numpy)  # as padding is
    for box in entry.layout.boxes:
        count = _fill(values, box, name, saved["boxes"], files)
        if count != prod(box.shape):
            raise FormatError(
                f"load_checkpoint: of {name} {prod(box.shape) - count} elements are missing"
            )
    return values


def _fill(
    values: Array, box: Box, name: str, saved: Iterable[Mapping[str, Any]], files: _Files
) -> int:
    """Copy into a box of `values` what saved boxes have of it; the number of elements. No two
    saved boxes have the same element."""
    count = 0
    for one in saved:
        start, shape = tuple(one["start"]), tuple(one["shape"])
        common = box.common(start, shape)
        if common is None:
            continue
        low, sizes = common
        source = files.array(one["file"], Piece(name, start, shape))
        values[_slices(low, sizes, box.start, box.own_start)] = source[
            _slices(low, sizes, start, (0,) * len(start))
        ]
        count += prod(sizes)
    return count


def _slices(low: Shape, sizes: Shape, start: Shape, own_start: Shape) -> tuple[slice, ...]:
    """Where a box of the whole array, from `low` on, is in an array that has `start` at
    `own_start`."""
    slices = []
    for at, size, begin, own in zip(low, sizes, start, own_start, strict=True):
        slices.append(slice(at - begin + own, at - begin + own + size))
    return tuple(slices)
