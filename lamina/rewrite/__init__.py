"""Rewriting by rules: equations as data, compiled to Python, applied to a fixed point."""
