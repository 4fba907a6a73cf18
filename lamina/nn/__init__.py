"""Layers and optimisers: plain classes with tensors as attributes.

Names, layouts, initial values and meaning are PyTorch's, so that published weights load by name.
"""

from lamina.nn import optim, schedules  # noqa: I001 (the layers are a grid)
from lamina.nn.layers import (
    GRU, LSTM, BatchNorm, BatchNorm1d, BatchNorm2d, BatchNorm3d, Conv1d, Conv2d, Conv3d,
    ConvTranspose1d, ConvTranspose2d, ConvTranspose3d, Dropout, Embedding, GroupNorm, InstanceNorm,
    LayerNorm, Linear, MultiheadAttention, RMSNorm, Sequential,
)  # fmt: skip
from lamina.nn.state import eval, load_state_dict, parameters, state_dict, train

__all__ = [
    "GRU", "LSTM", "BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d",
    "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Dropout", "Embedding",
    "GroupNorm", "InstanceNorm", "LayerNorm", "Linear", "MultiheadAttention", "RMSNorm",
    "Sequential", "eval", "load_state_dict", "optim", "parameters", "schedules", "state_dict",
    "train",
]  # fmt: skip
