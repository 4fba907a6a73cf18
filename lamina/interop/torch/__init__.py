"""PyTorch programs on lamina: ``torch.compile(model, backend="lamina")``.

PyTorch finds `backend` by the entry point ``torch_dynamo_backends`` of the installed package.
"""

from lamina.interop.torch.backend import backend
from lamina.interop.torch.explain import Explanation, explain

__all__ = ["Explanation", "backend", "explain"]
