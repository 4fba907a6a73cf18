"""The command line: what it prints, what it returns, and how it fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lamina import cli, datasets, nn, pipeline
from lamina.frontend.session import SESSION
from lamina.io import safetensors
from lamina.models.digits import DigitsNet

ROOT = Path(__file__).parent.parent.parent


def lamina(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, away from a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "lamina", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"} | variables,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def test_the_demonstration_learns_and_saves(tmp_path: Path) -> None:
    output = tmp_path / "model.safetensors"
    done = lamina("demo", "--output", output)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    (accuracy,) = re.findall(r"test accuracy: ([\d.]+)%", done.stdout)
    assert float(accuracy) >= 97.0
    assert "epoch 15 of 15" in done.stdout
    assert "GFLOP/s" in done.stdout
    assert re.search(r"reduce\d+_\S+ +│ +330 │", done.stdout)
    assert "########" in done.stdout
    assert f"saved the model to {output}" in done.stdout
    model = DigitsNet()
    nn.load_state_dict(model, safetensors.load(output))
    data = datasets.digits()
    right = model(data.test_images).numpy().argmax(axis=1) == data.test_labels.numpy()
    assert round(float(right.mean()) * 100, 2) == float(accuracy)


def test_the_demonstration_works_without_unicode_and_saves_by_default(tmp_path: Path) -> None:
    done = lamina(
        "demo", "--epochs", "1", PYTHONIOENCODING="ascii", XDG_DATA_HOME=str(tmp_path),
        HOME=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert len(list(tmp_path.rglob("digits.safetensors"))) == 1


def test_seeds_repeat_a_training() -> None:
    from lamina.models import digits

    data = datasets.digits()
    part = datasets.Split(*(one[:128] for one in data))
    losses = [[loss for _, loss, _ in digits.train(part, 1, seed)] for seed in (1, 1, 2)]
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_passes_are_listed_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["passes"]) == 0
    text = capsys.readouterr().out
    passes = [*pipeline.PASSES, pipeline.LOAD]
    rows = [f"│ {number:<2} │ {one.name} " for number, one in enumerate(passes, 1)]
    places = [text.index(row) for row in rows]
    assert places == sorted(places)
    assert all(one.does in text for one in passes)
    assert all(subpass.name in text for one in pipeline.PASSES for subpass in one.subpasses)
    assert re.search(r"simplify +│ graph +│ graph .*schedule +│ kernels +│ nests ", text, re.DOTALL)


@pytest.mark.usefixtures("on_cpu")
def test_explain_shows_each_pass(capsys: pytest.CaptureFixture[str]) -> None:
    SESSION.forget()
    assert cli.main(["explain"]) == 0
    text = capsys.readouterr().out
    shown = re.findall(r"^-- (\w+)", text, re.MULTILINE)
    assert shown == [one.name for one in (*pipeline.PASSES, pipeline.LOAD)]
    assert "= exp %" in text
    assert "loop_reduce" in text
    assert "lamina_run" not in text


@pytest.mark.usefixtures("on_cpu")
def test_explain_runs_a_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import lamina as lm\n(lm.ones((3, 41)) * 2.5).sum().item()\n")
    assert cli.main(["explain", str(program), "--source"]) == 0
    assert "f32[123]" in (text := capsys.readouterr().out) or "f32[3,41]" in text


@pytest.mark.usefixtures("on_cpu")
def test_explain_names_the_arrays_at_the_peak(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of 512 x 512 float32, a MiB each: the rows and the columns that their sums scale."""
    program = tmp_path / "program.py"
    program.write_text(
        "import lamina as lm\n"
        "x = lm.ones((512, 512)) * lm.arange(512.0)\n"
        "x.realize()\n"
        "y = (x + x.sum(axis=0)).contiguous()\n"
        "z = (y.T + y.sum(axis=0)).contiguous()\n"
        "(z * z.sum(axis=0)).realize()\n"
    )
    assert cli.main(["explain", str(program), "--memory"]) == 0
    text = capsys.readouterr().out
    arena = r"([\d.]+) MiB of scratch memory, ([\d.]+) of them in step \d+ of \d+"
    peaks = [(float(every), float(most)) for every, most in re.findall(arena, text)]
    assert any(1.0 < most <= every < 2.1 for every, most in peaks)
    assert re.search(r"^  1\.0 MiB: float32 of \w+, steps \d to \d", text, re.MULTILINE)
    assert "program.py:4: y = " in text or "program.py:5: z = " in text
    assert "-- fuse" not in text


