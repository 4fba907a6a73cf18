"""What the commands do that load models from files."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from lamina.core.dtypes import BY_NAME
from lamina.distributed import setup
from lamina.distributed.mesh import Axis, Mesh
from lamina.errors import ArgumentError, FormatError
from lamina.models.convert import convert
from lamina.models.fetch import PUBLISHED, fetch, find
from lamina.models.generate import Acceptance, Generator, Proposer
from lamina.models.images import Labels, read_image
from lamina.models.loading import Model, load
from lamina.models.sampling import Sampling
from lamina.models.sound import read_wave
from lamina.models.speculation import DraftModel, PromptLookup
from lamina.models.transcribe import Transcriber
from lamina.text.schema import Constraint, Schemas
from lamina.text.tokenizer import TextStream

__all__ = [
    "run_chat", "run_classify", "run_convert", "run_embed", "run_fetch", "run_generate",
    "run_transcribe",
]  # fmt: skip

_LEAST_CAPACITY = 256
_EMBEDDED_AT_ONCE = 256  # lines of the standard input


def run_fetch(options: Namespace) -> None:
    """Print where the file or the folder of a model with a name is."""
    path, published = fetch(options.model), PUBLISHED.get(options.model)
    license = "" if published is None else f" ({published.license})"
    print(f"{options.model}{license}: {path}")


def run_convert(options: Namespace) -> None:
    """Write a model with its matrices in another type of blocks."""
    convert(find(options.model), options.output, options.type)
    print(f"{options.output}: {os.path.getsize(options.output) / 1e6:.1f} MB")


def run_classify(options: Namespace) -> None:
    """Print what is on an image, with probabilities, the most probable first."""
    labels = Labels(options.model)
    image = read_image(options.image, labels.network.channels)
    for name, probability in labels.best(image, options.count):
        print(f"{probability:6.1%}  {name}")


def run_embed(options: Namespace) -> None:
    """Write the vectors of texts: a line of JSON for each, or all into a file of NumPy's. Without
    texts, each line of the standard input is one."""
    import numpy as np

    embedder = load(options.model).embedder
    texts = iter(options.texts or (line.rstrip("\n") for line in sys.stdin))
    parts = [np.empty((0, embedder.size), np.float32)]
    while some := list(islice(texts, _EMBEDDED_AT_ONCE)):
        vectors = embedder(some)
        if options.output is not None:
            parts.append(vectors)
            continue
        for text, vector in zip(some, vectors.tolist(), strict=True):
            print(json.dumps({"text": text, "embedding": vector}, ensure_ascii=False))
    if options.output is not None:
        np.save(options.output, np.concatenate(parts))


def run_transcribe(options: Namespace) -> None:
    """Print what is said in a sound."""
    print(Transcriber(options.model).text(read_wave(options.sound)))


def run_generate(options: Namespace) -> None:
    """Write what follows a prompt, and on the standard error how fast."""
    _check_rounding(options)
    model = _loaded(options)
    tokenizer = model.tokenizer
    goes_on = options.raw or tokenizer.template is None
    if goes_on:
        prompt = tokenizer.encode(options.prompt)
    else:
        prompt = tokenizer.chat([{"role": "user", "content": options.prompt}])
    constraint = None if options.schema is None else _constraint(options.schema, model)
    capacity = _capacity(len(prompt) + options.max_tokens, model)
    generator = _generator(options, model, capacity)
    answer = _Answer(TextStream.after(tokenizer, prompt if goes_on else ()))
    answer.show(generator.tokens(prompt, options.max_tokens, _sampling(options), constraint))
    if setup.rank() == 0:
        speed = answer.speed(generator.acceptance)
        print(f"\n{len(prompt)} tokens read, {speed}", file=sys.stderr)


def _check_rounding(options: Namespace) -> None:
    """Raises ArgumentError for options that would write one text by two kinds of products."""
    proposes = options.draft is not None or options.prompt_lookup
    if proposes and options.round_activations:
        raise ArgumentError(
            "single vectors alone are rounded, and proposals are checked several at once; "
            "leave out --draft and --prompt-lookup, or this option",
            operation="--round-activations",
        )


def _generator(options: Namespace, model: Model, capacity: int) -> Generator:
    proposer: Proposer | None = None
    if options.prompt_lookup:
        proposer = PromptLookup(options.proposals)
    elif options.draft is not None:
        # Whole in each of the processes that share the model: all propose the same.
        draft = load(find(options.draft), activations=BY_NAME[options.activations])
        proposer = DraftModel(draft, model, capacity, options.proposals)
    kept = None if options.cache_dtype is None else BY_NAME[options.cache_dtype]
    return Generator(model.writer, capacity, model.device, proposer=proposer, cache_dtype=kept)


def _constraint(path: Path, model: Model) -> Constraint:
    """Of texts that fit the JSON schema in a file. Raises FormatError where that is not an object
    of JSON, and as `Schemas.constraint` does."""
    try:
        schema = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise FormatError(f"{path}: a {type(schema).__name__}, not an object")
    return Schemas(model.tokenizer, model.writer.vocabulary).constraint(schema)


def _loaded(options: Namespace) -> Model:
    """The model, which all processes of a run share."""
    return _model(options, Mesh(model=setup.size())["model"])


def _model(options: Namespace, over: Axis | None = None) -> Model:
    activations = BY_NAME[options.activations]
    return load(
        options.model, round_activations=options.round_activations, over=over,
        activations=activations,
    )  # fmt: skip


def run_chat(options: Namespace) -> None:
    """A conversation: a line of the user, an answer, and so on until the end of the input."""
    _check_rounding(options)
    model = _model(options)
    tokenizer = model.tokenizer
    generator = _generator(options, model, _capacity(options.context, model))
    messages: list[dict[str, str]] = []
    for line in _lines():
        messages.append({"role": "user", "content": line})
        prompt = tokenizer.chat(messages)
        answer = _Answer(TextStream(tokenizer))
        answer.show(generator.tokens(prompt, options.max_tokens, _sampling(options)))
        messages.append({"role": "assistant", "content": answer.text})
        print(f"\n({answer.speed(generator.acceptance)})", file=sys.stderr)


def _sampling(options: Namespace) -> Sampling:
    return Sampling(
        options.temperature,
        options.top_p,
        options.min_p,
        options.seed,
        options.top_k,
        options.repetition_penalty,
    )


def _capacity(tokens: int, model: Model) -> int:
    """Room for so many tokens: a power of two, so that few programs are compiled, but no more than
    the model was trained for."""
    context: int = model.config.context
    return min(max(_LEAST_CAPACITY, 1 << (tokens - 1).bit_length()), context)


def _lines() -> Iterator[str]:
    """What the user writes; a prompt is shown on a terminal alone."""
    while True:
        try:
            line = input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return
        if line.strip():
            yield line


@dataclass
class _Answer:
    """Text that is shown as its tokens arrive, and how long they took."""

    stream: TextStream
    text: str = ""
    count: int = 0
    first_seconds: float = 0.0  # until the first token: the prompt is read
    seconds: float = 0.0  # of all others

    def show(self, tokens: Iterable[int]) -> None:
        stream, started = self.stream, time.perf_counter()
        for token in tokens:
            now = time.perf_counter()
            if not self.count:
                self.first_seconds, started = now - started, now
            self.count, self.seconds = self.count + 1, now - started
            if token in stream.tokenizer.stops:
                break
            self._write(stream.push(token))
        self._write(stream.close())

    def _write(self, text: str) -> None:
        self.text += text
        if setup.rank() == 0:  # of the processes that share the model
            sys.stdout.write(text)
            sys.stdout.flush()

    def speed(self, acceptance: Acceptance) -> str:
        rate = (self.count - 1) / self.seconds if self.seconds else 0.0
        speed = f"the first after {self.first_seconds:.2f} s, then {rate:.1f} tokens/s"
        if not acceptance.proposed:
            return speed
        share = acceptance.accepted / acceptance.proposed
        counts = f"{acceptance.accepted} of {acceptance.proposed} proposals accepted"
        return f"{speed}, {counts} ({share:.0%})"
