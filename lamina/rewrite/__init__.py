"""Rewriting by rules: equations as data, applied to a fixed point."""
