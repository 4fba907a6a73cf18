"""What every model of a file is."""

from __future__ import annotations

from typing import Any

__all__ = ["Network"]


class Network:
    """A function of tensors, made from a configuration and weights. Its attributes are named as in
    the files of the Hugging Face hub, so that `lamina.nn.state_dict` gives the names of these."""

    config: Any  # a dataclass of the family
