"""The schedule language: loop nests, the moves that change them, and their verifier."""
