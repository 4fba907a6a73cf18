"""Random numbers: published answers of the generator, distributions, reproducibility."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import random
from lamina.core import dtypes, options
from lamina.core.dtypes import DType
from lamina.errors import ArgumentError, DTypeError, ShapeError
from lamina.explain.report import profile
from lamina.frontend.functions.inspection import NamespaceInfo
from lamina.frontend.tensor import Tensor
from lamina.ir.interpreter import evaluate
from lamina.ir.node import const, toposort
from lamina.ir.ops import Op

N = 20_000


@pytest.mark.parametrize(
    ("counter", "key", "answer"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers(
    counter: tuple[int, int], key: tuple[int, int], answer: tuple[int, int]
) -> None:
    """The vectors of the authors' library Random123, threefry2x32 with 20 rounds."""
    words = [const(word, dtypes.uint32) for word in key]
    low = const(counter[0], dtypes.uint32)
    got = evaluate(random._threefry((words[0], words[1]), low, counter[1]))
    assert [int(word) for word in got] == list(answer)


def kolmogorov_smirnov(sample: np.ndarray, cdf: np.ndarray) -> float:
    """The distance of the sample's distribution from `cdf`, its values at the sorted sample."""
    assert np.all(np.diff(sample) >= 0)
    steps = np.arange(len(sample) + 1) / len(sample)
    return float(max(np.max(cdf - steps[:-1]), np.max(steps[1:] - cdf)))


LIMIT = 1.63 / math.sqrt(N)  # exceeded by one sample in a hundred


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_uniform(dtype: DType) -> None:
    sample = np.sort(random.uniform((N,), -1.0, 3.0, seed=1, dtype=dtype).numpy())
    assert sample.min() >= -1.0
    assert sample.max() <= 3.0
    assert kolmogorov_smirnov(sample, (sample.astype(float) + 1.0) / 4.0) < LIMIT


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_normal(dtype: DType) -> None:
    sample = np.sort(random.normal((N,), 2.0, 0.5, seed=1, dtype=dtype).numpy())
    cdf = np.array([(1 + math.erf((x - 2.0) / 0.5 / math.sqrt(2))) / 2 for x in sample])
    assert kolmogorov_smirnov(sample, cdf) < LIMIT


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32, dtypes.float64])
def test_exponential_and_gumbel(dtype: DType) -> None:
    limit = LIMIT if dtype is not dtypes.float16 else 2 * LIMIT  # for its steps
    waits = np.sort(random.exponential((N,), 2.5, seed=1, dtype=dtype).numpy().astype(float))
    assert waits.min() >= 0.0
    assert kolmogorov_smirnov(waits, 1.0 - np.exp(-waits / 2.5)) < limit
    tops = np.sort(random.gumbel((N,), -1.0, 2.0, seed=2, dtype=dtype).numpy().astype(float))
    assert kolmogorov_smirnov(tops, np.exp(-np.exp(-(tops + 1.0) / 2.0))) < limit


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
def test_a_fraction_whose_logarithm_is_taken_lies_between_0_and_1(dtype: DType) -> None:
    """The ends of the range of words; the last 128 of them round to 1 in float32."""
    for word in (0, 1, 0xFFFFFFFF - 127, 0xFFFFFFFF):
        words = const(word, dtypes.uint32), const(word, dtypes.uint32)
        (fraction,) = evaluate([random._positive_fraction(words, dtype)])
        assert 0.0 < fraction < 1.0, word


SHARES = np.array([0.1, 0.0, 0.25, 0.65])


def chi_squared(drawn: np.ndarray, shares: np.ndarray) -> float:
    """The distance of counts from what classes of these shares would have; 0 for no share."""
    counts = np.bincount(drawn.reshape(-1), minlength=len(shares))
    expected = shares * drawn.size
    assert not counts[shares == 0].any()
    some = shares > 0
    return float(np.sum((counts - expected)[some] ** 2 / expected[some]))


