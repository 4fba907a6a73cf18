"""What goes wrong with a model of ONNX."""

from lamina.errors import LaminaError


class OnnxError(LaminaError, ValueError):
    """A model that breaks ONNX's rules, asks for what lamina cannot run, or got arguments that do
    not fit. The message names the node and its operator."""

    is_located = False  # whether the message names the node


class RowError(OnnxError):
    """A node made lamina's code for its operator fail in a way that no model should: a defect of
    lamina. The cause has what went wrong, and where."""
