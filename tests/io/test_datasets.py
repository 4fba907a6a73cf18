"""Data sets: the digits that scikit-learn carries."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lamina import datasets
from lamina.datasets import DataError


def test_digits_are_those_of_scikit_learn() -> None:
    oracle = pytest.importorskip("sklearn.datasets").load_digits()
    data = datasets.digits()
    images = np.concatenate([data.train_images.numpy(), data.test_images.numpy()])
    labels = np.concatenate([data.train_labels.numpy(), data.test_labels.numpy()])
    assert images.shape == (1797, 1, 8, 8)
    assert images.dtype == np.float32
    found = sorted((label, *(image * 16.0).ravel()) for label, image in zip(labels, images,
                                                                             strict=True))
    wanted = sorted((label, *row) for label, row in zip(oracle.target, oracle.data, strict=True))
    np.testing.assert_array_equal(np.array(found), np.array(wanted))


def test_the_split_is_stratified_and_repeatable() -> None:
    pytest.importorskip("sklearn")
    data, again, other = datasets.digits(0.25), datasets.digits(0.25), datasets.digits(0.25, seed=1)
    train, test = np.bincount(data.train_labels.numpy()), np.bincount(data.test_labels.numpy())
    np.testing.assert_allclose(test / (train + test), 0.25, atol=0.004)
    for one, two in zip(data, again, strict=True):
        np.testing.assert_array_equal(one.numpy(), two.numpy())
    assert not np.array_equal(data.test_images.numpy(), other.test_images.numpy())
    digest = hashlib.sha256(datasets.digits().test_images.numpy().tobytes()).hexdigest()
    assert digest.startswith("44e3cea3f071a4d2")  # equal on every machine
    with pytest.raises(ValueError, match=r"test_share is 1\.5"):
        datasets.digits(1.5)


def test_digits_do_not_import_scikit_learn() -> None:
    pytest.importorskip("sklearn")
    code = (
        "import sys; from lamina import datasets; datasets.digits(); "
        "print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=Path(datasets.__file__).parent.parent)  # fmt: skip
    assert done.stdout == "False\n"


def test_a_missing_or_changed_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match="pip install scikit-learn"):
        datasets.digits()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: Spec)
    with pytest.raises(DataError, match="reinstall"):
        datasets.digits()
    (tmp_path / "datasets" / "data").mkdir(parents=True)
    (tmp_path / "datasets" / "data" / "digits.csv.gz").write_bytes(gzip.compress(b"1,2\n"))
    with pytest.raises(DataError, match="not the file it should be"):
        datasets.digits()
