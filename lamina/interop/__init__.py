"""Doors: programs that people have for other libraries run on lamina as they are."""
