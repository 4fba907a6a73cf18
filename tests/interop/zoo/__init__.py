"""Architectures of transformers, timm and torchvision, with random weights, through the door."""
