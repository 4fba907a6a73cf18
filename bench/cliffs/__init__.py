"""Drawn programs: where lamina is much slower than its peers, or wrong, on programs that nobody
chose. See ``bench/README.md``."""
