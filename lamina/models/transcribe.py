"""What is said in a sound, by Whisper: which tokens a text begins with, and which it never has.

Long sounds are transcribed part by part, of 30 seconds each, without regard to where words end.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lamina.errors import ArgumentError
from lamina.frontend.tensor import Tensor
from lamina.models.encoder_decoder import SequenceWriter
from lamina.models.fields import Fields, read_object, token_of, tokens_of
from lamina.models.loading import load
from lamina.models.sound import Features, Sound
from lamina.models.whisper import Whisper, WhisperConfig

__all__ = ["Prompt", "Transcriber"]


@dataclass(frozen=True)
class Prompt:
    """What ``generation_config.json`` says about texts.

    start: the token before them. languages: tokens of the languages, one of which is the second;
    none where the model knows one language. rest: tokens that follow, such as that of the task.
    stops: those that end a text. never: those that are never written. never_first: those that a
    text does not begin with either."""

    start: int
    languages: tuple[int, ...]
    rest: tuple[int, ...]
    stops: tuple[int, ...]
    never: tuple[int, ...] = ()
    never_first: tuple[int, ...] = ()

    @classmethod
    def of_folder(cls, folder: Path, config: WhisperConfig) -> Prompt:
        """Without the file, what ``config.json`` says. Raises FormatError, which names the field.
        """
        path = folder / "generation_config.json"
        if not path.exists():
            path = folder / "config.json"
        return _read(Fields(read_object(path), str(path)), config)


def _read(fields: Fields, config: WhisperConfig) -> Prompt:
    vocabulary = config.vocabulary
    forced = _forced(fields, vocabulary)
    is_detected = not forced or forced[0] is None
    languages = _named(fields, "lang_to_id", vocabulary) if is_detected else {}
    return Prompt(
        start=token_of(fields, "decoder_start_token_id", config.start, vocabulary),
        languages=tuple(languages.values()),
        rest=tuple(_rest(fields, forced, vocabulary)),
        stops=tokens_of(fields, "eos_token_id", list(config.stops), vocabulary),
        never=tokens_of(fields, "suppress_tokens", [], vocabulary),
        never_first=tokens_of(fields, "begin_suppress_tokens", [], vocabulary),
    )


def _rest(fields: Fields, forced: Sequence[int | None], vocabulary: int) -> list[int]:
    """The tokens behind that of the language: those that the file forces, and where they are not
    among these, the one to transcribe, and the one to write no times."""
    rest = [token for token in forced if token is not None]
    tasks = _named(fields, "task_to_id", vocabulary)
    if "transcribe" in tasks and not set(rest).intersection(tasks.values()):
        rest.append(tasks["transcribe"])
    if fields.get("no_timestamps_token_id") is not None:
        without_times = token_of(fields, "no_timestamps_token_id", None, vocabulary)
        if without_times not in rest:
            rest.append(without_times)
    return rest


def _named(fields: Fields, name: str, vocabulary: int) -> dict[str, int]:
    """Tokens by their names."""
    part = fields.part(name)
    return {key: token_of(part, key, None, vocabulary) for key in part.values}


def _forced(fields: Fields, vocabulary: int) -> list[int | None]:
    """The tokens at the places 1, 2 and so on, in older files; None is one of the languages."""
    name = "forced_decoder_ids"
    pairs = fields.get(name, [])
    wanted = "pairs of the places 1, 2 and so on and tokens are needed"
    if not isinstance(pairs, list):
        raise fields.fail(name, f"{pairs!r}; {wanted}")
    tokens: list[int | None] = []
    for place, pair in enumerate(pairs, 1):
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] != place:
            raise fields.fail(name, f"{pair!r}; {wanted}")
        token = pair[1]
        if token is not None:
            token = token_of(Fields({name: token}, fields.origin), name, None, vocabulary)
        tokens.append(token)
    return tokens


class Transcriber:
    """A Whisper of a folder. Raises ArgumentError for other models, and FormatError and OSError as
    `load`, `Features.of_folder` and `Prompt.of_folder` do."""

    def __init__(self, folder: str | os.PathLike[str], device: str | None = None) -> None:
        self._model = load(folder, device)
        network, path = self._model.network, self._model.folder
        if not isinstance(network, Whisper):
            kind = type(network).__name__
            raise ArgumentError(f"{kind} transcribes no sound", operation="load")
        assert path is not None  # GGUF files have no such networks
        config = network.config
        self.features = Features.of_folder(path)
        self.prompt = Prompt.of_folder(path, config)
        self._writer = SequenceWriter(network, config.decoder.positions, self._model.device)
        prompt = self.prompt
        no_languages = set(range(config.vocabulary)).difference(prompt.languages)
        self._language_penalties = self._penalties_of(no_languages)
        self._penalties = self._penalties_of(prompt.never)
        self._first_penalties = self._penalties_of({*prompt.never, *prompt.never_first})

    def _penalties_of(self, tokens: Collection[int]) -> Tensor:
        """Minus infinity for these, which are not to be written, 0 for all others: (vocabulary,).
        """
        penalties = np.zeros(self._model.config.vocabulary, np.float32)
        penalties[list(tokens)] = -math.inf
        return Tensor(penalties, device=self._model.device)

    def text(self, sound: Sound) -> str:
        """What is said. Raises MissingPackageError without the extra ``text``, and ArgumentError as
        `Features.parts` does."""
        tokenizer = self._model.tokenizer
        return "".join(tokenizer.decode(tokens) for tokens in self.tokens(sound)).strip()

    def tokens(self, sound: Sound) -> Iterator[list[int]]:
        """Of each part of the sound, without those that it begins and ends with."""
        for features in self.features.parts(sound):
            self._writer.read(Tensor(features[None], device=self._model.device))
            start, stops = self._start(), self.prompt.stops
            limit = self._writer.capacity
            written = self._writer.tokens(
                start, limit, stops, self._penalties, self._first_penalties
            )
            yield [token for token in written if token not in stops]

    def _start(self) -> list[int]:
        """The tokens before a text; its language is the one that is most probable."""
        prompt = self.prompt
        if not prompt.languages:
            return [prompt.start, *prompt.rest]
        language = self._writer.next_token(prompt.start, 0, self._language_penalties)
        return [prompt.start, language, *prompt.rest]
