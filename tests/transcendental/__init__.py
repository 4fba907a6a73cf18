"""Expansions of transcendental functions against references nobody here wrote."""
