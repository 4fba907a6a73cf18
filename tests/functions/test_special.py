"""Special functions: accuracy against mpmath, special values, and the tables of coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import lamina as lm
from lamina.frontend.functions import chebyshev
from tests.compiled import EACH_TEST, Recorder
from tests.functions.agreement import agree_with_differences, normals

mp: Any = pytest.importorskip("mpmath")


def normal_quantile(p: Any) -> Any:
    """By Newton's method for the logarithm of the smaller tail."""
    tail = min(p, 1 - p)
    y = mp.sqrt(-2 * mp.log(tail)) if tail < 0.1 else mp.mpf(0)
    for _ in range(60):
        share = mp.erfc(y / mp.sqrt(2)) / 2
        y += mp.log(share / tail) * share * mp.sqrt(2 * mp.pi) * mp.exp(y * y / 2)
    return y if p > 0.5 else -y


@pytest.fixture(autouse=True)
def one_program_each(
    recorder: Recorder, also_compiled: None, request: pytest.FixtureRequest
) -> None:
    recorder.kept = EACH_TEST - int(request.node.name.startswith("test_accuracy"))


class Accuracy(NamedTuple):
    """The exact function, intervals of arguments, and the greatest error of a result in units of
    eps times its size, plus `absolute` units of eps near zeros of the function."""

    exact: Callable[[Any], Any]
    intervals: tuple[tuple[float, float], ...]
    units: float = 4.0
    absolute: float = 0.0


