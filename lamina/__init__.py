"""A deep learning compiler in thin layers.

The top level is the namespace of the Python array API standard, with what deep learning adds to
it; most functions are methods of `Tensor` as well.
"""

from math import e, inf, nan, pi  # noqa: I001 (the dtypes are a grid)

from lamina import random, tensor
from lamina.dtypes import (
    DType, bfloat16, complex64, complex128, float8_e4m3fn, float8_e5m2, float16, float32, float64,
    int8, int16, int32, int64, uint8, uint16, uint32, uint64,
)  # fmt: skip
from lamina.dtypes import bool_ as bool
from lamina.errors import LaminaError
from lamina.explain import report as _report  # noqa: F401 (LAMINA_DEBUG prints with it)
from lamina.jit import jit
from lamina.options import Options, set_options, using
from lamina.tensor.core import Tensor, checked, default_device
from lamina.tensor.creation import *  # noqa: F403
from lamina.tensor.differentiate import *  # noqa: F403
from lamina.tensor.elementwise import *  # noqa: F403
from lamina.tensor.indexing import *  # noqa: F403
from lamina.tensor.inspection import *  # noqa: F403
from lamina.tensor.linalg import *  # noqa: F403
from lamina.tensor.movement import *  # noqa: F403
from lamina.tensor.neural import *  # noqa: F403
from lamina.tensor.spatial import *  # noqa: F403
from lamina.tensor.realize import realize
from lamina.tensor.reduction import *  # noqa: F403

__version__ = "0.1.0"
__array_api_version__ = "2024.12"
newaxis = None

__all__ = [
    "DType", "LaminaError", "Options", "Tensor", "bfloat16", "bool", "complex64", "complex128",
    "default_device", "e", "float8_e4m3fn", "float8_e5m2", "float16", "float32", "float64", "inf",
    "int8", "int16", "int32", "int64", "jit", "nan", "newaxis", "pi", "random", "realize",
    "set_options", "uint8", "uint16", "uint32", "uint64", "using",
]  # fmt: skip
for _part in list(vars(tensor).values()):
    __all__ += (_names := getattr(_part, "__all__", []))
    globals().update((_name, checked(getattr(_part, _name))) for _name in _names)
realize = checked(realize)
vars(random).update((_name, checked(getattr(random, _name))) for _name in random.__all__)
