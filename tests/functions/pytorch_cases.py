"""Calls of functions beyond the standard beside PyTorch's, on fixed inputs.

Each case has our call, PyTorch's (which gets the module `torch` first, as it is optional), the
operands, and how many derivatives are compared. Operands keep away from kinks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import lamina as lm
from tests.functions.agreement import Array, distinct, normals


class Case(NamedTuple):
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    operands: tuple[Array, ...]
    derivatives: int = 2
    tolerance: float = 1e-9


Cases = dict[str, list[Case]]
X, Y, Z = (normals(3, 4, seed=seed) for seed in range(3))
ROW = normals(4, seed=9)
MASK = np.array([[True, False, True, True], [False, False, True, False], [True, True, False, True]])
BATCH, OTHER = normals(2, 3, 4, seed=3), normals(2, 4, 5, seed=4)
RANKED = distinct(3, 5)
HOLES = np.where(RANKED % 3 == 0, np.nan, RANKED)
ROUGH = np.array([[-2.5, -1.5, 0.5, 7.25], [3.5, -0.75, 1.25, -4.5], [0.1, 2.2, -3.3, 5.1]])
POSITIVE = np.abs(X) + 0.1
SHARES = np.array([0.02, 0.25, 0.6, 0.97])
COUNTS = np.array([3, 0, 2, 3, 3, 7])
RUNS = np.array([1, 1, 2, 2, 2, 1, 3, 3])
BLOCKS = [np.arange(4.0).reshape(2, 2), np.arange(3.0), np.array(5.0)]


def same(name: str, *operands: Array, theirs: str = "", derivatives: int = 2) -> Case:
    """A function of tensors alone that both libraries have."""

    def other(torch: Any, *tensors: Any) -> Any:
        short = theirs or name
        return getattr(torch if hasattr(torch, short) else torch.special, short)(*tensors)

    return Case(getattr(lm, name), other, operands, derivatives)


def call(name: str, *operands: Array, derivatives: int = 2, **options: Any) -> Case:
    """A function with options of the same names, but for `axis` and `keepdims`."""
    renamed = {{"axis": "dim", "keepdims": "keepdim"}.get(key, key): value
               for key, value in options.items()}  # fmt: skip
    return Case(
        lambda *tensors: getattr(lm, name)(*tensors, **options),
        lambda torch, *tensors: getattr(torch, name)(*tensors, **renamed),
        operands, derivatives,
    )  # fmt: skip


def smooth(name: str, low: float, high: float, theirs: str = "") -> list[Case]:
    return [same(name, np.linspace(low, high, 23), theirs=theirs)]


def part(which: int, case: Case, derivatives: int | None = None) -> Case:
    """One of several results."""
    return Case(
        lambda *tensors: case.ours(*tensors)[which],
        lambda torch, *tensors: case.theirs(torch, *tensors)[which],
        case.operands, case.derivatives if derivatives is None else derivatives,
    )  # fmt: skip


def ranked(case: Case) -> list[Case]:
    """Values and, without derivatives, their places."""
    return [part(0, case), part(1, case, 0)]


ARITHMETIC: Cases = {
    "addcmul": [call("addcmul", X, Y, ROW, value=0.5)],
    "addcdiv": [call("addcdiv", X, Y, POSITIVE, value=-2.0)],
    "lerp": [same("lerp", X, Y, Z), Case(lambda a, b: lm.lerp(a, b, 0.75),
             lambda torch, a, b: torch.lerp(a, b, 0.75), (X, Y))],
    "fmod": [same("fmod", ROUGH, np.full((3, 4), 1.3), derivatives=1),
             same("fmod", ROUGH, np.array([-1.3, 0.7, -2.0, 3.1]), derivatives=1)],
    "fmax": [same("fmax", X, Y), same("fmax", HOLES, np.flip(HOLES, 1).copy(), derivatives=0)],
    "fmin": [same("fmin", X, Y), same("fmin", HOLES, np.flip(HOLES, 1).copy(), derivatives=0)],
    "heaviside": [same("heaviside", np.array([-1.0, -0.0, 0.0, 2.0]), ROW[:1],
                       derivatives=0)],
    "logaddexp2": [same("logaddexp2", X, Y), same(
        "logaddexp2", np.array([900.0, -np.inf, np.inf]), np.array([900.0, -np.inf, 1.0]),
        derivatives=0)],
    "frac": [same("frac", ROUGH)],
    "deg2rad": [same("deg2rad", ROUGH)],
    "rad2deg": [same("rad2deg", ROUGH)],
    "isposinf": [same("isposinf", np.array([np.inf, -np.inf, np.nan, 1.0]), derivatives=0)],
    "isneginf": [same("isneginf", np.array([np.inf, -np.inf, np.nan, 1.0]), derivatives=0)],
    "float_power": [same("float_power", POSITIVE, Y),
                    same("float_power", COUNTS, np.array(2), derivatives=0)],
    "frexp": [part(0, same("frexp", np.array([0.0, -3.0, 0.5, 1e-310, 1e300, np.inf, np.nan])), 0),
              part(1, same("frexp", np.array([0.0, -3.0, 0.5, 5e-324, 1e300, 1.0])), 0),
              part(0, same("frexp", ROUGH), 1)],
    "ldexp": [same("ldexp", X, np.array([[3.0], [-2.0], [0.0]]))],
    "isclose": [call("isclose", np.array([1.0, 1.1, np.inf, np.nan, -np.inf]),
                     np.array([1.0 + 1e-9, 1.0, np.inf, np.nan, np.inf]), equal_nan=flag,
                     derivatives=0) for flag in (False, True)],
    "angle": [same("angle", ROUGH, derivatives=1)],
}  # fmt: skip

SPECIAL: Cases = {
    "lgamma": [*smooth("lgamma", 0.05, 30), *smooth("lgamma", -5.4, -0.3)],
    "digamma": [*smooth("digamma", 0.05, 30), *smooth("digamma", -5.4, -0.3)],
    "polygamma": [
        Case(lambda x, n=n: lm.polygamma(n, x), lambda torch, x, n=n: torch.polygamma(n, x),
             (np.linspace(low, high, 11),), 1, 1e-8)
        for n in range(4) for low, high in ((0.3, 9.0), (-2.8, -2.2))],
    "multigammaln": [call("multigammaln", POSITIVE + 1.1, p=3)._replace(
        theirs=lambda torch, x: torch.special.multigammaln(x, 3), tolerance=1e-8)],
    "zeta": [Case(lambda q: lm.zeta(3.5, q), lambda torch, q: torch.special.zeta(3.5, q),
                  (np.linspace(0.1, 20, 15),)),
             same("zeta", np.array([1.0, 0.5, 2.0, 2.5]), np.array([2.0, 2.0, 0.0, 1e6]),
                  derivatives=0)],
    "erfc": [*smooth("erfc", -3, 6)],
    "erfcx": [*smooth("erfcx", -3, 8)],
    "erfinv": [*smooth("erfinv", -0.96, 0.99)],
    "ndtr": [*smooth("ndtr", -6, 6)],
    "ndtri": [*smooth("ndtri", 0.01, 0.98)],
    "log_ndtr": [*smooth("log_ndtr", -9, 4)],
    "entr": [*smooth("entr", 0.1, 3), same("entr", np.array([0.0, -1.0]), derivatives=0)],
    "xlogy": [same("xlogy", X, POSITIVE), same("xlogy", np.array([0.0, 0.0, 0.0]),
              np.array([0.0, np.nan, -1.0]), derivatives=0)],
    "xlog1py": [same("xlog1py", X, POSITIVE), same("xlog1py", np.array([0.0, 0.0, 0.0]),
                np.array([-1.0, np.nan, -3.0]), derivatives=0)],
    "logit": [same("logit", SHARES), Case(lambda x: lm.logit(x, 0.1),
              lambda torch, x: torch.logit(x, 0.1), (SHARES,))],
    "i0": [*smooth("i0", -11, 11)],
    "i0e": [*smooth("i0e", -14, 14)],
    "i1": [*smooth("i1", -11, 11.1)],
    "i1e": [*smooth("i1e", -14, 14.1)],
    "sinc": [*smooth("sinc", -3.3, 3.4)],
    # PyTorch's own are good for float32 alone, and lack derivatives.
    "bessel_j0": [same("bessel_j0", np.linspace(-20, 20, 41), derivatives=0)._replace(
        tolerance=1e-5)],
    "bessel_j1": [same("bessel_j1", np.linspace(-20, 20, 41), derivatives=0)._replace(
        tolerance=1e-5)],
    "spherical_bessel_j0": [same("spherical_bessel_j0", np.linspace(-20, 20, 41), derivatives=0)],
}  # fmt: skip

STATISTICS: Cases = {
    "kthvalue": ranked(call("kthvalue", RANKED, k=2, axis=1)),
    "median": [call("median", RANKED), *ranked(call("median", RANKED, axis=0, keepdims=True)),
               *ranked(call("median", HOLES, axis=1, derivatives=0))],
    "nanmedian": [call("nanmedian", HOLES, derivatives=0),
                  *ranked(call("nanmedian", HOLES, axis=1, derivatives=0)),
                  part(0, call("nanmedian", RANKED, axis=0))],
    "mode": ranked(call("mode", np.floor(RANKED / 3), axis=1, derivatives=0)),
    "quantile": [
        Case(lambda x, q, way=way: lm.quantile(x, q, 1, interpolation=way),
             lambda torch, x, q, way=way: torch.quantile(x, q, 1, interpolation=way),
             (RANKED, SHARES), 0 if way == "nearest" else 1)
        for way in ("linear", "lower", "higher", "midpoint")] + [
        Case(lambda x, way=way: lm.quantile(x, 0.3, 0, True, interpolation=way),
             lambda torch, x, way=way: torch.quantile(x, 0.3, 0, True, interpolation=way),
             (RANKED,)) for way in ("linear", "lower", "higher", "midpoint", "nearest")] + [
        Case(lambda x: lm.quantile(x, 0.4), lambda torch, x: torch.quantile(x, 0.4), (HOLES,), 0)],
    "nanquantile": [
        Case(lambda x, way=way: lm.nanquantile(x, [0.1, 0.5], 1, interpolation=way),
             lambda torch, x, way=way: torch.nanquantile(
                 x, torch.tensor([0.1, 0.5], dtype=x.dtype), 1, interpolation=way), (HOLES,), 0)
        for way in ("linear", "lower", "higher", "midpoint", "nearest")],
    "nansum": [call("nansum", HOLES, axis=0), call("nansum", HOLES, axis=1, keepdims=True)],
    "nanmean": [call("nanmean", HOLES, axis=0), call("nanmean", HOLES)],
    "aminmax": [part(which, call("aminmax", RANKED, axis=1)._replace(  # differentiable in 2.11 too
        theirs=lambda torch, x: (torch.amin(x, 1), torch.amax(x, 1)))) for which in (0, 1)],
    "var_mean": [part(which, call("var_mean", X, axis=1, correction=1)) for which in (0, 1)],
    "std_mean": [part(which, call("std_mean", X, axis=0, correction=0)) for which in (0, 1)],
    "cov": [same("cov", X), same("cov", ROW), call("cov", X, correction=0),
            Case(lambda x, f, w: lm.cov(x, fweights=f, aweights=w),
                 lambda torch, x, f, w: torch.cov(x, fweights=f, aweights=w.abs()),
                 (X, np.array([1, 2, 1, 3]), np.abs(ROW)))],
    "corrcoef": [same("corrcoef", X)],
    "bincount": [same("bincount", COUNTS, derivatives=0),
                 Case(lambda x, w: lm.bincount(x, w, 9),
                      lambda torch, x, w: torch.bincount(x, w.detach(), 9),
                      (COUNTS, np.arange(6.0)), 0)],
    "histogram": [
        *(part(which, Case(lambda x: lm.histogram(x, 4), lambda torch, x: torch.histogram(x, 4),
                           (X,), 0)) for which in (0, 1)),
        part(0, Case(lambda x, w: lm.histogram(x, 3, range=(-1, 1), weight=w, density=True),
                     lambda torch, x, w: torch.histogram(
                         x, 3, range=(-1, 1), weight=w, density=True), (X, POSITIVE), 0)),
        part(0, same("histogram", X, np.array([-1.0, -0.2, 0.0, 2.0])), 0)],
    "histc": [call("histc", X, bins=5, derivatives=0),
              call("histc", X, bins=4, min=-1, max=1, derivatives=0)],
    "cumsum": [call("cumsum", X, axis=1)],
    "cumprod": [call("cumprod", X, axis=0)],
    "logcumsumexp": [call("logcumsumexp", normals(2, 9) * 30, axis=1),
                     call("logcumsumexp", np.array([-np.inf, -np.inf, 1.0, np.inf, 2.0]), axis=0,
                          derivatives=0)],
    "trapezoid": [call("trapezoid", X, axis=0)._replace(
                      theirs=lambda torch, x: torch.trapezoid(x, dx=1.0, dim=0)),
                  same("trapezoid", X, np.cumsum(POSITIVE, 1))],
    "cumulative_trapezoid": [same("cumulative_trapezoid", X, np.cumsum(np.abs(ROW)))],
}  # fmt: skip

PRODUCTS: Cases = {
    "addmm": [call("addmm", ROW[:3], X, OTHER[0][:, :3], beta=0.5, alpha=-1.5)],
    "addmv": [call("addmv", ROW[:3], X, ROW, alpha=2.0)],
    "addr": [call("addr", X, ROW[:3], ROW, beta=2.0)],
    "baddbmm": [call("baddbmm", ROW[0], BATCH, OTHER, beta=-1.0),
                call("baddbmm", np.array(np.nan), BATCH, OTHER, beta=0.0, derivatives=0)],
    "addbmm": [call("addbmm", ROW[0], BATCH, OTHER, alpha=0.5)],
    "inner": [same("inner", BATCH, X), same("inner", X, np.array(2.0))],
    "vdot": [same("vdot", ROW, ROW[::-1].copy())],
    "kron": [same("kron", X, ROW[:2]), same("kron", ROW, BATCH)],
    "multi_dot": [Case(lambda *a: lm.multi_dot(a), lambda torch, *a: torch.linalg.multi_dot(a),
                       (ROW[:3], X, OTHER[0], normals(5)))],
    "cross": [Case(lambda a, b: lm.cross(a, b, axis=0),
                   lambda torch, a, b: torch.linalg.cross(a, b, dim=0), (X, Y))],
    "vander": [same("vander", ROW, derivatives=0),  # PyTorch cannot differentiate it
               call("vander", ROW, N=3, increasing=True, derivatives=0)],
    "cdist": [Case(lambda a, b, p=p: lm.cdist(a, b, p),
                   lambda torch, a, b, p=p: torch.cdist(a, b, p), (X, Y[:2]), 1)
              for p in (1.0, 2.0, 3.0, np.inf)],
    "pdist": [Case(lambda x, p=p: lm.pdist(x, p), lambda torch, x, p=p: torch.pdist(x, p), (X,), 1)
              for p in (1.0, 2.0, 3.5)],
    "dist": [Case(lambda a, b, p=p: lm.dist(a, b, p), lambda torch, a, b, p=p: torch.dist(a, b, p),
                  (X, Y)) for p in (1, 2, 3)],
    "pairwise_distance": [
        Case(lambda a, b: lm.pairwise_distance(a, b, 3.0, keepdims=True),
             lambda torch, a, b: torch.nn.functional.pairwise_distance(a, b, 3.0, keepdim=True),
             (X, Y))],
    "renorm": [Case(lambda x: lm.renorm(x, 2, 0, 1.5), lambda torch, x: torch.renorm(x, 2, 0, 1.5),
                    (X,), 1)],
}  # fmt: skip


def listed(name: str, *operands: Array, theirs: str = "") -> Case:
    """A function of a sequence of tensors."""
    return Case(lambda *a: getattr(lm, name)(a),
                lambda torch, *a: getattr(torch, theirs or name)(a), operands)  # fmt: skip


def pieces(name: str, x: Array, where: Any) -> list[Case]:
    """The first and the last of several pieces."""
    return [part(which, Case(lambda a: getattr(lm, name)(a, where),
                             lambda torch, a: getattr(torch, name)(a, where), (x,)))
            for which in (0, -1)]  # fmt: skip


REARRANGE: Cases = {
    **{name: [same(name, one) for one in (X, ROW, BATCH[0], *BLOCKS)]
       for name in ("atleast_1d", "atleast_2d", "atleast_3d")},
    **{name: [listed(name, X, Y), listed(name, ROW, ROW)]
       for name in ("hstack", "vstack", "dstack", "column_stack")},
    "block_diag": [same("block_diag", *BLOCKS)],
    "cartesian_prod": [same("cartesian_prod", ROW, ROW[:2], ROW[:3])],
    "combinations": [same("combinations", ROW),
                     call("combinations", ROW, r=3, with_replacement=True),
                     call("combinations", ROW[:1], r=2)],
    "tensor_split": [case for where in (3, (1, 2), (2, -1), 7)
                     for case in pieces("tensor_split", normals(5, 2), where)],
    "hsplit": [*pieces("hsplit", X, 2), *pieces("hsplit", ROW, (1,))],
    "vsplit": pieces("vsplit", X, 3),
    "dsplit": pieces("dsplit", BATCH, (1, 3)),
    "narrow": [Case(lambda x: lm.narrow(x, 1, -3, 2), lambda torch, x: torch.narrow(x, 1, -3, 2),
                    (X,))],
    "select": [Case(lambda x: lm.select(x, -1, -2), lambda torch, x: torch.select(x, -1, -2),
                    (X,))],
    "select_scatter": [Case(lambda x, s: lm.select_scatter(x, s, 0, 1),
                            lambda torch, x, s: torch.select_scatter(x, s, 0, 1), (X, ROW))],
    "slice_scatter": [Case(lambda x, s: lm.slice_scatter(x, s, 1, 0, 4, 2),
                           lambda torch, x, s: torch.slice_scatter(x, s, 1, 0, 4, 2),
                           (X, Y[:, :2].copy()))],
    "diagonal_scatter": [
        Case(lambda x, s, k=k: lm.diagonal_scatter(x, s, k),
             lambda torch, x, s, k=k: torch.diagonal_scatter(x, s, k),
             (X, ROW[: len(np.diagonal(X, k))])) for k in (-3, -1, 0, 1, 3)] + [
        Case(lambda x, s: lm.diagonal_scatter(x, s, -1, 2, 0),
             lambda torch, x, s: torch.diagonal_scatter(x, s, -1, 2, 0), (BATCH, normals(3, 2)))],
    "masked_select": [same("masked_select", X, MASK), same("masked_select", ROW, MASK)],
    "masked_scatter": [same("masked_scatter", X, MASK, Y)],
    "unflatten": [Case(lambda x: lm.unflatten(x, 1, (2, -1)),
                       lambda torch, x: torch.unflatten(x, 1, (2, -1)), (X,))],
    "fliplr": [same("fliplr", X)],
    "flipud": [same("flipud", ROW)],
    "rot90": [Case(lambda x, k=k: lm.rot90(x, k, (0, 2)), lambda torch, x, k=k: torch.rot90(
        x, k, (0, 2)), (BATCH,)) for k in range(-1, 4)],
    "sum_to_size": [Case(lambda x: lm.sum_to_size(x, 3, 1), lambda torch, x: x.sum_to_size(3, 1),
                         (BATCH,))],
    "diagflat": [call("diagflat", X, offset=-1)],
    "diag_embed": [
        Case(lambda x, k=k: lm.diag_embed(x, k, 0, -1), lambda torch, x, k=k: torch.diag_embed(
            x, k, 0, -1), (X,)) for k in (-2, 0, 1)],
    "argwhere": [same("argwhere", np.floor(X), derivatives=0),
                 same("argwhere", np.array(3.0), derivatives=0)],
    "isin": [same("isin", COUNTS, RUNS, derivatives=0), call("isin", HOLES, np.array([0.0, np.nan]),
             invert=True, derivatives=0), same("isin", COUNTS, RUNS[:0], derivatives=0)],
    "bucketize": [call("bucketize", ROUGH, np.array([-1.5, 0.5, 3.5]), right=right, derivatives=0)
                  for right in (False, True)],
    "unique_consecutive": [
        same("unique_consecutive", RUNS, derivatives=0),
        *(part(which, call("unique_consecutive", RUNS.reshape(2, 4), return_inverse=True,
                           return_counts=True, derivatives=0)) for which in range(3)),
        *(part(which, call("unique_consecutive", np.repeat(COUNTS.reshape(2, 3), [2, 1], 0), axis=0,
                           return_inverse=True, return_counts=True, derivatives=0))
          for which in range(3))],
}  # fmt: skip

TABLES: dict[str, Cases] = {
    "arithmetic": ARITHMETIC, "special": SPECIAL, "statistics": STATISTICS, "products": PRODUCTS,
    "rearrange": REARRANGE,
}  # fmt: skip
CASES: Cases = {name: cases for table in TABLES.values() for name, cases in table.items()}
