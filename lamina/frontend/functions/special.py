"""Special functions, under the names that PyTorch and SciPy share.

All are functions of floats; integers become the default float, and halves are computed in float32.
"""

from lamina.errors import ArgumentError
from lamina.frontend.arguments import integer
from lamina.frontend.functions import bessel_math as bm
from lamina.frontend.functions import special_math as sm
from lamina.frontend.functions.elementwise import WIDE, clip
from lamina.frontend.tensor import Data, Tensor

__all__ = [
    "bessel_j0", "bessel_j1", "digamma", "entr", "erfc", "erfcx", "erfinv", "i0", "i0e", "i1",
    "i1e", "lgamma", "log_ndtr", "logit", "multigammaln", "ndtr", "ndtri", "polygamma", "sinc",
    "spherical_bessel_j0", "xlog1py", "xlogy", "zeta",
]  # fmt: skip

# The gamma function.
lgamma = WIDE.unary("lgamma", "The logarithm of the absolute value of the gamma function.",
                    sm.lgamma)  # fmt: skip
digamma = WIDE.unary("digamma", "The derivative of `lgamma`; NaN at -1, -2, ...", sm.digamma)
zeta = WIDE.binary("zeta", "The zeta function of Hurwitz, the sum of (x2 + k)**-x1 over k >= 0, "
                   "for x1 > 1 and x2 > 0; infinite at its poles and NaN elsewhere.",
                   sm.zeta)  # fmt: skip


def polygamma(n: int, x: Data) -> Tensor:
    """The derivative of order `n` of `digamma`."""
    order = integer("polygamma", n, 0)
    return WIDE("polygamma", lambda a: sm.polygamma(a, order), x)


def multigammaln(x: Data, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension `p`, for x > (p - 1) / 2."""
    order = integer("multigammaln", p, 1)
    return WIDE("multigammaln", lambda a: sm.multigammaln(a, order), x)


# The normal distribution and the error function.
erfc = WIDE.unary("erfc", "1 - erf(x), with all digits where that is small.", sm.erfc)
erfcx = WIDE.unary("erfcx", "exp(x**2) erfc(x), which does not underflow.", sm.erfcx)
erfinv = WIDE.unary("erfinv", "The inverse of `erf`, infinite at -1 and 1.", sm.erfinv)
ndtr = WIDE.unary("ndtr", "The distribution function of the standard normal distribution.", sm.ndtr)
ndtri = WIDE.unary("ndtri", "The inverse of `ndtr`: the quantile of a probability.", sm.ndtri)
log_ndtr = WIDE.unary("log_ndtr", "The logarithm of `ndtr`, finite in the lower tail.", sm.log_ndtr)

# Logarithms in information theory.
entr = WIDE.unary("entr", "-x log(x), the entropy of a probability; 0 at 0, -inf below.", sm.entr)
xlogy = WIDE.binary("xlogy", "x1 log(x2); 0 where x1 is 0, unless x2 is NaN.", sm.xlogy)
xlog1py = WIDE.binary("xlog1py", "x1 log(1 + x2); 0 where x1 is 0, unless x2 is NaN.", sm.xlog1py)


def logit(x: Data, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of `sigmoid`; with `eps`, of x limited to eps..1 - eps."""
    if eps is None:
        return WIDE("logit", sm.logit, x)
    if not 0 <= eps <= 0.5:
        raise ArgumentError(f"eps={eps} is not within 0..0.5", operation="logit")
    return WIDE("logit", sm.logit, clip(x, eps, 1 - eps))


# Bessel functions, and the sine over its argument.
i0 = WIDE.unary("i0", "The modified Bessel function of the first kind, of order 0.", bm.i0)
i0e = WIDE.unary("i0e", "exp(-|x|) times `i0`.", bm.i0e)
i1 = WIDE.unary("i1", "The modified Bessel function of the first kind, of order 1.", bm.i1)
i1e = WIDE.unary("i1e", "exp(-|x|) times `i1`.", bm.i1e)
bessel_j0 = WIDE.unary("bessel_j0", "The Bessel function of the first kind, of order 0.", bm.j0)
bessel_j1 = WIDE.unary("bessel_j1", "The Bessel function of the first kind, of order 1.", bm.j1)
spherical_bessel_j0 = WIDE.unary("spherical_bessel_j0", "sin(x) / x, 1 at 0.",
                                 sm.spherical_bessel_j0)  # fmt: skip
sinc = WIDE.unary("sinc", "sin(pi x) / (pi x), 1 at 0.", sm.sinc)
