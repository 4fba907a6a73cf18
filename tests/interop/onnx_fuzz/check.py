"""What comes of a mutated file: a result, or an error that names what is wrong."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lamina.core.options import using
from lamina.errors import OutOfMemoryError
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx import Model, OnnxError, graph, load, values
from lamina.interop.onnx.errors import RowError
from tests.interop.onnx_fuzz.models import Sample
from tests.interop.onnx_fuzz.mutate import mutated

SECRET = np.float32(87654.32)  # of a file that no model may read
_LARGEST = 2**24  # bytes of a value, so that legitimate work is short
_STEPS = 2000


class FuzzError(Exception):
    """What no file should do."""


@dataclass(frozen=True)
class Outcome:
    """kind: ``result``, ``load`` or ``call`` for an error of either, ``memory`` for results that
    need more than there is. text: the error's first line."""

    kind: str
    text: str = ""


def prepare(folder: Path) -> Path:
    """The folder of mutated models, with files beside them and one that is out of bounds."""
    inner = folder / "models"
    inner.mkdir()
    (folder / "secret").write_bytes(np.full(1024, SECRET).tobytes())
    (inner / "weights").write_bytes(np.linspace(0, 1, 256, dtype=np.float32).tobytes())
    (inner / "link").symlink_to("../secret")
    os.mkfifo(inner / "pipe")
    return inner


@contextmanager
def small_limits() -> Iterator[None]:
    """With less room for values and fewer steps than lamina gives models, in the interpreter."""
    before = values.LARGEST_VALUE, graph.MAX_STEPS
    values.LARGEST_VALUE, graph.MAX_STEPS = _LARGEST, _STEPS
    try:
        with using(device="interp"), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        values.LARGEST_VALUE, graph.MAX_STEPS = before


def outcome_of(samples: Sequence[Sample], seed: int, folder: Path) -> Outcome:
    """Write the mutated file of a seed, load it and run it. Raises FuzzError for an error that is
    no OnnxError, for a defect of lamina, and for values of a file out of bounds."""
    rng = random.Random(seed)
    sample = rng.choice(samples)
    path = folder / "model.onnx"
    path.write_bytes(mutated(sample.model, rng))
    kind = "load"
    try:
        model = load(path)
        _check_secret([model[name] for name in model])
        kind = "call"
        results = model(*_arguments(model, sample, rng))
        _check_secret(results if isinstance(results, (list, tuple)) else [results])
    except RowError as error:
        raise FuzzError(f"seed {seed}: {error}") from error
    except OnnxError as error:
        text = str(error).splitlines()[0] if str(error) else ""
        return Outcome(kind, text)
    except OutOfMemoryError as error:
        return Outcome("memory", str(error))
    except FuzzError as error:
        raise FuzzError(f"seed {seed}: {error}") from error
    except Exception as error:
        raise FuzzError(f"seed {seed}: {kind}: {type(error).__name__}: {error}") from error
    return Outcome("result")


def _arguments(model: Model, sample: Sample, rng: random.Random) -> list[Any]:
    """Those of the sample, and for other inputs some."""
    given = dict(zip([entry.name for entry in sample.model.graph.input], sample.arguments,
                     strict=False))  # fmt: skip
    return [given.get(name, rng.choice(sample.arguments)) for name in model.inputs]


def _check_secret(results: Sequence[Any]) -> None:
    """Computes tensors, as whoever gets them would."""
    for value in results:
        if isinstance(value, (list, tuple)):
            _check_secret(value)
        elif isinstance(value, Tensor):
            array = value.numpy()
            if array.dtype == np.float32 and (array == SECRET).any():
                raise FuzzError("values of a file outside of the model's folder")
