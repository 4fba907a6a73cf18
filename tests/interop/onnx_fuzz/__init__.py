"""Mutated files of ONNX: `python -m tests.interop.onnx_fuzz --count 10000`."""