def test_categorical() -> None:
    logits = np.log(np.maximum(SHARES, 1e-300)) + 3.0
    drawn = random.categorical(Tensor(logits), (N,), seed=3)
    assert drawn.dtype is dtypes.int64
    assert chi_squared(drawn.numpy(), SHARES) < 9.2  # 2 degrees, 1 %
    lines = np.stack([logits, logits[::-1]], 1)
    two = random.categorical(Tensor(lines), (N, 2), axis=0, seed=4).numpy()
    assert two.shape == (N, 2)
    assert chi_squared(two[:, 0], SHARES) < 9.2
    assert chi_squared(two[:, 1], SHARES[::-1]) < 9.2
    assert random.categorical(Tensor(lines), seed=4).shape == (4,)
    with pytest.raises(ShapeError, match="does not end with"):
        random.categorical(Tensor(lines), (5,))


def test_multinomial() -> None:
    weights = Tensor(np.stack([SHARES * 7.0, SHARES[::-1]]))
    drawn = random.multinomial(weights, N, True, seed=5).numpy()
    assert drawn.shape == (2, N)
    assert chi_squared(drawn[0], SHARES) < 9.2
    assert chi_squared(drawn[1], SHARES[::-1]) < 9.2
    many = Tensor(np.broadcast_to(SHARES, (N, 4)).copy())
    pairs = random.multinomial(many, 2, seed=6).numpy()
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert chi_squared(pairs[:, 0], SHARES) < 9.2
    # The second class, given that the first was 3: the others in proportion.
    after = pairs[pairs[:, 0] == 3, 1]
    assert chi_squared(after, SHARES * [1, 1, 1, 0] / 0.35) < 6.7  # 1 degree
    assert sorted(random.multinomial(Tensor(SHARES), 4, seed=7).tolist())[:3] == [0, 1, 2]
    with pytest.raises(ArgumentError, match="multinomial: 5 of 4 classes"):
        random.multinomial(Tensor(SHARES), 5)


def test_halves() -> None:
    for dtype in (dtypes.float16, dtypes.bfloat16):
        unit = random.uniform((N,), seed=3, dtype=dtype).numpy().astype(np.float32)
        assert unit.min() == 0.0
        assert unit.max() < 1.0
        assert abs(unit.mean() - 0.5) < 0.01
        bell = random.normal((N,), seed=3, dtype=dtype).numpy().astype(np.float32)
        assert abs(bell.std() - 1.0) < 0.02


def test_randint() -> None:
    sample = random.randint((N,), -3, 4, seed=2, dtype=dtypes.int8).numpy()
    counts = np.bincount(sample.astype(int) + 3, minlength=7)
    assert len(counts) == 7
    expected = N / 7
    assert np.sum((counts - expected) ** 2 / expected) < 16.8  # chi-squared, 6 degrees, 1 %


def test_randint_over_every_value() -> None:
    for dtype in (dtypes.int64, dtypes.uint64):
        sample = random.randint((1000,), dtype.min, dtype.max + 1, seed=5, dtype=dtype).numpy()
        middle = (int(dtype.min) + int(dtype.max)) // 2
        assert abs(np.sum(sample > middle) - 500) < 60
        assert len(set(sample.tolist())) == 1000


def test_bernoulli_takes_a_number_or_a_tensor() -> None:
    assert abs(random.bernoulli((N,), 0.3, seed=4).numpy().mean() - 0.3) < 0.01
    chances = Tensor(np.array([0.0, 1.0, 0.5]))
    columns = random.bernoulli((1000, 3), chances, seed=4).numpy().mean(0)
    assert columns[0] == 0.0
    assert columns[1] == 1.0
    assert abs(columns[2] - 0.5) < 0.06


def test_permutation() -> None:
    order = random.permutation(100, seed=1).numpy()
    assert order.tolist() != list(range(100))
    assert sorted(order.tolist()) == list(range(100))
    x = np.arange(12).reshape(3, 4)
    shuffled = random.permutation(Tensor(x), axis=1, seed=3).numpy()
    columns = shuffled[0].tolist()
    np.testing.assert_array_equal(shuffled, x[:, columns])
    assert sorted(columns) == [0, 1, 2, 3]


