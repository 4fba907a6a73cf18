"""PyTorch programs on lamina: ``torch.compile(model, backend="lamina")``.

PyTorch finds `backend` by the entry point ``torch_dynamo_backends`` of the installed package.
"""

from lamina.interop.torch.compiled import UnsupportedOperationError
from lamina.interop.torch.dynamo import backend
from lamina.interop.torch.explain import Explanation, explain

__all__ = ["Explanation", "UnsupportedOperationError", "backend", "explain"]
