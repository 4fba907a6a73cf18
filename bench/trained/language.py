"""Models of text: GPT-2, Llama, BERT, T5, and a mixture of experts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.cases import Array
from bench.trained.program import Phase, Program, Specification

IGNORED = -100  # a label that counts in no loss
Functions = Any  # of `bench.trained.functions`


def _heads(x: Any, count: int) -> Any:
    """(B, S, count * d) to (B, count, S, d)."""
    batch, length, width = x.shape
    return x.reshape((batch, length, count, width // count)).transpose(1, 2)


def _joined(x: Any) -> Any:
    """(B, count, S, d) to (B, S, count * d)."""
    batch, count, length, width = x.shape
    return x.transpose(1, 2).reshape((batch, length, count * width))


def _next_tokens(vocabulary: int, batch: int, length: int) -> Any:
    """Draws ids of (batch, length), and those that follow them."""

    def draw(random: np.random.Generator) -> list[Array]:
        ids = random.integers(0, vocabulary, (batch, length + 1))
        return [np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])]

    return draw


def _loss(f: Functions, logits: Any, labels: Any) -> Any:
    return f.cross_entropy(logits.reshape((-1, logits.shape[-1])), labels.reshape((-1,)))


@dataclass(frozen=True)
class GPT2:
    """GPT-2 (Radford et al. 2019), with a vocabulary that is padded to a multiple of 128."""

    layers: int
    width: int
    heads: int
    batch: int
    length: int = 1024
    vocabulary: int = 50304

    def program(self) -> Program:
        """Its training step."""
        s, wide = Specification(), self.width
        s.table("tokens", self.vocabulary, wide)
        s.table("positions", self.length, wide)
        for layer in range(self.layers):
            for name, inner, outer in (("qkv", 1, 3), ("out", 1, 1), ("up", 1, 4), ("down", 4, 1)):
                s.linear(f"{layer}.{name}", inner * wide, outer * wide, scale=0.02)
            s.norm(f"{layer}.first", wide)
            s.norm(f"{layer}.second", wide)
        s.norm("last", wide)
        draw = _next_tokens(self.vocabulary, self.batch, self.length)
        sizes = f"{self.layers} layers, d {wide}, B{self.batch} S{self.length}"
        return Program(sizes, s.weights, draw, (Phase(self.loss),))

    def loss(self, f: Functions, ids: Any, labels: Any) -> Any:
        x = f.embedding(ids, "tokens") + f.weights["positions"]
        for layer in range(self.layers):
            y = f.linear(f.layer_norm(x, f"{layer}.first"), f"{layer}.qkv")
            parts = (y[..., at * self.width : (at + 1) * self.width] for at in range(3))
            query, key, value = (_heads(part, self.heads) for part in parts)
            mixed = _joined(f.attention(query, key, value, causal=True))
            x = x + f.linear(mixed, f"{layer}.out")
            y = f.linear(f.layer_norm(x, f"{layer}.second"), f"{layer}.up")
            x = x + f.linear(f.gelu(y, approximate="tanh"), f"{layer}.down")
        logits = f.product(f.layer_norm(x, "last"), f.weights["tokens"].T)
        return _loss(f, logits, labels)


@dataclass(frozen=True)
class Llama:
    """A model as Llama 3 is (Grattafiori et al. 2024), or with experts in the place of each
    feed-forward layer as Mixtral has them (Jiang et al. 2024).

    experts: 0 for none; two of them see each token, and each has room for `ROOM` times its share of
    the tokens, beyond which it sees none.
    """

    layers: int
    width: int
    heads: int
    groups: int
    hidden: int
    batch: int
    length: int
    vocabulary: int = 32000
    experts: int = 0

    ROOM = 1.25
    CHOSEN = 2

    def program(self) -> Program:
        """Its training step."""
        s, wide = Specification(), self.width
        s.table("tokens", self.vocabulary, wide)
        for layer in range(self.layers):
            kept = wide // self.heads * self.groups
            for name, size in (("q", wide), ("k", kept), ("v", kept), ("o", wide)):
                s.linear(f"{layer}.{name}", wide, size, bias=False)
            if self.experts:
                self._add_experts(s, layer)
            else:
                s.linear(f"{layer}.gate", wide, self.hidden, bias=False)
                s.linear(f"{layer}.up", wide, self.hidden, bias=False)
                s.linear(f"{layer}.down", self.hidden, wide, bias=False)
            s.norm(f"{layer}.first", wide, bias=False)
            s.norm(f"{layer}.second", wide, bias=False)
        s.norm("last", wide, bias=False)
        s.linear("logits", wide, self.vocabulary, bias=False)
        sizes = f"{self.layers} layers, d {wide}, heads {self.heads}/{self.groups}, "
        sizes += f"{self.experts} experts, top 2, " if self.experts else ""
        sizes += f"SwiGLU {self.hidden}, B{self.batch} S{self.length}"
        return Program(sizes, s.weights, self.draw, (Phase(self.loss),), is_half=True)

    def _add_experts(self, s: Specification, layer: int) -> None:
        wide, hidden, count = self.width, self.hidden, self.experts
        s.linear(f"{layer}.router", wide, count, bias=False)
        for name, rows, columns in (
            ("gates", wide, hidden), ("ups", wide, hidden), ("downs", hidden, wide)
        ):  # fmt: skip
            s.table(f"{layer}.{name}", count * rows, columns, scale=rows**-0.5)

    def draw(self, random: np.random.Generator) -> list[Array]:
        """Ids, those that follow, and the cosines and sines of rotations (length, d / 2)."""
        half = self.width // self.heads // 2
        angles = np.outer(np.arange(self.length), 500000.0 ** -(np.arange(half) / half))
        turned = [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)]
        return [*_next_tokens(self.vocabulary, self.batch, self.length)(random), *turned]

    def loss(self, f: Functions, ids: Any, labels: Any, cosines: Any, sines: Any) -> Any:
        def rotated(x: Any) -> Any:
            half = x.shape[-1] // 2
            a, b = f.wide(x[..., :half]), f.wide(x[..., half:])
            turned = f.concat([a * cosines - b * sines, b * cosines + a * sines], -1)
            return f.factor(turned)

        x = f.embedding(ids, "tokens")
        for layer in range(self.layers):
            y = f.rms_norm(x, f"{layer}.first")
            query = rotated(_heads(f.linear(y, f"{layer}.q"), self.heads))
            key = rotated(_heads(f.linear(y, f"{layer}.k"), self.groups))
            value = _heads(f.linear(y, f"{layer}.v"), self.groups)
            mixed = f.attention(query, key, value, causal=True, grouped=True)
            x = x + f.linear(_joined(mixed), f"{layer}.o")
            y = f.rms_norm(x, f"{layer}.second")
            x = x + (self._experts(f, layer, y) if self.experts else self._forward(f, layer, y))
        return _loss(f, f.linear(f.rms_norm(x, "last"), "logits"), labels)

    def _forward(self, f: Functions, layer: int, x: Any) -> Any:
        gated = f.silu(f.linear(x, f"{layer}.gate")) * f.linear(x, f"{layer}.up")
        return f.linear(gated, f"{layer}.down")

    def _experts(self, f: Functions, layer: int, x: Any) -> Any:
        """Tokens go to a buffer of rows for each expert, and their results back."""
        wide, hidden, count = self.width, self.hidden, self.experts
        tokens = x.reshape((-1, wide))
        room = math.ceil(self.ROOM * self.CHOSEN * tokens.shape[0] / count)
        odds = f.softmax(f.wide(f.linear(tokens, f"{layer}.router")), -1)
        shares, chosen = f.topk(odds, self.CHOSEN, -1)
        shares = shares / shares.sum(-1)[:, None]
        expert = chosen.reshape((-1,))  # (tokens * CHOSEN,)
        is_chosen = f.one_hot(expert, count)
        place = (f.running_count(is_chosen) * is_chosen).sum(-1) - 1
        trash = count * room  # a row for those that find no room
        row = f.where(place < room, expert * room + place, f.constant_like(place, trash))
        twice = f.concat([tokens[:, None], tokens[:, None]], 1).reshape((-1, wide))
        buffer = f.sums_of_rows(trash + 1, row, twice)[:trash].reshape((count, room, wide))

        def weight(name: str, rows: int, columns: int) -> Any:
            return f.weights[f"{layer}.{name}"].reshape((count, rows, columns))

        gated = f.silu(f.product(buffer, weight("gates", wide, hidden)))
        gated = gated * f.product(buffer, weight("ups", wide, hidden))
        results = f.product(gated, weight("downs", hidden, wide)).reshape((trash, wide))
        results = f.concat([results, f.constant_like(results[:1], 0.0)], 0)
        found = f.rows(results, row).reshape((-1, self.CHOSEN, wide))
        return (found * f.factor(shares)[:, :, None]).sum(1).reshape(x.shape)


@dataclass(frozen=True)
class Bert:
    """BERT (Devlin et al. 2019) on masked tokens, without dropout, its vocabulary padded to a
    multiple of 128. Sequences have different lengths."""

    layers: int
    width: int
    heads: int
    batch: int
    length: int
    vocabulary: int = 30592

    MASKED = 0.15

    def program(self) -> Program:
        """Its training step."""
        s, wide = Specification(), self.width
        s.table("tokens", self.vocabulary, wide)
        s.table("positions", self.length, wide)
        s.norm("embedded", wide)
        for layer in range(self.layers):
            for name, inner, outer in (
                ("q", 1, 1), ("k", 1, 1), ("v", 1, 1), ("out", 1, 1), ("up", 1, 4), ("down", 4, 1)
            ):  # fmt: skip
                s.linear(f"{layer}.{name}", inner * wide, outer * wide, scale=0.02)
            s.norm(f"{layer}.first", wide)
            s.norm(f"{layer}.second", wide)
        s.linear("head", wide, wide, scale=0.02)
        s.norm("last", wide)
        s.norm("logits", self.vocabulary)
        del s.weights["logits.weight"]
        sizes = f"{self.layers} layers, d {wide}, B{self.batch} S{self.length}"
        return Program(sizes, s.weights, self.draw, (Phase(self.loss),))

    def draw(self, random: np.random.Generator) -> list[Array]:
        """Ids, labels, and which places are part of a sequence, (B, 1, 1, S)."""
        shape = self.batch, self.length
        ids = random.integers(0, self.vocabulary, shape)
        ends = random.integers(self.length // 2, self.length + 1, self.batch)
        inside = np.arange(self.length) < ends[:, None]
        labels = np.where((random.random(shape) < self.MASKED) & inside, ids, IGNORED)
        return [ids, labels, inside[:, None, None, :]]

    def loss(self, f: Functions, ids: Any, labels: Any, inside: Any) -> Any:
        x = f.layer_norm(f.embedding(ids, "tokens") + f.weights["positions"], "embedded", 1e-12)
        for layer in range(self.layers):
            query, key, value = (
                _heads(f.linear(x, f"{layer}.{name}"), self.heads) for name in "qkv"
            )
            mixed = _joined(f.attention(query, key, value, mask=inside))
            x = f.layer_norm(x + f.linear(mixed, f"{layer}.out"), f"{layer}.first", 1e-12)
            y = f.linear(f.gelu(f.linear(x, f"{layer}.up")), f"{layer}.down")
            x = f.layer_norm(x + y, f"{layer}.second", 1e-12)
        x = f.layer_norm(f.gelu(f.linear(x, "head")), "last", 1e-12)
        logits = f.product(x, f.weights["tokens"].T) + f.factor(f.weights["logits.bias"])
        return _loss(f, logits, labels)


@dataclass(frozen=True)
class T5:
    """T5 (Raffel et al. 2020), without dropout."""

    layers: int
    width: int
    heads: int
    depth: int  # of a head
    hidden: int
    batch: int
    length: int
    written: int  # tokens of the decoder
    vocabulary: int = 32128

    BUCKETS, FAR = 32, 128

    def program(self) -> Program:
        """Its training step."""
        s, wide, inner = Specification(), self.width, self.heads * self.depth
        s.table("tokens", self.vocabulary, wide, scale=1.0)
        for side in ("encoder", "decoder"):
            s.table(f"{side}.bias", self.BUCKETS, self.heads, scale=0.1)
            for layer in range(self.layers):
                for part in ("own", "cross")[: 1 + (side == "decoder")]:
                    name = f"{side}.{layer}.{part}"
                    s.linear(
                        f"{name}.q", wide, inner, bias=False, scale=(wide * self.depth) ** -0.5
                    )
                    s.linear(f"{name}.k", wide, inner, bias=False)
                    s.linear(f"{name}.v", wide, inner, bias=False)
                    s.linear(f"{name}.o", inner, wide, bias=False)
                    s.norm(f"{name}.norm", wide, bias=False)
                name = f"{side}.{layer}.forward"
                s.linear(f"{name}.up", wide, self.hidden, bias=False)
                s.linear(f"{name}.down", self.hidden, wide, bias=False)
                s.norm(f"{name}.norm", wide, bias=False)
            s.norm(f"{side}.norm", wide, bias=False)
        sizes = f"{self.layers} and {self.layers} layers, d {wide}, B{self.batch}, "
        sizes += f"S{self.length} to S{self.written}"
        return Program(sizes, s.weights, self.draw, (Phase(self.loss),))

    def draw(self, random: np.random.Generator) -> list[Array]:
        """Ids to read, ids to write, labels, the bucket of each distance on both sides, and which
        places are later."""
        ids = random.integers(0, self.vocabulary, (self.batch, self.length))
        written = _next_tokens(self.vocabulary, self.batch, self.written)(random)
        both, past = self._buckets(self.length, True), self._buckets(self.written, False)
        return [ids, *written, both, past, np.triu(np.ones(past.shape, np.bool_), 1)]

    def _buckets(self, length: int, both: bool) -> Array:
        """(length, length): small distances have a bucket each, large ones share by logarithm."""
        apart = np.arange(length)[None, :] - np.arange(length)[:, None]
        count = self.BUCKETS // 2 if both else self.BUCKETS
        first = np.where(apart > 0, count, 0) if both else np.zeros_like(apart)
        far = np.abs(apart) if both else np.maximum(-apart, 0)
        exact = count // 2
        ratio = np.log(np.maximum(far, 1) / exact) / math.log(self.FAR / exact)
        large = np.minimum(exact + (ratio * (count - exact)).astype(np.int64), count - 1)
        buckets: Array = first + np.where(far < exact, far, large)
        return buckets

    def loss(self, f: Functions, ids: Any, written: Any, labels: Any, both: Any, past: Any,
             later: Any) -> Any:  # fmt: skip
        def bias(side: str, buckets: Any) -> Any:
            rows = f.embedding(buckets.reshape((-1,)), f"{side}.bias")
            return rows.reshape((*buckets.shape, self.heads)).transpose(1, 2).transpose(0, 1)

        def attention(x: Any, memory: Any, name: str, mask: Any) -> Any:
            query, key, value = (
                _heads(f.linear(of, f"{name}.{part}"), self.heads)
                for of, part in ((x, "q"), (memory, "k"), (memory, "v"))
            )
            mixed = f.attention(query, key, value, mask=mask, scale=1.0)
            return f.linear(_joined(mixed), f"{name}.o")

        def side(name: str, x: Any, mask: Any, memory: Any) -> Any:
            for layer in range(self.layers):
                y = f.rms_norm(x, f"{name}.{layer}.own.norm", 1e-6)
                x = x + attention(y, y, f"{name}.{layer}.own", mask)
                if memory is not None:
                    y = f.rms_norm(x, f"{name}.{layer}.cross.norm", 1e-6)
                    x = x + attention(y, memory, f"{name}.{layer}.cross", None)
                y = f.rms_norm(x, f"{name}.{layer}.forward.norm", 1e-6)
                y = f.relu(f.linear(y, f"{name}.{layer}.forward.up"))
                x = x + f.linear(y, f"{name}.{layer}.forward.down")
            return f.rms_norm(x, f"{name}.norm", 1e-6)

        memory = side("encoder", f.embedding(ids, "tokens"), bias("encoder", both)[None], None)
        near = bias("decoder", past)
        mask = f.where(later, f.constant_like(near, -1e9), near)
        x = side("decoder", f.embedding(written, "tokens"), mask[None], memory)
        return _loss(f, f.product(x * self.width**-0.5, f.weights["tokens"].T), labels)
