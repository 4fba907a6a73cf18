"""Files of tensors."""

from lamina.io import safetensors as safetensors
