"""Methods of a tensor that are not functions of the namespace."""

from __future__ import annotations

import numpy as np

import lamina as lm


def test_sizes() -> None:
    for shape in ((), (0, 3), (2, 1, 3)):
        x = np.ones(shape, np.int16)
        t = lm.asarray(x)
        assert (t.shape, t.ndim, t.size, t.nbytes) == (x.shape, x.ndim, x.size, x.nbytes)


def test_cast_and_bitcast() -> None:
    x = np.array([[1.5, -0.0, np.inf]], np.float32)
    t = lm.asarray(x)
    assert np.array_equal(t.cast(lm.float16).numpy(), x.astype(np.float16))
    assert np.array_equal(t.bitcast(lm.uint32).numpy(), x.view(np.uint32))
    assert np.array_equal(t.bitcast(lm.int32).bitcast(lm.float32).numpy(), x)


def test_copies_keep_values() -> None:
    t = lm.asarray([[1.0, 2.0], [3.0, 4.0]])
    for copied in (t.clone(), t.mT.contiguous().mT, t.to_device("cpu"), t.to_device(t.device)):
        assert copied.tolist() == t.tolist()
    copied = t.clone()
    copied.assign(copied * 0)
    assert t.tolist() == [[1, 2], [3, 4]]
    (slope,) = lm.gradient((t.mT.contiguous() * t.clone()).sum(), [t])
    np.testing.assert_array_equal(slope.numpy(), [[2, 6], [4, 8]])
