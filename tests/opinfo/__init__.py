"""PyTorch's database of operations (OpInfo) as an oracle: each by name, on its samples."""
