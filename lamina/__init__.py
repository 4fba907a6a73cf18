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

from lamina.dtypes import (
    DType, bfloat16, complex64, complex128, float8_e4m3fn, float8_e5m2, float16, float32, float64,
    int8, int16, int32, int64, uint8, uint16, uint32, uint64,
)  # fmt: skip
from lamina.dtypes import bool_ as bool
from lamina.errors import LaminaError
from lamina.explain import report as _report  # noqa: F401 (LAMINA_DEBUG prints with it)
from lamina.options import Options, set_options, using
from lamina.seeds import draw as _draw  # noqa: F401 (forks are counted from now on)

if TYPE_CHECKING:  # what type checkers and editors see of `_SEARCHED`
    from lamina import random
    from lamina.lowered import Lowered, TensorSpec
    from lamina.tensor.activations import *  # noqa: F403
    from lamina.tensor.arithmetic import *  # noqa: F403
    from lamina.tensor.core import Tensor, default_device
    from lamina.tensor.creation import *  # noqa: F403
    from lamina.tensor.differentiate import *  # noqa: F403
    from lamina.tensor.dropouts import *  # noqa: F403
    from lamina.tensor.elementwise import *  # noqa: F403
    from lamina.tensor.indexing import *  # noqa: F403
    from lamina.tensor.inspection import *  # noqa: F403
    from lamina.tensor.linalg import *  # noqa: F403
    from lamina.tensor.lookup import *  # noqa: F403
    from lamina.tensor.losses import *  # noqa: F403
    from lamina.tensor.movement import *  # noqa: F403
    from lamina.tensor.neural import *  # noqa: F403
    from lamina.tensor.padding import *  # noqa: F403
    from lamina.tensor.pooling import *  # noqa: F403
    from lamina.tensor.products import *  # noqa: F403
    from lamina.tensor.projection import *  # noqa: F403
    from lamina.tensor.realize import realize
    from lamina.tensor.rearrange import *  # noqa: F403
    from lamina.tensor.reduction import *  # noqa: F403
    from lamina.tensor.resize import *  # noqa: F403
    from lamina.tensor.scatter import *  # noqa: F403
    from lamina.tensor.sequence import *  # noqa: F403
    from lamina.tensor.sets import *  # noqa: F403
    from lamina.tensor.spatial import *  # noqa: F403
    from lamina.tensor.special import *  # noqa: F403
    from lamina.tensor.statistics import *  # noqa: F403
    from lamina.tensor.vision import *  # noqa: F403
    from lamina.tensor.windows import *  # noqa: F403
    from lamina.tracing import jit

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
    "lamina.tensor.core",
    "lamina.tensor.realize",
    "lamina.tensor.creation",
    "lamina.tensor.elementwise",
    "lamina.tensor.movement",
    "lamina.tensor.indexing",
    "lamina.tensor.reduction",
    "lamina.tensor.linalg",
    "lamina.tensor.differentiate",
    "lamina.tensor.inspection",
    "lamina.tensor.spatial",
    "lamina.tracing",
    "lamina.tensor.neural",
    "lamina.tensor.lookup",
    "lamina.tensor.scatter",
    "lamina.tensor.sets",
    "lamina.tensor.padding",
    "lamina.tensor.pooling",
    "lamina.tensor.resize",
    "lamina.tensor.projection",
    "lamina.tensor.activations",
    "lamina.tensor.dropouts",
    "lamina.tensor.losses",
    "lamina.tensor.windows",
    "lamina.tensor.vision",
    "lamina.tensor.sequence",
    "lamina.tensor.arithmetic",
    "lamina.tensor.rearrange",
    "lamina.tensor.products",
    "lamina.tensor.statistics",
    "lamina.tensor.special",
    "lamina.lowered",
)

if not TYPE_CHECKING:  # a checker that sees `__getattr__` takes every name for a public one
    _NAMED = __all__
    del __all__  # `__getattr__` makes the whole list, for which every module has to load

    def _load(name: str) -> list[str]:
        """Take over the public names of the module `name`; functions as users call them."""
        from lamina.tensor.core import checked

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
        from lamina.tensor.core import missing

        raise missing("lamina", name)

    def __dir__() -> list[str]:
        return [*{*globals(), *__getattr__("__all__")}]
