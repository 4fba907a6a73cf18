"""Data in and out: nested sequences, NumPy, DLPack."""

from __future__ import annotations

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

import lamina as lm
from lamina.errors import DTypeError, ShapeError
from lamina.frontend import realize as memory

DTYPES = [lm.bool, lm.int8, lm.uint16, lm.int64, lm.float16, lm.bfloat16, lm.float32, lm.float64,
          lm.complex64]  # fmt: skip


def test_python_data() -> None:
    assert lm.asarray(True).dtype is lm.bool
    assert lm.asarray([[1, 2], [3, 4]]).dtype is lm.int64
    assert lm.asarray([1, 2.5]).dtype is lm.float32
    assert lm.asarray([1j]).dtype is lm.complex64
    assert lm.asarray([]).dtype is lm.float32
    assert lm.asarray([lm.asarray(1, dtype=lm.int8), lm.asarray(2, dtype=lm.int8)]).dtype is lm.int8
    assert lm.asarray([2**64 - 1], dtype=lm.uint64).tolist() == [2**64 - 1]
    assert lm.Tensor([1, 2], dtype=lm.bfloat16).tolist() == [1, 2]
    assert lm.asarray([[lm.asarray(1.5), 2], [3, True]]).tolist() == [[1.5, 2.0], [3.0, 1.0]]
    halves = [lm.ones((), dtype=lm.bfloat16)] * 2
    assert lm.asarray((halves, [1, 2]), dtype=lm.bfloat16).tolist() == [[1.0, 1.0], [1.0, 2.0]]
    with pytest.raises(DTypeError, match=r"asarray: .*300"):
        lm.asarray([300], dtype=lm.uint8)
    with pytest.raises(ShapeError, match="asarray"):
        lm.asarray([[1], [2, 3]])
    with pytest.raises(DTypeError, match="str"):
        lm.asarray("text")


def test_numpy_arrays_are_copied() -> None:
    array = np.arange(6.0).reshape(2, 3)
    t = lm.asarray(array.T)
    array[:] = 0
    assert t.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert lm.asarray(np.array([1.5], ml_dtypes.bfloat16)).dtype is lm.bfloat16
    out = t.numpy()
    out[:] = -1
    assert t[0, 1].item() == 3
    with pytest.raises(ValueError, match="copy"):
        lm.asarray(array, copy=False)
    assert lm.asarray(t) is t
    assert lm.asarray(t, copy=True) is not t


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_exchange_with_pytorch(dtype: lm.DType) -> None:
    torch = pytest.importorskip("torch")
    t = lm.asarray([[0, 1, 2], [3, 4, 5]], dtype=dtype)
    there = torch.from_dlpack(t)
    assert str(there.dtype) == f"torch.{dtype.name}"
    assert there.data_ptr() == memory.memory_of(t).pointer
    back = lm.from_dlpack(there)
    assert back.dtype is dtype
    assert memory.memory_of(back).pointer == there.data_ptr()
    assert back.tolist() == t.tolist() == there.tolist()
    assert lm.from_dlpack(there, copy=True).tolist() == t.tolist()
    turned = lm.from_dlpack(there.T)
    assert turned.tolist() == there.T.tolist()
    with pytest.raises(BufferError, match="need a copy"):
        lm.from_dlpack(there.T, copy=False)


@pytest.mark.usefixtures("on_cpu")
def test_exchange_with_numpy() -> None:
    t = lm.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert np.from_dlpack(t).tolist() == t.tolist()
    copied = np.from_dlpack(t, copy=True)
    assert copied.tolist() == t.tolist()
    assert copied.ctypes.data != memory.memory_of(t).pointer
    array = np.arange(12.0)[::-2]
    assert lm.from_dlpack(array).tolist() == array.tolist()
    assert lm.from_dlpack(np.zeros((0, 3))).shape == (0, 3)
    assert lm.from_dlpack(np.array(3)).item() == 3


