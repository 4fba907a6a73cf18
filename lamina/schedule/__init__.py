"""Heuristics and search: which moves a kernel gets on which device."""
