"""What goes wrong with a model of ONNX."""

from lamina.errors import LaminaError


class OnnxError(LaminaError, ValueError):
    """A model that breaks ONNX's rules, asks for what lamina cannot run, or got arguments that do
    not fit. The message names the node and its operator."""

    is_located = False  # whether the message names the node
