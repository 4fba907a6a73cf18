"""Training programs on a GPU: what is trained, in lamina and in PyTorch, and how it is measured."""
