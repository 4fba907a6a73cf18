"""Measurements of lamina beside its peers: ``python -m bench cpu``."""
