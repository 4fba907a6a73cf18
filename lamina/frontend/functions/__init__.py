"""The functions on tensors, one file a family."""
