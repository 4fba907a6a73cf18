"""Transcendental functions against references nobody here wrote."""
