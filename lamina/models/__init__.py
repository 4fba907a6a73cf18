"""Model families, made of the layers of `lamina.nn` and of parts of their own.

`load` reads a model from a GGUF file or from a folder as on the Hugging Face hub.
"""

from lamina.models.loading import Model as Model
from lamina.models.loading import load as load
