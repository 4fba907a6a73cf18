"""A deep learning compiler in thin layers.

The top level is the namespace of the Python array API standard, with what deep learning adds to
it; most functions are methods of `Tensor` as well.

`import lamina` reads the options and loads no tensors: functions, and submodules such as
`lamina.nn`, load when they are first asked for (PEP 562).
"""

from importlib import import_module  # noqa: I001 (the dtypes are a grid)
from importlib.util import find_spec
from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Any

from lamina.core.dtypes import (
    DType, bfloat16, complex64, complex128, float8_e4m3fn, float8_e5m2, float16, float32, float64,
    int8, int16, int32, int64, uint8, uint16, uint32, uint64,
)  # fmt: skip
from lamina.core.dtypes import bool_ as bool
from lamina.errors import LaminaError
from lamina.core.options import Options, set_options, using
from lamina.core.seeds import SEEDS as _SEEDS  # noqa: F401 (forks are counted from now on)

if TYPE_CHECKING:  # what type checkers and editors see of `_SEARCHED`
    from lamina import datasets as datasets
    from lamina import distributed as distributed
    from lamina import io as io
    from lamina import models as models
    from lamina import nn as nn
    from lamina import random as random
    from lamina import text as text
    from lamina.frontend.differentiate import *  # noqa: F403
    from lamina.frontend.functions.activations import *  # noqa: F403
    from lamina.frontend.functions.arithmetic import *  # noqa: F403
    from lamina.frontend.functions.attention import *  # noqa: F403
    from lamina.frontend.functions.creation import *  # noqa: F403
    from lamina.frontend.functions.dropouts import *  # noqa: F403
    from lamina.frontend.functions.elementwise import *  # noqa: F403
    from lamina.frontend.functions.indexing import *  # noqa: F403
    from lamina.frontend.functions.inspection import *  # noqa: F403
    from lamina.frontend.functions.linalg import *  # noqa: F403
    from lamina.frontend.functions.lookup import *  # noqa: F403
    from lamina.frontend.functions.losses import *  # noqa: F403
    from lamina.frontend.functions.movement import *  # noqa: F403
    from lamina.frontend.functions.neural import *  # noqa: F403
    from lamina.frontend.functions.padding import *  # noqa: F403
    from lamina.frontend.functions.pooling import *  # noqa: F403
    from lamina.frontend.functions.products import *  # noqa: F403
    from lamina.frontend.functions.projection import *  # noqa: F403
    from lamina.frontend.functions.rearrange import *  # noqa: F403
    from lamina.frontend.functions.reduction import *  # noqa: F403
    from lamina.frontend.functions.resize import *  # noqa: F403
    from lamina.frontend.functions.scatter import *  # noqa: F403
    from lamina.frontend.functions.sequence import *  # noqa: F403
    from lamina.frontend.functions.sets import *  # noqa: F403
    from lamina.frontend.functions.spatial import *  # noqa: F403
    from lamina.frontend.functions.special import *  # noqa: F403
    from lamina.frontend.functions.statistics import *  # noqa: F403
    from lamina.frontend.functions.vision import *  # noqa: F403
    from lamina.frontend.functions.windows import *  # noqa: F403
    from lamina.frontend.jit import jit
    from lamina.frontend.lowered import Lowered, TensorSpec
    from lamina.frontend.realize import realize
    from lamina.frontend.tensor import Tensor, default_device

__version__ = "0.1.0"
__array_api_version__ = "2024.12"
newaxis = None

__all__ = [
    "DType", "LaminaError", "Lowered", "Options", "Tensor", "TensorSpec", "bfloat16", "bool",
    "complex64", "complex128", "default_device", "e", "float8_e4m3fn", "float8_e5m2", "float16",
    "float32", "float64", "inf", "int8", "int16", "int32", "int64", "jit", "nan", "newaxis", "pi",
    "random", "realize", "set_options", "uint8", "uint16", "uint32", "uint64", "using",
]  # fmt: skip

# The modules whose `__all__` is public. A name is looked for in this order, and modules load until
# it is found, so a module that few programs need, or that is large, comes late.
_SEARCHED = (
    "lamina.frontend.tensor",
    "lamina.frontend.realize",
    "lamina.frontend.functions.creation",
    "lamina.frontend.functions.elementwise",
    "lamina.frontend.functions.movement",
    "lamina.frontend.functions.indexing",
    "lamina.frontend.functions.reduction",
    "lamina.frontend.functions.linalg",
    "lamina.frontend.differentiate",
    "lamina.frontend.functions.inspection",
    "lamina.frontend.functions.spatial",
    "lamina.frontend.jit",
    "lamina.frontend.functions.neural",
    "lamina.frontend.functions.attention",
    "lamina.frontend.functions.lookup",
    "lamina.frontend.functions.scatter",
    "lamina.frontend.functions.sets",
    "lamina.frontend.functions.padding",
    "lamina.frontend.functions.pooling",
    "lamina.frontend.functions.resize",
    "lamina.frontend.functions.projection",
    "lamina.frontend.functions.activations",
    "lamina.frontend.functions.dropouts",
    "lamina.frontend.functions.losses",
    "lamina.frontend.functions.windows",
    "lamina.frontend.functions.vision",
    "lamina.frontend.functions.sequence",
    "lamina.frontend.functions.arithmetic",
    "lamina.frontend.functions.rearrange",
    "lamina.frontend.functions.products",
    "lamina.frontend.functions.statistics",
    "lamina.frontend.functions.special",
    "lamina.frontend.lowered",
)

if not TYPE_CHECKING:  # a checker that sees `__getattr__` takes every name for a public one
    _NAMED = __all__
    del __all__  # `__getattr__` makes the whole list, for which every module has to load

    def _load(name: str) -> list[str]:
        """Take over the public names of the module `name`; functions as users call them."""
        from lamina.frontend.tensor import checked

        module = import_module(name)
        for public in module.__all__:
            value = getattr(module, public)
            globals()[public] = value if isinstance(value, type) else checked(value, public)
        return module.__all__

    def __getattr__(name: str) -> Any:
        """A name that is asked for the first time: a submodule, or what one of `_SEARCHED` has."""
        if name == "__all__":
            searched = [public for module in _SEARCHED for public in _load(module)]
            globals()[name] = [*dict.fromkeys(_NAMED + searched)]
            return globals()[name]
        private = name.startswith("_") and name != "__array_namespace_info__"
        if private:  # what Python itself asks modules for
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name.isidentifier() and find_spec(f"{__name__}.{name}"):
            return import_module(f"{__name__}.{name}")
        for module in _SEARCHED:
            if name in _load(module):
                return globals()[name]
        from lamina.frontend.tensor import missing

        raise missing("lamina", name)

    def __dir__() -> list[str]:
        return [*{*globals(), *__getattr__("__all__")}]
