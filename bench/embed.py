"""Sentences to vectors with all-MiniLM-L6-v2, on the CPU beside onnxruntime.

    python -m bench.embed               # downloads the model
    python -m bench.embed --rounds 5 --threads 2

It needs torch, transformers and onnxruntime. The sentences are those of this project's pages. Both
have the same tokenizer, and each is measured from texts to vectors. onnxruntime's model is made by
PyTorch's exporter and takes any shape: a batch is padded to its longest text. Times of one thread
are processor time, those of more are wall-clock time; both take turns, round by round.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import lamina as lm
from bench.machine import ROOT
from bench.programs.protocol import clock
from bench.samples import in_turns, noise, ratio
from lamina import models
from lamina.models.embedding import Embedder
from lamina.models.fetch import fetch

Embed = Callable[[Sequence[str]], Any]  # texts to vectors
COUNT, BATCHES = 96, (1, 32)  # sentences, and how many are embedded at once
SHORTEST, LONGEST = 5, 40  # words of a sentence
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.embed")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    folder = fetch("minilm")
    texts = sentences(COUNT)
    with lm.using(threads=options.threads):
        embedder = models.load(folder).embedder
        peer = onnxruntime_embed(folder, options.threads)
        ours, theirs = embedder(texts), peer(texts)
        print(f"largest difference of {COUNT} vectors: {abs(ours - theirs).max():.1e}")
        for batch in BATCHES:
            turns = _turns(embedder, peer, texts, batch, clock(options.threads))
            print(compared(turns, COUNT, batch, options.rounds))


def sentences(count: int) -> list[str]:
    """Some of this project's pages, without tables, code and links; a seed chooses which."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    plain = " ".join(_plain(page.read_text(encoding="utf-8")) for page in pages)
    parts = {" ".join(part.split()) for part in re.split(r"(?<=[.?!])\s", plain)}
    usable = sorted(part for part in parts if SHORTEST <= len(part.split()) <= LONGEST)
    return random.Random(0).sample(usable, count)


def _plain(page: str) -> str:
    """The sentences of a page of Markdown."""
    without_code = re.sub(r"```.*?```|`|\]\([^)]*\)|\[", " ", page, flags=re.DOTALL)
    lines = without_code.splitlines()
    return "\n".join(line for line in lines if not line.startswith(("|", "#", "-", "    ")))


def onnxruntime_embed(folder: Path, threads: int) -> Embed:
    """The same model in onnxruntime."""
    import onnxruntime
    from tokenizers import Tokenizer

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.onnx"
        export(folder, path)
        session = onnxruntime.InferenceSession(path, settings, ["CPUExecutionProvider"])
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()

    def embed(texts: Sequence[str]) -> Any:
        encoded = tokenizer.encode_batch(list(texts))
        inputs = {
            "input_ids": np.array([text.ids for text in encoded], np.int64),
            "attention_mask": np.array([text.attention_mask for text in encoded], np.int64),
            "token_type_ids": np.array([text.type_ids for text in encoded], np.int64),
        }
        return session.run(None, inputs)[0]

    return embed


def export(folder: Path, path: Path) -> None:
    """Write the model of `folder`, with the mean and the length 1, as ONNX."""
    import torch
    import transformers

    class Sentences(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.bert = transformers.BertModel.from_pretrained(
                folder, add_pooling_layer=False, attn_implementation="eager"
            )

        def forward(self, ids: Any, mask: Any, types: Any) -> Any:
            hidden = self.bert(ids, mask, types).last_hidden_state
            weights = mask.unsqueeze(-1).float()
            mean = (hidden * weights).sum(1) / weights.sum(1)
            return torch.nn.functional.normalize(mean, dim=-1)

    ids = torch.ones((2, 8), dtype=torch.int64)
    axes = {name: {0: "batch", 1: "length"} for name in INPUTS}
    torch.onnx.export(
        Sentences().eval(), (ids, ids, ids * 0), str(path), input_names=list(INPUTS),
        dynamic_axes=axes, opset_version=17, dynamo=False,
    )  # fmt: skip


def _turns(
    ours: Embedder, theirs: Embed, texts: Sequence[str], batch: int, now: Callable[[], float]
) -> dict[str, Callable[[], float]]:
    """What each side does in its turn: embed all of `texts`, `batch` at once. Seconds by `now`."""
    parts = [texts[at : at + batch] for at in range(0, len(texts), batch)]
    sides: dict[str, Embed] = {"lamina": ours, "onnxruntime": theirs, "again": theirs}
    return {name: partial(_seconds, embed, parts, now) for name, embed in sides.items()}


def compared(
    turns: Mapping[str, Callable[[], float]], count: int, batch: int, rounds: int
) -> str:
    """A line: how many of `count` sentences each side embeds a second."""
    in_turns(turns, 1)  # compiles what is compiled at the first call
    times = in_turns(turns, rounds, random.Random(0))
    rates = {name: count / median(values) for name, values in times.items()}
    peer = times["onnxruntime"]
    return (
        f"{batch:2} at once: lamina {rates['lamina']:.0f} sentences/s, onnxruntime "
        f"{rates['onnxruntime']:.0f}; {ratio(peer, times['lamina']):.2f} times as fast, "
        f"noise {noise(peer, times['again']):.0%}"
    )


def _seconds(embed: Embed, parts: Sequence[Sequence[str]], now: Callable[[], float]) -> float:
    """How long all of `parts` take."""
    started = now()
    for part in parts:
        embed(part)
    return now() - started


if __name__ == "__main__":
    main()
