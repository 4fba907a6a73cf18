"""Models in the format of ONNX as functions of lamina's tensors: `load`.

Needs the package ``onnx``, which ``pip install 'lamina[onnx]'`` brings.
"""

from lamina.interop.onnx.errors import OnnxError

try:
    import onnx as _onnx  # noqa: F401
except ModuleNotFoundError as error:
    raise OnnxError(
        "lamina.interop.onnx reads models with the package onnx: pip install 'lamina[onnx]'"
    ) from error

from lamina.interop.onnx.graph import Model, load

__all__ = ["Model", "OnnxError", "load"]
