"""Printers: a loop nest becomes the text of a kernel."""
