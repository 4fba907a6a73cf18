"""Models of text that two processes share: vectors, logits, gradients, texts, and the command."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpi4py", reason="two processes need pip install mpi4py mpich")

from lamina import Tensor
from lamina.distributed import setup
from lamina.distributed.mesh import Axis
from lamina.errors import ShapeError
from lamina.models.sharing import Cut, divided, part_of
from tests.distributed.launching import ROOT, environment_of, launch
from tests.distributed.small_models import ENCODERS, FAMILIES, saved
from tests.models import families
from tests.models.gguf_models import written

PAIR = Axis("pair", 2, 1)


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the second of two."""
    monkeypatch.setattr(setup, "_joined", [setup._Process(1, 2)])


@pytest.mark.usefixtures("second")
def test_a_part_is_read_and_nothing_else() -> None:
    rows = np.arange(28, dtype=np.float32).reshape(7, 4)
    last = part_of(Tensor(rows), Cut(0, padded=True), PAIR, "cpu")
    assert isinstance(last, Tensor)
    np.testing.assert_array_equal(last.numpy(), [*rows[4:], np.zeros(4)])
    columns = part_of(Tensor(rows), Cut(1, pieces=2), PAIR, "cpu")
    assert isinstance(columns, Tensor)
    np.testing.assert_array_equal(columns.numpy(), rows[:, [1, 3]])


def test_what_does_not_divide_is_refused() -> None:
    with pytest.raises(ShapeError, match="3 heads of keys, which 2 processes cannot share"):
        divided(3, PAIR, "heads of keys")


@pytest.mark.parametrize("part", [0, 1])
def test_two_processes_have_the_logits_gradients_and_texts_of_one(
    part: int, tmp_path: Path
) -> None:
    """Of each family, half of them at once, with a vocabulary that two do not divide."""
    names = list(FAMILIES)[part::2]
    for name in names:
        saved(name, tmp_path / name)
    folders = [str(tmp_path / name) for name in names]
    ran = launch("models.py", *folders, device="interp")
    assert ran.status == 0, ran.errors
    assert ran.output.count("all is well") == 2 * len(names)


def test_two_processes_have_the_vectors_of_one(tmp_path: Path) -> None:
    for name in ENCODERS:
        saved(name, tmp_path / name)
    ran = launch("encoders.py", *(str(tmp_path / name) for name in ENCODERS), device="interp")
    assert ran.status == 0, ran.errors
    assert ran.output.count("all is well") == 2 * len(ENCODERS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_two_processes_compiled(name: str, tmp_path: Path) -> None:
    """In C, a minute for each."""
    saved(name, tmp_path / name)
    ran = launch("models.py", str(tmp_path / name))
    assert ran.status == 0, ran.errors


def test_the_command_writes_a_text_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a quantised model, as one process writes it; of its rows each process has whole blocks."""
    monkeypatch.setitem(families.SIZES, "intermediate_size", 128)
    path = tmp_path / "model.gguf"
    written("llama", path)
    generate = ["-m", "lamina", "generate", str(path), "pip", "--max-tokens", "3"]
    alone = run([sys.executable, *generate])
    launched = [sys.executable, "-m", "lamina", "launch", "-n", "2", "--device", "interp"]
    together = run([*launched, *generate])
    assert together.stdout == alone.stdout
    assert len(re.findall("tokens read", together.stderr)) == 1


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = environment_of(LAMINA_DEVICE="interp")
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    return done
