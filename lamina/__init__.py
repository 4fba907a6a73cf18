"""A deep learning compiler in thin layers."""
