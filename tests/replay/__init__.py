"""The generated text of a fixed set of programs, recorded at one commit and compared at another.

    python -m tests.replay record before.json
    (change the compiler)
    python -m tests.replay compare before.json

A change that is meant to keep every kernel shows no difference.
"""
