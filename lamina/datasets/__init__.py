"""Small data sets of handwritten digits, checked by their published checksums.

`digits` reads a file of this package (see digits.md for its source and licence); `mnist` downloads
four files once and keeps them in the user's cache folder.
"""

import gzip
import hashlib
import os
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from lamina.core.options import cache_folder, current
from lamina.errors import ArgumentError, LaminaError
from lamina.frontend.tensor import Tensor, checked
from lamina.runtime.cache import replacing

__all__ = ["DataError", "Split", "digits", "mnist"]


class DataError(LaminaError, OSError):
    """A data set that is not on this machine and could not be fetched."""


class Split(NamedTuple):
    """Images, float32 (n, 1, height, width) in [0, 1], and labels, int64 (n,), of two sets."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


_DIGITS = Path(__file__).with_name("digits.npz")
_DIGITS_SHA256 = "b2dab7b501728c22e9119ad76740b2e17c77a231e42d1e592380d90886f1a05e"
MNIST_MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
MNIST = {  # the SHA-256 of each file, whose name is that at every mirror
    "train-images-idx3": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "train-labels-idx1": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "t10k-images-idx3": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "t10k-labels-idx1": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
}
_TIMEOUT_SECONDS = 30.0


@checked
def digits(test_share: float = 0.2, seed: int = 0) -> Split:
    """1797 handwritten digits of 8 x 8 pixels; `test_share` of each class is set aside, the same
    for a seed everywhere. Raises DataError when the file of this package is damaged, and
    ArgumentError for a share that is not between 0 and 1.
    Source: Alpaydin and Kaynak 1998, "Optical recognition of handwritten digits", UCI."""
    import numpy as np

    if not _is_file(_DIGITS, _DIGITS_SHA256):
        raise DataError(f"digits: {_DIGITS} is not the file it should be; reinstall lamina")
    if not 0.0 < test_share < 1.0:
        raise ArgumentError(f"digits: test_share is {test_share}; it lies between 0 and 1")
    with np.load(_DIGITS, allow_pickle=False) as file:
        images = file["images"][:, None].astype(np.float32) / np.float32(16.0)
        labels = file["labels"].astype(np.int64)
    state = np.random.RandomState(seed % (1 << 32))  # its stream is frozen for good
    test = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        test[state.permutation(members)[: round(test_share * len(members))]] = True
    return Split(*map(Tensor, (images[~test], labels[~test], images[test], labels[test])))


def mnist(folder: str | os.PathLike[str] | None = None) -> Split:
    """70,000 handwritten digits of 28 x 28 pixels, 10,000 of them for the test: 11 MB, in `folder`
    (the user's cache folder by default). Raises DataError when no mirror has them.
    Source: LeCun, Bottou, Bengio and Haffner 1998, "Gradient-based learning applied to document
    recognition"."""
    place = cache_folder(current()) / "datasets" / "mnist" if folder is None else Path(folder)
    files = (_fetched(place / f"{name}-ubyte.gz", sha256) for name, sha256 in MNIST.items())
    return Split(*(Tensor(_read_idx(file)) for file in files))


def _read_idx(path: Path) -> Any:
    """Images or labels in the IDX format (zero, zero, 8 for uint8, rank, sizes, values); what is
    read here has been checked."""
    import numpy as np

    content = gzip.decompress(path.read_bytes())
    rank = content[3]
    shape = np.frombuffer(content, ">i4", rank, offset=4)
    values = np.frombuffer(content, np.uint8, offset=4 + shape.nbytes).reshape(shape)
    return values.astype("int64") if rank == 1 else (values[:, None] / 255.0).astype("float32")


def _fetched(path: Path, sha256: str) -> Path:
    """The checked file at `path`, downloaded when it is not there."""
    if _is_file(path, sha256):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    problems = []
    for mirror in MNIST_MIRRORS:
        try:
            with urllib.request.urlopen(mirror + path.name, timeout=_TIMEOUT_SECONDS) as answer:
                content = answer.read()
            if hashlib.sha256(content).hexdigest() != sha256:
                raise OSError("the checksum differs")
            with replacing(path) as file:
                file.write(content)
            return path
        except (OSError, HTTPException) as error:
            problems.append(f"{mirror}: {getattr(error, 'reason', error)}")
    place = f"connect, or put the file into {path.parent}"
    raise DataError(f"{path.name}: {'; '.join(problems)}; {place}")


def _is_file(path: Path, sha256: str) -> bool:
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256
