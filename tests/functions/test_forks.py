"""Random numbers of forked workers: different from each other, and the same in each run."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.test_layers import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

# `in_child(function)` returns what a forked child computes.
PROGRAM = """
import json, os
import lamina as lm

def key():
    return lm.random.next_key(device="interp").tolist()

def in_child(function):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, json.dumps(function()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as file:
        return json.loads(file.read())

def seeded():
    lm.random.manual_seed(7)
    return key()
"""


def run(lines: str) -> list[list[int]]:
    """The list `keys` after `lines`, in a fresh process."""
    code = f"{PROGRAM}\n{lines}\nprint(json.dumps(keys))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    keys: list[list[int]] = json.loads(done.stdout)
    return keys


def all_differ(keys: list[list[int]]) -> bool:
    return len({tuple(key) for key in keys}) == len(keys)


@pytest.mark.parametrize("before", ["", "key()", "lm.random.manual_seed(3)"])
def test_parent_children_and_grandchildren_draw_different_numbers(before: str) -> None:
    """Also where nobody has drawn, and the module of random numbers is not loaded, at the fork."""
    lines = f"""
{before}
keys = [in_child(key), in_child(key), in_child(lambda: in_child(key)), key(), in_child(key)]
keys += in_child(lambda: [key(), in_child(key), in_child(key), key()])
"""
    keys = run(lines)
    assert len(keys) == 9
    assert all_differ(keys)
    assert run(lines) == keys


def test_a_seed_repeats_the_workers_within_a_process() -> None:
    lines = """
keys = []
for _ in range(2):
    lm.random.manual_seed(3)
    keys += [in_child(key), in_child(key), key()]
"""
    keys = run(lines)
    assert keys[:3] == keys[3:]
    assert all_differ(keys[:3])


def test_forks_leave_the_numbers_of_the_parent() -> None:
    alone = run("lm.random.manual_seed(3)\nkeys = [key(), key()]")
    lines = """
lm.random.manual_seed(3)
in_child(key)
keys = [key()]
in_child(key)
keys += [key()]
"""
    assert run(lines) == alone


def test_a_seed_that_a_child_sets_is_a_seed_like_any_other() -> None:
    keys = run("keys = [seeded(), in_child(seeded), in_child(lambda: in_child(seeded))]")
    assert keys[0] == keys[1] == keys[2]
