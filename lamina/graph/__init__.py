"""Passes from graph to graph: rewrite rules, algebra, movement of data, derivatives."""
