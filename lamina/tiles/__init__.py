"""The tile dialect: what the threads of a block do with tiles, between a loop nest and its text."""
