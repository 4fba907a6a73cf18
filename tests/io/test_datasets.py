"""Data sets: the digits that come with lamina, and downloads from a server of our own."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    data, again, other = datasets.digits(0.25), datasets.digits(0.25), datasets.digits(0.25, seed=1)
    train, test = np.bincount(data.train_labels.numpy()), np.bincount(data.test_labels.numpy())
    np.testing.assert_allclose(test / (train + test), 0.25, atol=0.004)
    for one, two in zip(data, again, strict=True):
        np.testing.assert_array_equal(one.numpy(), two.numpy())
    assert not np.array_equal(data.test_images.numpy(), other.test_images.numpy())
    digest = hashlib.sha256(datasets.digits().test_images.numpy().tobytes()).hexdigest()
    assert digest.startswith("44e3cea3f071a4d2")  # equal on every machine
    low, high = (datasets.digits(seed=one).test_images.numpy() for one in (-1, (1 << 32) - 1))
    np.testing.assert_array_equal(low, high)  # as of every seed here, the low bits count
    with pytest.raises(ValueError, match=r"test_share is 1\.5"):
        datasets.digits(1.5)


def test_a_damaged_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / "digits.npz"
    monkeypatch.setattr(datasets, "_DIGITS", damaged)
    with pytest.raises(DataError, match="reinstall lamina"):
        datasets.digits()
    damaged.write_bytes(b"PK")
    with pytest.raises(DataError, match="not the file it should be"):
        datasets.digits()


def test_the_file_names_its_source_and_licence() -> None:
    text = (Path(datasets.__file__).parent / "digits.md").read_text(encoding="utf-8")
    assert all(word in text for word in ("Alpaydin", "Kaynak", "CC BY 4.0", "UCI"))


# Downloads.


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return gzip.compress(b"\0\0\x08" + bytes([array.ndim]) + sizes + array.tobytes(), mtime=0)


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`, counts requests; `cut` ends answers early."""

    files: dict[str, bytes]
    requests: list[str]
    cut: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        body = self.server.files.get(self.path.lstrip("/"))
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.cut])

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A mirror with four made-up files, whose checksums take the place of the real ones."""
    generator = np.random.default_rng(0)
    arrays = {
        "train-images": generator.integers(0, 256, (5, 28, 28)).astype(np.uint8),
        "train-labels": np.array([3, 1, 4, 1, 5], np.uint8),
        "test-images": generator.integers(0, 256, (2, 28, 28)).astype(np.uint8),
        "test-labels": np.array([9, 2], np.uint8),
    }
    mirror = Server(("127.0.0.1", 0), Handler)
    bodies = {name: idx(array) for name, array in arrays.items()}
    mirror.files = {f"{name}-ubyte.gz": body for name, body in bodies.items()}
    mirror.requests = []
    table = {name: hashlib.sha256(body).hexdigest() for name, body in bodies.items()}
    monkeypatch.setattr(datasets, "MNIST", table)
    monkeypatch.setattr(datasets, "MNIST_MIRRORS", (mirror.url,))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    thread = threading.Thread(target=mirror.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield mirror
    mirror.shutdown()
    mirror.server_close()
    thread.join()


def test_mnist_is_downloaded_once(server: Server, tmp_path: Path) -> None:
    data = datasets.mnist(tmp_path)
    assert data.train_images.shape == (5, 1, 28, 28)
    assert data.test_images.shape == (2, 1, 28, 28)
    assert data.train_labels.tolist() == [3, 1, 4, 1, 5]
    assert 0.99 < float(data.train_images.max()) <= 1.0
    assert len(server.requests) == 4
    datasets.mnist(tmp_path)
    assert len(server.requests) == 4


def test_an_interrupted_download_leaves_nothing(server: Server, tmp_path: Path) -> None:
    server.cut = 100
    with pytest.raises(DataError, match="100 bytes read"):
        datasets.mnist(tmp_path)
    assert not list(tmp_path.iterdir())
    server.cut = None
    assert datasets.mnist(tmp_path).test_labels.tolist() == [9, 2]


def test_wrong_content_is_refused_and_not_kept(server: Server, tmp_path: Path) -> None:
    name = "train-labels-ubyte.gz"
    server.files[name] = server.files[name][:-1] + b"\xff"
    with pytest.raises(DataError, match="checksum differs"):
        datasets.mnist(tmp_path)
    assert not list(tmp_path.glob(f"{name}*"))


def test_a_damaged_cache_is_fetched_again(server: Server, tmp_path: Path) -> None:
    datasets.mnist(tmp_path)
    (tmp_path / "test-labels-ubyte.gz").write_bytes(b"damaged")
    assert datasets.mnist(tmp_path).test_labels.tolist() == [9, 2]


def test_the_second_mirror_is_tried(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "MNIST_MIRRORS", (f"{server.url}missing/", server.url))
    assert datasets.mnist(tmp_path).test_labels.tolist() == [9, 2]


def test_without_a_network_the_error_says_what_to_do(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "MNIST_MIRRORS", ("http://127.0.0.1:1/",))
    with pytest.raises(DataError, match="put the file into") as caught:
        datasets.mnist(tmp_path / "new")
    assert "train-images" in str(caught.value)
    assert str(tmp_path / "new") in str(caught.value)


def test_the_published_checksums_are_pinned() -> None:
    assert [name[:5] for name in datasets.MNIST] == ["train", "train", "t10k-", "t10k-"]
    assert {len(sha256) for sha256 in datasets.MNIST.values()} == {64}