@pytest.mark.usefixtures("on_cpu")
def test_memory_outlives_its_exporter() -> None:
    array = np.from_dlpack(lm.arange(1000) * 2)
    gc.collect()
    lm.arange(1000).realize()
    assert np.array_equal(array, np.arange(1000) * 2)
    t = lm.from_dlpack(np.arange(1000) * 3)
    gc.collect()
    assert np.array_equal((t + 0).numpy(), np.arange(1000) * 3)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", [lm.float32, lm.bfloat16], ids=lambda dtype: dtype.name)
def test_unused_and_used_capsules_are_given_back(dtype: lm.DType) -> None:
    torch = pytest.importorskip("torch")
    t = lm.ones(3, dtype=dtype)
    memory_of_t = weakref.ref(memory.memory_of(t))
    capsules = [t.__dlpack__(), t.__dlpack__(max_version=(1, 0))]
    there = torch.from_dlpack(t)
    del t
    gc.collect()
    assert memory_of_t() is not None
    capsules.clear()
    gc.collect()
    assert memory_of_t() is not None
    assert there.tolist() == [1, 1, 1]
    del there
    gc.collect()
    assert memory_of_t() is None


@pytest.mark.usefixtures("on_cpu")
def test_borrowed_memory_is_given_back() -> None:
    array = np.ones(3)
    lender = weakref.ref(array)
    t = lm.from_dlpack(array)
    del array
    gc.collect()
    assert lender() is not None
    del t
    gc.collect()
    assert lender() is None


def test_capsules_are_consumed_once() -> None:
    class Producer:
        capsule = np.ones(3).__dlpack__()

        def __dlpack__(self) -> object:
            return self.capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    assert lm.from_dlpack(Producer()).tolist() == [1, 1, 1]
    with pytest.raises(BufferError, match="consumed"):
        lm.from_dlpack(Producer())


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.usefixtures("on_cpu")
def test_dtypes_that_cannot_be_exchanged() -> None:
    with pytest.raises(DTypeError, match="float8_e5m2"):
        lm.ones(3, dtype=lm.float8_e5m2).__dlpack__()
    torch = pytest.importorskip("torch")
    with pytest.raises(DTypeError, match="from_dlpack"):
        lm.from_dlpack(torch.ones(3, dtype=torch.complex32))


def test_namespace() -> None:
    t = lm.ones(2)
    assert t.__array_namespace__() is lm
    info = lm.__array_namespace_info__()
    assert info.default_device() == lm.default_device()
    assert info.default_dtypes()["real floating"] is lm.float32
    assert set(info.dtypes(kind="signed integer")) == {"int8", "int16", "int32", "int64"}
    assert lm.finfo(lm.bfloat16).max == float(ml_dtypes.finfo("bfloat16").max)
    for dtype in (lm.float16, lm.float32, lm.float64):
        ours, theirs = lm.finfo(dtype), np.finfo(dtype.name)
        assert (ours.eps, ours.max, ours.smallest_normal) == (
            theirs.eps, theirs.max, theirs.smallest_normal)  # fmt: skip
    assert lm.iinfo(lm.int8).min == -128
    assert lm.can_cast(lm.int8, lm.float32)
    assert not lm.can_cast(lm.float32, lm.int8)
    with pytest.raises(DTypeError, match="'float23' is not a dtype"):
        lm.can_cast("float23", lm.float64)
    with pytest.raises(DTypeError, match="imaginary"):
        lm.astype(lm.asarray(1j), lm.float32)


def test_exported_names_exist_once_and_are_documented() -> None:
    assert len(set(lm.__all__)) == len(lm.__all__)
    for name in lm.__all__:
        value = getattr(lm, name)
        assert not callable(value) or value.__doc__, name


def test_absent_extensions_have_no_name() -> None:
    assert not hasattr(lm, "linalg")
    assert not hasattr(lm, "fft")


def test_functions_are_methods() -> None:
    x = lm.asarray([[1.0, 2.0], [3.0, 4.0]])
    for name in ("exp", "sum", "softmax", "reshape", "matmul", "argsort", "take", "gelu", "outer"):
        assert getattr(lm.Tensor, name) is getattr(lm, name)
    assert not hasattr(x, "concat")
    assert x.sum(0).tolist() == [4, 6]
    assert x.T.tolist() == x.mT.tolist() == [[1, 3], [2, 4]]