# The errors measured are at most two thirds of these limits.
FUNCTIONS: dict[str, Accuracy] = {
    "lgamma": Accuracy(lambda x: mp.log(abs(mp.gamma(x))),
                       ((1e-6, 0.5), (0.5, 3.0), (2.0, 9.0), (8.0, 60.0)), 5.0),
    "digamma": Accuracy(mp.digamma, ((1e-6, 1.0), (1.0, 3.0), (3.0, 1e3)), 5.0, 6.0),
    "erfc": Accuracy(mp.erfc, ((-5.0, 0.5), (0.4, 3.0), (3.0, 9.0)), 5.0),
    "erfcx": Accuracy(lambda x: mp.exp(x * x) * mp.erfc(x), ((-5.0, 0.5), (0.4, 3.0), (3.0, 90.0)),
                      5.0),
    "erfinv": Accuracy(mp.erfinv, ((-0.999, 0.999), (0.99, 0.999999), (1e-9, 1e-3))),
    "ndtr": Accuracy(mp.ncdf, ((-3.0, 5.0),), 12.0),
    "ndtri": Accuracy(normal_quantile, ((1e-35, 1e-9), (1e-9, 0.01), (0.01, 0.49), (0.51, 0.99))),
    "log_ndtr": Accuracy(lambda x: mp.log(mp.ncdf(x)), ((-30.0, 2.0),), 8.0),
    "i0": Accuracy(lambda x: mp.besseli(0, x), ((-12.0, 12.0), (9.0, 80.0)), 8.0),
    "i0e": Accuracy(lambda x: mp.besseli(0, x) * mp.exp(-abs(x)),
                    ((-12.0, 12.0), (9.0, 80.0)), 6.0),
    "i1": Accuracy(lambda x: mp.besseli(1, x), ((-12.0, 12.0), (9.0, 80.0)), 8.0),
    "i1e": Accuracy(lambda x: mp.besseli(1, x) * mp.exp(-abs(x)),
                    ((-12.0, 12.0), (9.0, 80.0)), 6.0),
    "bessel_j0": Accuracy(lambda x: mp.besselj(0, x), ((-8.0, 8.0), (7.0, 40.0)), 4.0, 8.0),
    "bessel_j1": Accuracy(lambda x: mp.besselj(1, x), ((-8.0, 8.0), (7.0, 40.0)), 4.0, 4.0),
    "sinc": Accuracy(mp.sincpi, ((-8.0, 8.0), (-0.3, 0.3))),
    "spherical_bessel_j0": Accuracy(lambda x: mp.sinc(x), ((-2.5, 2.5),)),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy(name: str, dtype: Any) -> None:
    row = FUNCTIONS[name]
    eps = float(np.finfo(dtype).eps)
    draw = np.random.default_rng(0).random(60)
    for low, high in row.intervals:
        wide = low > 0 and high > 1000 * low
        points = low * (high / low) ** draw if wide else low + (high - low) * draw
        x = points.astype(dtype)
        got = getattr(lm, name)(lm.asarray(x)).numpy()
        assert got.dtype == dtype
        for at, found in zip(x, got, strict=True):
            with mp.workdps(40):
                exact = row.exact(mp.mpf(float(at)))
                error = abs(mp.mpf(float(found)) - exact) / eps
            limit = row.units * abs(exact) + row.absolute
            assert error <= limit, (name, at, found, float(exact))


@pytest.mark.parametrize("name", sorted({*FUNCTIONS} - {"bessel_j0", "bessel_j1"}))
def test_special_values_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    x = np.array([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan])
    source = torch.special if hasattr(torch.special, name) else torch
    want = getattr(source, name)(torch.tensor(x)).numpy()
    got = getattr(lm, name)(lm.asarray(x)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-14, atol=1e-14, err_msg=name)


def test_lgamma_where_its_formulas_meet() -> None:
    """At the halves, where the argument is rounded, and 8.5, from where on the series is used."""
    x = np.arange(1, 25) / 2
    want = [math.lgamma(one) for one in x]
    np.testing.assert_allclose(lm.lgamma(lm.asarray(x)).numpy(), want, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("name", ["bessel_j0", "bessel_j1", "spherical_bessel_j0"])
def test_derivatives_that_pytorch_lacks(name: str) -> None:
    x = np.linspace(-17.3, 19.1, 31)
    agree_with_differences(getattr(lm, name), x)
    agree_with_differences(lambda a: lm.gradient(getattr(lm, name)(a).sum(), [a])[0], x)


def test_slopes_at_zero() -> None:
    """Where the formula of one branch would divide by 0."""
    zero = lm.asarray([0.0], dtype=lm.float64)
    for name, first, second in [
        ("sinc", 0.0, -np.pi**2 / 3), ("spherical_bessel_j0", 0.0, -1 / 3), ("i0", 0.0, 0.5),
        ("i1", 0.5, 0.0), ("bessel_j1", 0.5, 0.0), ("erfinv", np.sqrt(np.pi) / 2, 0.0),
    ]:  # fmt: skip
        (slope,) = lm.gradient(getattr(lm, name)(zero).sum(), [zero])
        (bend,) = lm.gradient(slope.sum(), [zero])
        np.testing.assert_allclose([slope.item(), bend.item()], [first, second], atol=1e-12,
                                   err_msg=name)  # fmt: skip


def test_zeta_by_its_exponent() -> None:
    agree_with_differences(lm.zeta, np.array([1.5, 2.0, 6.5]), np.array([0.3, 2.0, 30.0]))


def test_multivariate_gamma_by_its_definition() -> None:
    x = np.abs(normals(4)) + 2.0
    terms = [mp.loggamma(one - mp.mpf(j) / 2) for one in x for j in range(4)]
    sums = [sum(terms[at : at + 4]) + 3 * mp.log(mp.pi) for at in range(0, 16, 4)]
    got = lm.multigammaln(lm.asarray(x), 4).numpy()
    np.testing.assert_allclose(got, np.array(sums, float), rtol=1e-13)


# The tables: each function of t in [-1, 1] that `lamina/frontend/functions/chebyshev.py` names.


def erfinv_ratio(w: Any) -> Any:
    """erfinv(x) / x of w = -log(1 - x**2)."""
    x = mp.sqrt(-mp.expm1(-w))
    # The upper tail beyond x, which is exact where x is nearly 1.
    return -normal_quantile(mp.exp(-w) / (1 + x) / 2) / mp.sqrt(2) / x


def between(low: float, high: float, t: Any) -> Any:
    return low + (mp.mpf(high) - low) * (1 + t) / 2


def hankel(order: int, t: Any) -> Any:
    """The first Hankel function without its oscillation, its real part and x times the other."""
    x = 8 / mp.sqrt((1 + t) / 2)
    turned = mp.expj(-(x - (2 * order + 1) * mp.pi / 4))
    value = mp.hankel1(order, x) * mp.sqrt(mp.pi * x / 2) * turned
    return value.real, value.imag * x


def scaled_i(order: int, t: Any) -> Any:
    x = 20 / (1 + t)
    return mp.sqrt(x) * mp.exp(-x) * mp.besseli(order, x)


def scaled_erfc(t: Any) -> Any:
    x = 3 * (1 + t) / (1 - t)
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


def tail_of_erfinv(t: Any) -> Any:
    u = between(1 / mp.mpf("27.5"), 1 / mp.mpf(4), t)
    return erfinv_ratio(1 / u**2) * u


TABLES: dict[str, Callable[[Any], Any]] = {
    "ERFCX": scaled_erfc,
    "ERFINV_CENTRE": lambda t: erfinv_ratio(between(0, 6.25, t)),
    "ERFINV_MIDDLE": lambda t: erfinv_ratio(between(2.5, 4, t) ** 2),
    "ERFINV_TAIL": tail_of_erfinv,
    "LGAMMA": lambda t: mp.loggamma(2 + t / 2) / (t / 2),
    "BESSEL_I0": lambda t: scaled_i(0, t),
    "BESSEL_I1": lambda t: scaled_i(1, t),
    "BESSEL_J0": lambda t: mp.besselj(0, mp.sqrt(32 * (1 + t))),
    "BESSEL_J1": lambda t: (lambda x: mp.besselj(1, x) / x)(mp.sqrt(32 * (1 + t))),
    "BESSEL_P0": lambda t: hankel(0, t)[0],
    "BESSEL_Q0": lambda t: hankel(0, t)[1],
    "BESSEL_P1": lambda t: hankel(1, t)[0],
    "BESSEL_Q1": lambda t: hankel(1, t)[1],
}


@pytest.mark.parametrize("name", TABLES)
def test_coefficients(name: str) -> None:
    """Interpolation in the roots of the Chebyshev polynomial of a degree beyond the table's. All
    coefficients agree to float64, and the first one left out is below it."""
    table = getattr(chebyshev, name)
    with mp.workdps(50):
        count = 2 * len(table) + 2  # even, as some functions are 0 / 0 at t = 0
        angles = [mp.pi * (k + mp.mpf(1) / 2) / count for k in range(count)]
        heights = [TABLES[name](mp.cos(angle)) for angle in angles]
        coefficients = []
        for degree in range(len(table) + 1):
            waves = [mp.cos(degree * angle) for angle in angles]
            total = sum(y * wave for y, wave in zip(heights, waves, strict=True))
            coefficients.append(float(total * (2 if degree else 1) / count))
    size = max(map(abs, table))
    np.testing.assert_allclose(coefficients[:-1], table, rtol=1e-15, atol=size * 2.0**-60)
    assert abs(coefficients[-1]) < size * 2.0**-55


def test_every_table_is_made_again() -> None:
    assert {name for name in vars(chebyshev) if name.isupper()} == {*TABLES}
