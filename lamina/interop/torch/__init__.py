"""PyTorch programs on lamina: ``torch.compile(model, backend="lamina")``, and modules and exported
programs as functions of lamina's tensors: `from_module`, `from_exported`.

PyTorch finds `backend` by the entry point ``torch_dynamo_backends`` of the installed package.
"""

from lamina.interop.torch.broken import BrokenGraphError
from lamina.interop.torch.compiled import UnsupportedOperationError
from lamina.interop.torch.dynamo import backend
from lamina.interop.torch.explain import Explanation, explain
from lamina.interop.torch.imported import ImportedFunction, from_exported, from_module

__all__ = [
    "BrokenGraphError", "Explanation", "ImportedFunction", "UnsupportedOperationError", "backend",
    "explain", "from_exported", "from_module",
]  # fmt: skip
