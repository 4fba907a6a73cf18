"""A small data set of handwritten digits, checked by its published checksum."""

from __future__ import annotations

import importlib.util
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from lamina.errors import ArgumentError, LaminaError
from lamina.tensor.core import Tensor

__all__ = ["DataError", "Split", "digits"]


class DataError(LaminaError, OSError):
    """A data set that is not on this machine."""


class Split(NamedTuple):
    """Images, float32 (n, 1, height, width) in [0, 1], and labels, int64 (n,), of two sets."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


DIGITS_SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"


def digits(test_share: float = 0.2, seed: int = 0) -> Split:
    """1797 handwritten digits of 8 x 8 pixels; `test_share` of each class is set aside, the same
    for a seed everywhere. Raises DataError when scikit-learn, whose file it reads, is missing.
    Source: Alpaydin and Kaynak 1998, "Optical recognition of handwritten digits", UCI."""
    import numpy as np

    found = importlib.util.find_spec("sklearn")  # locates the package, does not run it
    if found is None or not found.submodule_search_locations:
        raise DataError("digits: the data comes with scikit-learn: pip install scikit-learn")
    path = Path(found.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    if not path.exists() or sha256(path.read_bytes()).hexdigest() != DIGITS_SHA256:
        raise DataError(f"digits: {path} is not the file it should be; reinstall scikit-learn")
    if not 0.0 < test_share < 1.0:
        raise ArgumentError(f"digits: test_share is {test_share}; it lies between 0 and 1")
    table = np.loadtxt(path, np.float32, delimiter=",")
    images, labels = table[:, :-1].reshape(-1, 1, 8, 8) / 16.0, table[:, -1].astype(np.int64)
    state = np.random.RandomState(seed)  # the one generator whose stream is frozen for good
    test = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        test[state.permutation(members)[: round(test_share * len(members))]] = True
    return Split(*map(Tensor, (images[~test], labels[~test], images[test], labels[test])))
