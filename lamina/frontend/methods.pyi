"""The methods and operators that `lamina.frontend` attaches to `Tensor`, for editors and
type checkers. Generated: pytest tests/test_methods.py --refresh-golden writes it."""

from typing import Any

from lamina.frontend import differentiate as _differentiate
from lamina.frontend.functions import arithmetic as _arithmetic
from lamina.frontend.functions import elementwise as _elementwise
from lamina.frontend.functions import indexing as _indexing
from lamina.frontend.functions import inspection as _inspection
from lamina.frontend.functions import linalg as _linalg
from lamina.frontend.functions import movement as _movement
from lamina.frontend.functions import padding as _padding
from lamina.frontend.functions import products as _products
from lamina.frontend.functions import rearrange as _rearrange
from lamina.frontend.functions import reduction as _reduction
from lamina.frontend.functions import scatter as _scatter
from lamina.frontend.functions import sets as _sets
from lamina.frontend.functions import special as _special
from lamina.frontend.functions import statistics as _statistics
from lamina.frontend.tensor import Tensor

class Methods:
    @property
    def T(self) -> Tensor: ...  # noqa: N802
    abs = _elementwise.abs
    acos = _elementwise.acos
    acosh = _elementwise.acosh
    add = _elementwise.add
    addbmm = _products.addbmm
    addcdiv = _arithmetic.addcdiv
    addcmul = _arithmetic.addcmul
    addmm = _products.addmm
    addmv = _products.addmv
    addr = _products.addr
    all = _reduction.all
    allclose = _arithmetic.allclose
    aminmax = _statistics.aminmax
    angle = _arithmetic.angle
    any = _reduction.any
    argmax = _reduction.argmax
    argmin = _reduction.argmin
    argsort = _reduction.argsort
    argwhere = _rearrange.argwhere
    array_equal = _arithmetic.array_equal
    asin = _elementwise.asin
    asinh = _elementwise.asinh
    astype = _inspection.astype
    atan = _elementwise.atan
    atan2 = _elementwise.atan2
    atanh = _elementwise.atanh
    backward = _differentiate.backward
    baddbmm = _products.baddbmm
    bessel_j0 = _special.bessel_j0
    bessel_j1 = _special.bessel_j1
    bincount = _statistics.bincount
    bitwise_and = _elementwise.bitwise_and
    bitwise_invert = _elementwise.bitwise_invert
    bitwise_left_shift = _elementwise.bitwise_left_shift
    bitwise_or = _elementwise.bitwise_or
    bitwise_right_shift = _elementwise.bitwise_right_shift
    bitwise_xor = _elementwise.bitwise_xor
    broadcast_to = _movement.broadcast_to
    bucketize = _rearrange.bucketize
    cdist = _products.cdist
    ceil = _elementwise.ceil
    chunk = _movement.chunk
    clip = _elementwise.clip
    combinations = _rearrange.combinations
    conj = _elementwise.conj
    copysign = _elementwise.copysign
    corrcoef = _statistics.corrcoef
    cos = _elementwise.cos
    cosh = _elementwise.cosh
    count_nonzero = _reduction.count_nonzero
    cov = _statistics.cov
    cross = _products.cross
    cummax = _reduction.cummax
    cummin = _reduction.cummin
    cumprod = _statistics.cumprod
    cumsum = _statistics.cumsum
    cumulative_prod = _reduction.cumulative_prod
    cumulative_sum = _reduction.cumulative_sum
    cumulative_trapezoid = _statistics.cumulative_trapezoid
    deg2rad = _arithmetic.deg2rad
    diag = _movement.diag
    diag_embed = _rearrange.diag_embed
    diagflat = _rearrange.diagflat
    diagonal = _movement.diagonal
    diagonal_scatter = _rearrange.diagonal_scatter
    diff = _reduction.diff
    digamma = _special.digamma
    dist = _products.dist
    divide = _elementwise.divide
    dot = _linalg.dot
    dsplit = _rearrange.dsplit
    elu = _elementwise.elu
    entr = _special.entr
    equal = _elementwise.equal
    erf = _elementwise.erf
    erfc = _special.erfc
    erfcx = _special.erfcx
    erfinv = _special.erfinv
    exp = _elementwise.exp
    exp2 = _elementwise.exp2
    expand = _movement.expand
    expand_dims = _movement.expand_dims
    expm1 = _elementwise.expm1
    flatten = _movement.flatten
    flip = _movement.flip
    fliplr = _rearrange.fliplr
    flipud = _rearrange.flipud
    float_power = _arithmetic.float_power
    floor = _elementwise.floor
    floor_divide = _elementwise.floor_divide
    fmax = _arithmetic.fmax
    fmin = _arithmetic.fmin
    fmod = _arithmetic.fmod
    frac = _arithmetic.frac
    frexp = _arithmetic.frexp
    gather = _scatter.gather
    gelu = _elementwise.gelu
    greater = _elementwise.greater
    greater_equal = _elementwise.greater_equal
    hardsigmoid = _elementwise.hardsigmoid
    hardswish = _elementwise.hardswish
    heaviside = _arithmetic.heaviside
    histc = _statistics.histc
    histogram = _statistics.histogram
    hsplit = _rearrange.hsplit
    hypot = _elementwise.hypot
    i0 = _special.i0
    i0e = _special.i0e
    i1 = _special.i1
    i1e = _special.i1e
    @property
    def imag(self) -> Tensor: ...
    index_add = _scatter.index_add
    index_copy = _scatter.index_copy
    index_fill = _scatter.index_fill
    index_reduce = _scatter.index_reduce
    index_select = _scatter.index_select
    inner = _products.inner
    isclose = _arithmetic.isclose
    isfinite = _elementwise.isfinite
    isin = _rearrange.isin
    isinf = _elementwise.isinf
    isnan = _elementwise.isnan
    isneginf = _arithmetic.isneginf
    isposinf = _arithmetic.isposinf
    kron = _products.kron
    kthvalue = _statistics.kthvalue
    ldexp = _arithmetic.ldexp
    leaky_relu = _elementwise.leaky_relu
    lerp = _arithmetic.lerp
    less = _elementwise.less
    less_equal = _elementwise.less_equal
    lgamma = _special.lgamma
    log = _elementwise.log
    log10 = _elementwise.log10
    log1p = _elementwise.log1p
    log2 = _elementwise.log2
    log_ndtr = _special.log_ndtr
    log_softmax = _reduction.log_softmax
    logaddexp = _elementwise.logaddexp
    logaddexp2 = _arithmetic.logaddexp2
    logcumsumexp = _statistics.logcumsumexp
    logical_and = _elementwise.logical_and
    logical_not = _elementwise.logical_not
    logical_or = _elementwise.logical_or
    logical_xor = _elementwise.logical_xor
    logit = _special.logit
    logsigmoid = _elementwise.logsigmoid
    logsumexp = _reduction.logsumexp
    @property
    def mT(self) -> Tensor: ...  # noqa: N802
    masked_fill = _elementwise.masked_fill
    masked_scatter = _rearrange.masked_scatter
    masked_select = _rearrange.masked_select
    matmul = _linalg.matmul
    matrix_norm = _linalg.matrix_norm
    matrix_transpose = _movement.matrix_transpose
    max = _reduction.max
    maximum = _elementwise.maximum
    mean = _reduction.mean
    median = _statistics.median
    min = _reduction.min
    minimum = _elementwise.minimum
    mish = _elementwise.mish
    mode = _statistics.mode
    moveaxis = _movement.moveaxis
    multigammaln = _special.multigammaln
    multiply = _elementwise.multiply
    nan_to_num = _elementwise.nan_to_num
    nanmean = _statistics.nanmean
    nanmedian = _statistics.nanmedian
    nanquantile = _statistics.nanquantile
    nansum = _statistics.nansum
    narrow = _rearrange.narrow
    ndtr = _special.ndtr
    ndtri = _special.ndtri
    negative = _elementwise.negative
    nextafter = _elementwise.nextafter
    nonzero = _indexing.nonzero
    norm = _reduction.norm
    not_equal = _elementwise.not_equal
    outer = _linalg.outer
    pad = _padding.pad
    pairwise_distance = _products.pairwise_distance
    pdist = _products.pdist
    permute = _movement.permute
    permute_dims = _movement.permute_dims
    positive = _elementwise.positive
    pow = _elementwise.pow
    prod = _reduction.prod
    put = _scatter.put
    quantile = _statistics.quantile
    rad2deg = _arithmetic.rad2deg
    @property
    def real(self) -> Tensor: ...
    reciprocal = _elementwise.reciprocal
    relu = _elementwise.relu
    relu6 = _elementwise.relu6
    remainder = _elementwise.remainder
    renorm = _products.renorm
    repeat = _movement.repeat
    reshape = _movement.reshape
    roll = _movement.roll
    rot90 = _rearrange.rot90
    round = _elementwise.round
    rsqrt = _elementwise.rsqrt
    scatter = _scatter.scatter
    scatter_add = _scatter.scatter_add
    scatter_reduce = _scatter.scatter_reduce
    searchsorted = _sets.searchsorted
    select = _rearrange.select
    select_scatter = _rearrange.select_scatter
    sigmoid = _elementwise.sigmoid
    sign = _elementwise.sign
    signbit = _elementwise.signbit
    silu = _elementwise.silu
    sin = _elementwise.sin
    sinc = _special.sinc
    sinh = _elementwise.sinh
    slice_scatter = _rearrange.slice_scatter
    softmax = _reduction.softmax
    softplus = _elementwise.softplus
    softsign = _elementwise.softsign
    sort = _reduction.sort
    spherical_bessel_j0 = _special.spherical_bessel_j0
    split = _movement.split
    sqrt = _elementwise.sqrt
    square = _elementwise.square
    squeeze = _movement.squeeze
    std = _reduction.std
    std_mean = _statistics.std_mean
    subtract = _elementwise.subtract
    sum = _reduction.sum
    sum_to_size = _rearrange.sum_to_size
    take = _indexing.take
    take_along_axis = _indexing.take_along_axis
    tan = _elementwise.tan
    tanh = _elementwise.tanh
    tensor_split = _rearrange.tensor_split
    tensordot = _linalg.tensordot
    tile = _movement.tile
    topk = _reduction.topk
    trace = _linalg.trace
    transpose = _movement.transpose
    trapezoid = _statistics.trapezoid
    trunc = _elementwise.trunc
    unflatten = _rearrange.unflatten
    unique = _sets.unique
    unique_all = _sets.unique_all
    unique_consecutive = _rearrange.unique_consecutive
    unique_counts = _sets.unique_counts
    unique_inverse = _sets.unique_inverse
    unique_values = _sets.unique_values
    unsqueeze = _movement.unsqueeze
    unstack = _movement.unstack
    vander = _products.vander
    var = _reduction.var
    var_mean = _statistics.var_mean
    vdot = _products.vdot
    vecdot = _linalg.vecdot
    view_as_complex = _arithmetic.view_as_complex
    view_as_real = _arithmetic.view_as_real
    vsplit = _rearrange.vsplit
    xlog1py = _special.xlog1py
    xlogy = _special.xlogy
    zeta = _special.zeta
    def __abs__(self) -> Tensor: ...
    def __add__(self, other: Any, /) -> Tensor: ...
    def __and__(self, other: Any, /) -> Tensor: ...
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any: ...
    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any: ...
    def __dlpack__(self, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, int]: ...
    def __eq__(self, other: Any, /) -> Tensor: ...  # type: ignore[override]
    def __floordiv__(self, other: Any, /) -> Tensor: ...
    def __ge__(self, other: Any, /) -> Tensor: ...
    def __getitem__(self, key: Any) -> Tensor: ...
    def __gt__(self, other: Any, /) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __le__(self, other: Any, /) -> Tensor: ...
    def __lshift__(self, other: Any, /) -> Tensor: ...
    def __lt__(self, other: Any, /) -> Tensor: ...
    def __matmul__(self, other: Any, /) -> Tensor: ...
    def __mod__(self, other: Any, /) -> Tensor: ...
    def __mul__(self, other: Any, /) -> Tensor: ...
    def __ne__(self, other: Any, /) -> Tensor: ...  # type: ignore[override]
    def __neg__(self) -> Tensor: ...
    def __or__(self, other: Any, /) -> Tensor: ...
    def __pos__(self) -> Tensor: ...
    def __pow__(self, other: Any, /) -> Tensor: ...
    def __radd__(self, other: Any, /) -> Tensor: ...
    def __rand__(self, other: Any, /) -> Tensor: ...
    def __rfloordiv__(self, other: Any, /) -> Tensor: ...
    def __rlshift__(self, other: Any, /) -> Tensor: ...
    def __rmatmul__(self, other: Any, /) -> Tensor: ...
    def __rmod__(self, other: Any, /) -> Tensor: ...
    def __rmul__(self, other: Any, /) -> Tensor: ...
    def __ror__(self, other: Any, /) -> Tensor: ...
    def __rpow__(self, other: Any, /) -> Tensor: ...
    def __rrshift__(self, other: Any, /) -> Tensor: ...
    def __rshift__(self, other: Any, /) -> Tensor: ...
    def __rsub__(self, other: Any, /) -> Tensor: ...
    def __rtruediv__(self, other: Any, /) -> Tensor: ...
    def __rxor__(self, other: Any, /) -> Tensor: ...
    def __setitem__(self, key: Any, value: Any) -> None: ...
    def __sub__(self, other: Any, /) -> Tensor: ...
    def __truediv__(self, other: Any, /) -> Tensor: ...
    def __xor__(self, other: Any, /) -> Tensor: ...
    @staticmethod
    def _stack(data: Any) -> Tensor: ...
