"""PyTorch programs through ``torch.compile(f, backend="lamina")`` beside Inductor and eager."""
