"""Files of tensors."""

from lamina.io import gguf as gguf
from lamina.io import safetensors as safetensors