def test_the_doctor_reports_the_compiler(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "compiler" in text
    assert "numpy" in text


def test_remedies_are_printed_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "/" + 150 * "x"
    remedy = "pip install 'lamina[metal]'"
    rows = [cli.Row("compiler", long), cli.Row("metal", "none", False, remedy)]
    monkeypatch.setattr(cli, "doctor", lambda: rows)
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert f" {long} " in text
    assert " pip install 'lamina[metal]' " in text


def test_the_doctor_fails_where_nothing_compiles() -> None:
    done = lamina("doctor", LAMINA_CC="/nonexistent/cc", PATH="")
    assert done.returncode == 1
    assert "/nonexistent/cc" in done.stdout


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("demo", "passes", "doctor", "LAMINA_DEBUG"))


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["demo", "--epochs", "0"]])
def test_a_wrong_command_line_is_explained(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: lamina" in capsys.readouterr().err


def test_errors_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["demo", "--output", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"lamina: error: {tmp_path} is a folder; --output needs a file\n"
    )
    assert cli.main(["demo", "--output", str(tmp_path / "no" / "file")]) == 1
    assert "is not a folder that can be written to" in capsys.readouterr().err
    monkeypatch.setattr(datasets, "_DIGITS", tmp_path / "digits.npz")
    assert cli.main(["demo", "--output", str(tmp_path / "file")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "reinstall lamina" in error


def test_an_interrupt_is_not_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_passes", interrupt)
    assert cli.main(["passes"]) == 130
    assert capsys.readouterr().err == "\ninterrupted\n"


def in_shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run ``lamina``'s command line with what `command` adds to it, such as a pipe."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m lamina {command}"],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("reader", ["| true", "| head -n 1", ">&-"])
def test_a_closed_output_is_no_error(reader: str) -> None:
    for command in ("passes", "--help", "explain"):
        done = in_shell(f"{command} {reader}")
        assert done.returncode == 0
        assert len(done.stdout.splitlines()) == reader.endswith("1")
        assert not done.stderr


@pytest.mark.parametrize("reader", ["| head -n 3", ">&-"])
def test_a_closed_output_neither_stops_the_training_nor_loses_the_model(
    reader: str, tmp_path: Path
) -> None:
    output = tmp_path / "model.safetensors"
    done = in_shell(f"demo --epochs 5 --output {output} {reader}")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == (3 if "head" in reader else 0)
    assert not done.stderr
    assert set(safetensors.load(output)) == set(nn.state_dict(DigitsNet()))


def test_the_command_line_starts_without_heavy_imports() -> None:
    code = "import sys, lamina.cli; print([m for m in ('numpy', 'rich') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"


def test_shifted_images_keep_their_ink() -> None:
    from lamina.models.digits import _shifted

    images = np.zeros((200, 1, 8, 8), np.float32)
    images[:, 0, 4, 4] = 1.0
    moved = _shifted(images, np.random.default_rng(0))
    assert moved.shape == images.shape
    np.testing.assert_array_equal(moved.sum(axis=(1, 2, 3)), 1.0)
    places = {tuple(place) for place in np.argwhere(moved)[:, 2:].tolist()}
    assert places == {(y, x) for y in (3, 4, 5) for x in (3, 4, 5)}
