"""Files of tensors."""

from lamina.io import safetensors

__all__ = ["safetensors"]
