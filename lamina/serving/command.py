"""What ``lamina serve`` does."""

from __future__ import annotations

import ipaddress
import socket
import sys
from argparse import Namespace
from codecs import BOM_UTF8
from pathlib import Path

import uvicorn

from lamina.core.dtypes import BY_NAME
from lamina.errors import ArgumentError, OutOfMemoryError
from lamina.models.embedding import Embedder
from lamina.models.loading import Model, load
from lamina.models.sampling import Sampling
from lamina.models.text_encoder import TextEncoder
from lamina.serving.app import Server
from lamina.serving.batch import Batch, Text
from lamina.serving.embedding import EmbeddingServer
from lamina.serving.engine import Engine, Room
from lamina.serving.front import Front, Limits

__all__ = ["run_serve"]

_PAGE, _CHUNK = 32, 64  # tokens of a page, and of a chunk of a prompt
_USUAL = 16  # tokens of a short text that is embedded
_BACKLOG = 128  # connections that wait to be accepted


def run_serve(options: Namespace) -> None:
    """Serve until the process is asked to end."""
    key = _key(options.api_key_file)
    _check_address(options.host, key)
    with _listener(options.host, options.port) as listener:
        host, port = listener.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host  # as URLs and the header Host have it
        model = load(options.model, activations=BY_NAME[options.activations])
        name = options.name or _name(options.model)
        limits = Limits(options.max_body, options.queue, options.max_tokens, options.timeout)
        server = _server(name, model, limits, key, host, options)
        settings = uvicorn.Config(
            server.app, log_level="warning", server_header=False,
            timeout_graceful_shutdown=options.grace,
        )  # fmt: skip
        print(f"{name} at http://{host}:{port}/", file=sys.stderr)
        uvicorn.Server(settings).run(sockets=[listener])


def _server(
    name: str, model: Model, limits: Limits, key: str | None, host: str, options: Namespace
) -> Front:
    """What the model is served by, with the programs of short texts compiled."""
    if isinstance(model.network, TextEncoder):
        return EmbeddingServer(name, _warm_embedder(model), limits, key, host)
    tokenizer = model.tokenizer  # raises if there is none
    batch = Batch(_engine(model, _room(options, model), options.cache_dtype))
    _warm_up(batch)
    return Server(name, tokenizer, batch, model.config.vocabulary, limits, key, host)


def _warm_embedder(model: Model) -> Embedder:
    embedder = model.embedder
    text = [0] * min(_USUAL, embedder.settings.longest)
    for together in (1, 16):
        embedder.of_tokens([text] * together)
    return embedder


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


def _engine(model: Model, room: Room, cache_dtype: str | None) -> Engine:
    """Raises OutOfMemoryError where there is no room for the caches."""
    try:
        kept = None if cache_dtype is None else BY_NAME[cache_dtype]
        return Engine(model.writer, room, model.device, kept)
    except OutOfMemoryError as error:
        tokens = room.pages * room.page_size
        raise OutOfMemoryError(
            f"caches for {tokens} tokens: {error.problem}", operation="--cache-tokens",
            remedy="ask for fewer",
        ) from None  # fmt: skip


def _key(path: Path | None) -> str | None:
    """The first line of the file, which may begin with a byte order mark as editors of Windows
    write it. Raises ArgumentError where there is nothing in it, and for what is not ASCII:
    clients cannot send that in a header."""
    if path is None:
        return None
    line = path.read_bytes().removeprefix(BOM_UTF8).partition(b"\n")[0].strip()
    if not line:
        raise ArgumentError(f"--api-key-file: {path} has no key in its first line")
    if not line.isascii():
        raise ArgumentError(f"--api-key-file: the first line of {path} has more than ASCII in it")
    return line.decode("ascii")


def _check_address(host: str, key: str | None) -> None:
    """Raises ArgumentError for an address that other machines reach, without a key."""
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # the name of a machine
        is_local = False
    if not is_local and key is None:
        raise ArgumentError(
            f"--host: {host} can be reached from other machines; give the server a key with "
            "--api-key-file, or stay with 127.0.0.1"
        )


def _room(options: Namespace, model: Model) -> Room:
    """Pages for one text at least."""
    capacity = min(options.context, model.config.context)
    tokens = max(options.cache_tokens, capacity)
    return Room(options.slots, capacity, -(-tokens // _PAGE), _PAGE, min(_CHUNK, capacity))


def _warm_up(batch: Batch) -> None:
    """Compile the programs of short texts, alone and with others, drawn with limits, without and
    not at all, before somebody waits."""
    for sampling in (Sampling(1.0), Sampling(1.0, top_p=0.9), Sampling()):
        for _ in range(2):
            batch.add(Text([0], 3, sampling))
        while batch.waiting or batch.active:
            batch.step()


def _name(model: str) -> str:
    """What clients call the model of a path, or of a published name."""
    path = Path(model)
    return path.stem if path.suffix == ".gguf" else path.resolve().name
