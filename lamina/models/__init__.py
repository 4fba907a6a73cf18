"""Model families, made of the layers of `lamina.nn`."""
