"""A deep learning compiler in thin layers.

The top level is the namespace of the Python array API standard, with what deep learning adds to
it; most functions are methods of `Tensor` as well.
"""

from math import e, inf, nan, pi

from lamina import random
from lamina.dtypes import (
    DType, bfloat16, complex64, complex128, float8_e4m3fn, float8_e5m2, float16, float32, float64,
    int8, int16, int32, int64, uint8, uint16, uint32, uint64,
)  # fmt: skip
from lamina.dtypes import bool_ as bool
from lamina.errors import LaminaError
from lamina.options import Options, set_options, using
from lamina.tensor import MODULES
from lamina.tensor.activation import *  # noqa: F403
from lamina.tensor.core import Tensor, default_device
from lamina.tensor.creation import *  # noqa: F403
from lamina.tensor.differentiate import *  # noqa: F403
from lamina.tensor.elementwise import *  # noqa: F403
from lamina.tensor.indexing import *  # noqa: F403
from lamina.tensor.inspection import *  # noqa: F403
from lamina.tensor.interop import from_dlpack
from lamina.tensor.movement import *  # noqa: F403
from lamina.tensor.product import *  # noqa: F403
from lamina.tensor.realize import realize
from lamina.tensor.reduction import *  # noqa: F403

__version__ = "0.1.0"
__array_api_version__ = "2024.12"
newaxis = None

for _module in MODULES:
    globals().update({name: getattr(_module, name) for name in _module.__all__})
