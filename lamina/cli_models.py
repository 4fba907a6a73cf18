"""The commands of models in files: their arguments, and what runs them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lamina.errors import MissingPackageError

__all__ = ["add_models", "parse_count", "parse_seed"]

_FOLDER = "a folder with config.json and safetensors files, or a name: org/name"
_MODEL = "a GGUF file, a folder with config.json and safetensors, or a name: smollm2, org/name"


def add_models(command: Callable[[str, Any, str], argparse.ArgumentParser]) -> None:
    """The commands of models in files."""
    generate = command("generate", _generate, "write what follows a text, with a language model")
    _add_model(generate)
    generate.add_argument("prompt", help="a question, or a text to continue")
    generate.add_argument("--raw", action="store_true", help="no chat template: continue the text")
    generate.add_argument("--schema", type=Path, help="a JSON schema that the text has to fit")
    chat = command("chat", _chat, "talk with a language model, a line at a time")
    _add_model(chat)
    seen = "tokens that the model sees"
    chat.add_argument("--context", type=parse_count, default=1024, help=seen)
    for one in (generate, chat):
        _add_sampling(one)
        _add_speculation(one)
    _add_serving(command("serve", _serve, "serve a model of text over HTTP, as OpenAI's API does"))
    embed = command("embed", _embed, "write the vectors of texts, as lines of JSON")
    embed.add_argument("model", help="a folder as on Hugging Face's hub, or a name such as minilm")
    embed.add_argument("texts", nargs="*", metavar="text", help="if none, each line of the input")
    embed.add_argument("--output", type=Path, help="a file of NumPy's in place of JSON: x.npy")
    convert = command("convert", _convert, "write a GGUF file with its matrices in smaller types")
    convert.add_argument("model", help="a GGUF file, or a name such as smollm2")
    convert.add_argument("output", type=Path, help="the new file")
    convert.add_argument("--type", choices=("Q8_0", "Q4_0", "Q4_K"), default="Q8_0",
                         help="8 or 4 bits a weight (default: %(default)s)")  # fmt: skip
    classify = command("classify", _classify, "say what is on an image")
    classify.add_argument("model", help=_FOLDER)
    classify.add_argument("image", type=Path, help="a file, in any format that Pillow reads")
    labels = "labels (default: %(default)s)"
    classify.add_argument("--count", type=parse_count, default=5, help=labels)
    transcribe = command("transcribe", _transcribe, "write what is said in a sound")
    transcribe.add_argument("model", help=f"{_FOLDER}: a Whisper")
    transcribe.add_argument("sound", type=Path, help="a WAV file")
    fetch = command("fetch", _fetch, "download a published model, and print where it is")
    fetch.add_argument("model", help="a name, such as smollm2, or org/name@revision")


def _add_model(parser: argparse.ArgumentParser, *, rounds: bool = True) -> None:
    parser.add_argument("model", help=_MODEL)
    kept = "the dtype of keys and values, and of factors of products: 16 bits are faster on a GPU"
    dtypes = ("float32", "bfloat16", "float16")
    parser.add_argument("--activations", choices=dtypes, default="float32", help=kept)
    kept = "keep keys and values in 8 bits, with a scale for each vector; by default as activations"
    parser.add_argument("--cache-dtype", choices=("int8",), help=kept)
    if rounds:
        rounded = "round activations to 8 bits for products with quantised weights: faster on a CPU"
        parser.add_argument("--round-activations", action="store_true", help=rounded)


def _add_serving(parser: argparse.ArgumentParser) -> None:
    _add_model(parser, rounds=False)
    parser.add_argument("--name", help="of the model, for clients; its file's name by default")
    parser.add_argument("--host", default="127.0.0.1", help="the address (default: %(default)s)")
    key = "a file whose first line clients have to send; needed where other machines reach the host"
    parser.add_argument("--api-key-file", type=Path, help=key)

    def number(name: str, default: int, what: str) -> None:
        shown = f"{what} (default: %(default)s)"
        parser.add_argument(name, type=parse_count, default=default, help=shown)

    port = "where to listen; 0 takes a free one (default: %(default)s)"
    parser.add_argument("--port", type=_parse_port, default=8000, help=port)
    number("--slots", 16, "texts that are written at once")
    number("--context", 2048, "tokens of the longest text, its prompt included")
    number("--cache-tokens", 16384, "tokens of all texts in the caches")
    number("--queue", 64, "texts that wait for a slot; more are refused")
    number("--max-tokens", 512, "of an answer whose request does not say how many")
    number("--max-body", 1 << 20, "bytes of a request")
    number("--timeout", 300, "seconds for a request")
    number("--grace", 10, "seconds for answers to finish, once the server is asked to end")


def _add_sampling(parser: argparse.ArgumentParser) -> None:
    def number(name: str, kind: Any, default: Any, what: str) -> None:
        parser.add_argument(name, type=kind, default=default, help=f"{what} (default: %(default)s)")

    number("--max-tokens", parse_count, 256, "the longest text that is written")
    number("--temperature", float, 0.0, "of what is drawn; 0 takes the most probable token")
    number("--top-k", int, 0, "draw only so many of the most probable tokens; 0 draws from all")
    number("--top-p", float, 1.0, "draw only tokens that make up this share")
    number("--min-p", float, 0.0, "draw only tokens so probable beside the best one")
    penalty = "of tokens that the text has already, from 1 on; logits are divided by it"
    number("--repetition-penalty", float, 1.0, penalty)
    number("--seed", _parse_key_seed, 0, "of what is drawn")


def _add_speculation(parser: argparse.ArgumentParser) -> None:
    way = parser.add_mutually_exclusive_group()
    draft = "a smaller model with the same tokenizer, which proposes tokens"
    way.add_argument("--draft", metavar="MODEL", help=draft)
    lookup = "propose the tokens that followed the last ones where the text had these before"
    way.add_argument("--prompt-lookup", action="store_true", help=lookup)
    count = "tokens that are proposed, and then checked at once (default: %(default)s)"
    parser.add_argument("--proposals", type=parse_count, default=4, help=count)


def parse_count(text: str) -> int:
    return _from(1, text)


def parse_seed(text: str) -> int:
    return _from(0, text)


def _parse_key_seed(text: str) -> int:
    """A seed of `Sampling`, which is one word of a key."""
    return _from(0, text, (1 << 32) - 1)


def _parse_port(text: str) -> int:
    return _from(0, text, (1 << 16) - 1)


def _from(least: int, text: str, most: int | None = None) -> int:
    """The whole number that `text` says, `least` or more, and no more than `most`."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
    if value < least or (most is not None and value > most):
        wanted = f"{least} or more" if most is None else f"{least} to {most}"
        raise argparse.ArgumentTypeError(f"{value}; {wanted} is needed")
    return value


def _generate(options: argparse.Namespace) -> None:
    from lamina.models.command import run_generate

    run_generate(options)


def _chat(options: argparse.Namespace) -> None:
    from lamina.models.command import run_chat

    run_chat(options)


def _embed(options: argparse.Namespace) -> None:
    from lamina.models.command import run_embed

    run_embed(options)


def _convert(options: argparse.Namespace) -> None:
    from lamina.models.command import run_convert

    run_convert(options)


def _serve(options: argparse.Namespace) -> None:
    try:
        from lamina.serving.command import run_serve
    except ModuleNotFoundError as error:
        what = f"lamina serve needs the package {error.name}: pip install 'lamina[serve]'"
        raise MissingPackageError(what) from None

    run_serve(options)


def _classify(options: argparse.Namespace) -> None:
    from lamina.models.command import run_classify

    run_classify(options)


def _transcribe(options: argparse.Namespace) -> None:
    from lamina.models.command import run_transcribe

    run_transcribe(options)


def _fetch(options: argparse.Namespace) -> None:
    from lamina.models.command import run_fetch

    run_fetch(options)