def test_all_orders_are_equally_likely() -> None:
    keys = random.split(random.key(1), 600)
    seen: dict[tuple[int, ...], int] = {}
    for row in keys.numpy():
        order = tuple(random.permutation(3, key=Tensor(row)).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6
    assert sum((count - 100) ** 2 / 100 for count in seen.values()) < 15.1  # 5 degrees, 1 %


def test_seeds_and_keys() -> None:
    a, b = random.uniform((5,), seed=1).numpy(), random.uniform((5,), seed=1).numpy()
    np.testing.assert_array_equal(a, b)
    assert np.all(a != random.uniform((5,), seed=2).numpy())
    np.testing.assert_array_equal(a, random.uniform((5,), key=random.key(1)).numpy())
    assert np.all(a != random.uniform((5,), seed=1 << 32).numpy())
    np.testing.assert_array_equal(a[:3], random.uniform((3,), seed=1).numpy())


def test_split_keys_are_independent() -> None:
    rows = random.split(random.key(9), 3)
    assert rows.shape == (3, 2)
    assert len({tuple(row) for row in rows.tolist()}) == 3
    first, second = (random.normal((N,), key=Tensor(row)).numpy() for row in rows.numpy()[:2])
    assert abs(np.mean(first * second)) < 0.03


def test_the_generator_advances_and_restarts() -> None:
    random.manual_seed(7)
    a, b = random.normal((4,)).numpy(), random.normal((4,)).numpy()
    assert np.all(a != b)
    random.manual_seed(7)
    np.testing.assert_array_equal(a, random.normal((4,)).numpy())


def test_draws_share_one_graph_but_for_the_key() -> None:
    def text(x: Tensor) -> list[object]:
        return [node.op if node.op is Op.BUFFER else node for node in toposort([x.node])
                if not node.src or node.op is Op.BUFFER]  # fmt: skip

    first, second = random.normal((4,)), random.normal((4,))
    assert text(first) == text(second)
    assert len(toposort([first.node])) == len(toposort([second.node]))


def test_keys_of_a_traced_program() -> None:
    def program() -> np.ndarray:
        return np.concatenate([random.uniform((3,)).numpy(), random.uniform((3,)).numpy()])

    with random.using(random.key(1)):
        a = program()
    with random.using(random.key(1)):
        b = program()
    with random.using(random.key(2)):
        c = program()
    np.testing.assert_array_equal(a, b)
    assert len({*a.tolist(), *c.tolist()}) == 12


def test_a_traced_program_computes_each_key_once_and_all_draws_alike() -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(4):
            x = lm.dropout(x + 1.0, 0.25)
        return x

    with options.using(device="cpu"):
        x, fast = lm.ones((64, 64)).realize(), lm.jit(chain)
        with profile() as records:
            values = fast(x).numpy()
        assert 0 < len(records) <= 6  # four keys, and one or two that compute all draws
        assert abs((values != 0.0).mean() - 0.75) < 0.05
        with profile() as records:
            drawn = lm.jit(lambda: [random.uniform((8,)) for _ in range(4)])()
        assert 0 < len({one.name for one in records}) <= 3  # the first key's, other keys', numbers'
        assert len({value for one in drawn for value in one.tolist()}) == 32


def test_draws_are_equal_on_every_device() -> None:
    def draws(device: str) -> list[np.ndarray]:
        with options.using(device=device):
            return [
                random.uniform((1000,), -0.3, 0.4, seed=1).numpy(),
                random.uniform((1000,), 0.1, 0.4, seed=1, dtype=dtypes.float64).numpy(),
                random.randint((1000,), -5, 6, seed=1).numpy(),
                random.bernoulli((1000,), 0.3, seed=1).numpy(),
                random.permutation(100, seed=1).numpy(),
            ]

    for device in NamespaceInfo().devices():
        for ours, reference in zip(draws(device), draws("interp"), strict=True):
            np.testing.assert_array_equal(ours, reference, device)


def test_empty_and_scalar_shapes() -> None:
    assert random.normal((0, 3)).shape == (0, 3)
    assert random.uniform().shape == ()
    assert random.permutation(0).shape == (0,)
    assert random.randint(4, 0, 9).shape == (4,)


def test_initial_weights() -> None:
    w = random.kaiming_uniform((64, 32, 3, 3), math.sqrt(5), seed=0).numpy()
    bound = 1 / math.sqrt(32 * 9)
    assert bound * 0.99 < abs(w).max() <= bound
    assert abs(random.kaiming_normal((200, 100), seed=0).numpy().std() - math.sqrt(0.02)) < 0.002
    fan_out = random.kaiming_normal((200, 50), mode="fan_out", seed=0).numpy()
    assert abs(fan_out.std() - 0.1) < 0.002
    glorot = random.glorot_uniform((300, 100), seed=0).numpy()
    assert abs(glorot.std() - math.sqrt(2 / 400)) < 0.001
    assert abs(random.glorot_normal((300, 100), 2.0, seed=0).numpy().std() - 0.1414) < 0.003


def test_errors() -> None:
    with pytest.raises(DTypeError, match="int32"):
        random.uniform((2,), dtype=dtypes.int32)
    with pytest.raises(DTypeError, match="float32"):
        random.randint((2,), 0, 2, dtype=dtypes.float32)
    with pytest.raises(ShapeError, match="int8"):
        random.randint((2,), 0, 200, dtype=dtypes.int8)
    with pytest.raises(ShapeError, match="key"):
        random.uniform((2,), key=Tensor([1, 2, 3]))
    with pytest.raises(ShapeError, match="two axes"):
        random.kaiming_normal((3,))
    with pytest.raises(ShapeError, match=r"2\*\*32"):
        random.uniform((1 << 20, 1 << 20))


@pytest.mark.parametrize("draw", [random.normal, random.uniform])
def test_sizes_one_by_one_are_refused(draw: Callable[..., Tensor]) -> None:
    with pytest.raises(ArgumentError, match=rf"{draw.__name__}\(\(2, 3\)\)"):
        draw(2, 3)
    assert draw((2, 3)).shape == (2, 3)
    assert draw(5, 0, 1).shape == (5,)
    assert draw((2,), 3, 4).shape == (2,)


def test_the_shape_comes_first() -> None:
    with pytest.raises(DTypeError, match=r"randint\(shape, low, high\)"):
        random.randint(0, 10, (3,))
    for probabilities in (lm.asarray([0.5, 0.1]), [0.5, 0.1], 0.5):
        with pytest.raises(DTypeError, match=r"bernoulli: .*shape.* comes first"):
            random.bernoulli(probabilities)  # type: ignore[arg-type]


@pytest.mark.parametrize("p", [1.5, -0.1, math.nan, [0.5, 1.5], np.array([-1.0, 0.0])])
def test_known_probabilities_lie_between_0_and_1(p: Any) -> None:
    with pytest.raises(ArgumentError, match=r"bernoulli: .* is no probability"):
        random.bernoulli((2,), p)


def test_scales_are_not_negative() -> None:
    with pytest.raises(ArgumentError, match="normal: std is -1"):
        random.normal((2,), std=-1)
    with pytest.raises(ArgumentError, match="exponential: scale is -1"):
        random.exponential((2,), scale=-1)
    with pytest.raises(ArgumentError, match="gumbel: scale is nan"):
        random.gumbel((2,), scale=math.nan)


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [
        (-1e38, 3e38, dtypes.float32),  # the ends are finite, and what is between is not
        (1e39, 2e39, dtypes.float32),
        (0.0, 1e5, dtypes.float16),
        (-1e308, 1e308, dtypes.float64),
        (0.0, math.nan, dtypes.float32),
        (-math.inf, 0.0, dtypes.float32),
    ],
)
def test_what_is_between_two_ends_is_finite(low: float, high: float, dtype: DType) -> None:
    with pytest.raises(ArgumentError, match=rf"wider than {dtype.name}"):
        random.uniform((3,), low, high, dtype=dtype)


def test_rows_with_keys_of_their_own_are_drawn_as_by_themselves() -> None:
    keys = random.split(random.key(5), 3)
    for draw in (random.uniform, random.normal, random.gumbel):
        for dtype in (lm.float32, lm.float64):
            rows = [draw((4, 2), key=keys[row], dtype=dtype).numpy() for row in range(3)]
            np.testing.assert_array_equal(draw((3, 4, 2), key=keys, dtype=dtype).numpy(), rows)
    with pytest.raises(ShapeError, match=r"uniform: 3 keys for a result of \(2, 3\); each is for"):
        random.uniform((2, 3), key=keys)
    with pytest.raises(ShapeError, match=r"split: \(3, 2\) are several keys; one is needed"):
        random.split(keys)
