"""`lamina serve` as a process: what it refuses, and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from lamina.io import safetensors
from lamina.nn import state_dict
from tests.models.encoders import sentence_folder
from tests.serving.tiny import CONFIG, network
from tests.test_layers import ROOT
from tests.text.tables import learned

pytest.importorskip("starlette")
openai = pytest.importorskip("openai")
CONFIG_FILE = {
    "model_type": "llama", "vocab_size": CONFIG.vocabulary, "hidden_size": CONFIG.size,
    "intermediate_size": CONFIG.inner, "num_hidden_layers": CONFIG.layers,
    "num_attention_heads": CONFIG.heads, "num_key_value_heads": CONFIG.key_heads,
    "max_position_embeddings": CONFIG.context, "tie_word_embeddings": True,
    "rms_norm_eps": CONFIG.eps,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, as on the Hugging Face hub."""
    place = tmp_path_factory.mktemp("served") / "tiny"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(CONFIG_FILE))
    (place / "tokenizer.json").write_text(learned().to_str())
    safetensors.save(place / "model.safetensors", state_dict(network("interp")), {"format": "pt"})
    return place


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lamina", "serve", str(folder), "--port", "0", *options],
        env=os.environ | {"PYTHONPATH": str(ROOT), "LAMINA_DEVICE": "interp"}, text=True,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def test_a_server_that_is_asked_to_end_finishes_its_answers(folder: Path) -> None:
    process = start(folder, "--slots", "2", "--grace", "60")
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.fullmatch(r"tiny at (http://127\.0\.0\.1:\d+)/\n", line)
        assert found is not None, line + process.stderr.read()
        client = openai.OpenAI(base_url=f"{found[1]}/v1", api_key="none", max_retries=0)
        stream = client.completions.create(
            model="tiny", prompt="pip", max_tokens=12, temperature=0, stream=True
        )
        parts: list[Any] = [next(iter(stream))]
        process.send_signal(signal.SIGTERM)
        parts.extend(stream)
        assert parts[-1].choices[0].finish_reason == "length"
        threading.Thread(target=process.stderr.read).start()
        assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()


def test_a_model_of_embeddings_is_served_as_one(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    sentence_folder(tmp_path / "small")
    process = start(tmp_path / "small")
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.fullmatch(r"small at (http://127\.0\.0\.1:\d+)/\n", line)
        assert found is not None, line + process.stderr.read()
        client = openai.OpenAI(base_url=f"{found[1]}/v1", api_key="none", max_retries=0)
        (answer,) = client.embeddings.create(model="small", input="the cat").data
        assert len(answer.embedding) == 32
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.2", "127.0.0.2"), ("::1", "[::1]")])
def test_a_server_answers_at_the_address_that_it_says(folder: Path, host: str, shown: str) -> None:
    process = start(folder, "--slots", "1", "--host", host)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.fullmatch(r"tiny at (http://(.*):\d+/)\n", line)
        assert found is not None, line + process.stderr.read()
        assert found[2] == shown
        with urllib.request.urlopen(f"{found[1]}v1/models", timeout=30) as reply:
            assert json.load(reply)["data"][0]["id"] == "tiny"
    finally:
        process.kill()
        process.communicate()


def test_a_key_may_follow_a_byte_order_mark(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    from lamina.serving.command import _key

    (tmp_path / "key").write_text("a secret\r\nmore", encoding="utf-8-sig")
    assert _key(tmp_path / "key") == "a secret"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "--host: 0.0.0.0 can be reached from other machines; give"),
        (["--host", "example.org"], "--host: example.org can be reached from other machines"),
        (["--api-key-file", "{folder}/none"], "No such file"),
        (["--api-key-file", "{folder}/empty"], "has no key in its first line"),
        (["--api-key-file", "{folder}/umlaut"], "umlaut has more than ASCII in it"),
        (["--api-key-file", "{folder}/latin"], "latin has more than ASCII in it"),
        (["--cache-tokens", str(1 << 60)], "--cache-tokens: caches for 1152921504606846976 tokens"),
    ],
)
def test_what_is_refused(folder: Path, tmp_path: Path, options: list[str], message: str) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "umlaut").write_text("schlüssel\n", encoding="utf-8")
    (tmp_path / "latin").write_text("schlüssel\n", encoding="latin-1")
    process = start(folder, *(option.format(folder=tmp_path) for option in options))
    _, said = process.communicate(timeout=100)
    assert process.returncode == 1
    assert said.startswith("lamina: error: ")
    assert message in said
