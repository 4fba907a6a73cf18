"""Dtypes (Python array API standard, section "Data Types", and narrower floats)."""

from functools import cached_property
from typing import Any

Scalar = bool | int | float | complex


class DType:
    """An element type. The instances below are the only ones; compare them with ``is``."""

    def __init__(self, name: str, kind: str, bits: int, precision: int = 0, least: int = 0) -> None:
        self.name = name
        self.kind = kind  # "bool", "uint", "int", "float" or "complex"
        self.bits = bits
        self.itemsize = bits // 8
        self.precision = precision or bits  # of a float, the bits of its significand
        self.least = least or -bits  # of a float, the exponent of its least normal number
        self.is_float = kind == "float"
        self.is_small = self.is_float and bits < 32
        self.is_complex = kind == "complex"
        self.is_int = kind in ("int", "uint")
        self.python: type[Any] = {"bool": bool, "float": float, "complex": complex}.get(kind, int)
        signed = 1 << (bits - 1)
        most = 448.0 if name == "float8_e4m3fn" else float("inf")  # "fn": it has no infinity
        self.min: Scalar = {"float": -most, "int": -signed}.get(kind, 0)
        self.max: Scalar = {"float": most, "int": signed - 1, "bool": 1}.get(kind, 2 * signed - 1)

    def __repr__(self) -> str:
        return f"lamina.{self.name}"

    def __reduce__(self) -> str:
        return "bool_" if self.name == "bool" else self.name

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and other == self.name)

    __hash__ = object.__hash__

    @cached_property
    def numpy(self) -> Any:
        """The NumPy dtype; bfloat16 and float8 come from the package ml_dtypes."""
        import numpy

        if self.is_small:
            import ml_dtypes  # noqa: F401 -- tells NumPy the names

        return numpy.dtype(self.name)


bool_ = DType("bool", "bool", 8)
int8, int16, int32, int64 = (DType(f"int{n}", "int", n) for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (DType(f"uint{n}", "uint", n) for n in (8, 16, 32, 64))
float8_e4m3fn = DType("float8_e4m3fn", "float", 8, 4, -6)
float8_e5m2 = DType("float8_e5m2", "float", 8, 3, -14)
float16 = DType("float16", "float", 16, 11, -14)
bfloat16 = DType("bfloat16", "float", 16, 8, -126)
float32 = DType("float32", "float", 32, 24, -126)
float64 = DType("float64", "float", 64, 53, -1022)
complex64, complex128 = (DType(f"complex{n}", "complex", n) for n in (64, 128))

ALL: tuple[DType, ...] = tuple(one for one in list(globals().values()) if isinstance(one, DType))
BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in ALL}
SHORT: dict[DType, str] = {  # such as u8, i64, bf16 and c64
    dtype: dtype.name.replace("float", "f").replace("uint", "u").replace("int", "i")
    .replace("complex", "c") for dtype in ALL
}  # fmt: skip
STORAGE_ONLY = (float8_e4m3fn, float8_e5m2)

default_float = float32
default_int = int64
default_complex = complex64


def real_of(dtype: DType) -> DType:
    """The dtype of a complex dtype's parts; any other dtype unchanged."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def complex_of(dtype: DType) -> DType:
    """The complex dtype whose parts hold `dtype`."""
    return complex128 if dtype in (float64, complex128) else complex64


def accumulator(dtype: DType) -> DType:
    """The dtype to add many numbers of `dtype` in: halves lose small terms in a long sum."""
    return float32 if dtype.is_small else dtype
