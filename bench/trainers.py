"""A GPT-2 and its training step in lamina and in PyTorch: products in bfloat16, float32 weights.

PyTorch is run as its guides and the well-known trainers of GPT-2 do: bfloat16 by autocast, a fused
AdamW, its compiler, and a vocabulary that is padded to a multiple of 128, without which its
products for the logits are slow.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.cases import Array
from bench.report import LAMINA

# As GPT-2 is usually trained: the rate rises in a straight line.
RATE, RISE, BETAS, DECAY = 6e-4, 700, (0.9, 0.95), 0.1
ROUND = 128  # a padded vocabulary is a multiple of it


@dataclass(frozen=True)
class Model:
    """The sizes of a GPT-2 and of its batches.

    padding: logits, and rows of the embedding, that stand for no token.
    """

    vocabulary: int = 50257
    padding: int = 0
    width: int = 768
    heads: int = 12
    layers: int = 12
    batch: int = 16
    length: int = 1024

    def logits(self) -> int:
        """How many there are for each token."""
        return self.vocabulary + self.padding

    def padded(self) -> Model:
        """The same with a vocabulary that is a multiple of ROUND: 50,304 of 50,257."""
        return replace(self, padding=-self.vocabulary % ROUND)

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every weight by name."""
        wide = self.width
        yield "tokens", (self.logits(), wide)
        yield "positions", (self.length, wide)
        for layer in range(self.layers):
            for name, inner, outer in (("qkv", 1, 3), ("out", 1, 1), ("up", 1, 4), ("down", 4, 1)):
                yield f"{layer}.{name}", (outer * wide, inner * wide)
                yield f"{layer}.{name}_bias", (outer * wide,)
            for name in ("first", "second"):
                yield f"{layer}.{name}_gain", (wide,)
                yield f"{layer}.{name}_bias", (wide,)
        yield "last_gain", (wide,)
        yield "last_bias", (wide,)

    def weights(self, random: np.random.Generator) -> dict[str, Array]:
        """Fresh weights, as GPT-2 begins."""
        drawn = {}
        for name, shape in self.shapes():
            scale = 0.0 if name.endswith("bias") else 0.02
            if name.endswith((".out", ".down")):
                scale /= (2 * self.layers) ** 0.5
            values = random.standard_normal(shape, dtype=np.float32) * np.float32(scale)
            drawn[name] = values + np.float32(name.endswith("gain"))
        return drawn

    def tokens(self, random: np.random.Generator, batches: int) -> Array:
        """Ids of (batches, batch, length + 1), some far more frequent than others, and half of
        them told by the one before, so that there is something to learn."""
        frequency = 1.0 / (np.arange(self.vocabulary) + 2.7)
        shape = batches, self.batch, self.length + 1
        ids = random.choice(self.vocabulary, shape, p=frequency / frequency.sum())
        follows = random.random(shape) < 0.5
        for place in range(1, self.length + 1):
            told = (ids[..., place - 1] * 31 + 7) % self.vocabulary
            ids[..., place] = np.where(follows[..., place], told, ids[..., place])
        return ids


def lamina_loss(lm: Any, model: Model, weights: dict[str, Any], ids: Any, following: Any) -> Any:
    half, wide, batch, length = lm.bfloat16, model.width, *ids.shape

    def linear(x: Any, name: str) -> Any:
        product = x.cast(half) @ weights[name].cast(half).T
        return product + weights[f"{name}_bias"].cast(half)

    def norm(x: Any, name: str) -> Any:
        return lm.layer_norm(x, (wide,), weights[f"{name}_gain"], weights[f"{name}_bias"])

    def heads(x: Any, part: int) -> Any:
        one = x[..., part * wide : (part + 1) * wide]
        return one.reshape((batch, length, model.heads, wide // model.heads)).transpose(1, 2)

    x = lm.embedding(ids, weights["tokens"]) + weights["positions"][:length]
    for layer in range(model.layers):
        y = linear(norm(x, f"{layer}.first"), f"{layer}.qkv")
        query, key, value = (heads(y, part) for part in range(3))
        mixed = lm.scaled_dot_product_attention(query, key, value, is_causal=True)
        mixed = mixed.transpose(1, 2).reshape((batch, length, wide))
        x = x + linear(mixed, f"{layer}.out").cast(lm.float32)
        y = linear(norm(x, f"{layer}.second"), f"{layer}.up")
        x = x + linear(lm.gelu(y, approximate="tanh"), f"{layer}.down").cast(lm.float32)
    logits = norm(x, "last").cast(half) @ weights["tokens"].cast(half).T
    flat = logits.reshape((batch * length, model.logits())).cast(lm.float32)
    return lm.cross_entropy(flat, following.reshape((batch * length,)))


def torch_loss(torch: Any, model: Model, weights: Any, ids: Any, following: Any) -> Any:
    functional, wide, (batch, length) = torch.nn.functional, model.width, ids.shape

    def linear(x: Any, name: str) -> Any:
        return functional.linear(x, weights[name], weights[f"{name}_bias"])

    def norm(x: Any, name: str) -> Any:
        gain, bias = weights[f"{name}_gain"], weights[f"{name}_bias"]
        return functional.layer_norm(x, (wide,), gain, bias)

    with torch.autocast(ids.device.type, torch.bfloat16):
        x = functional.embedding(ids, weights["tokens"]) + weights["positions"][:length]
        for layer in range(model.layers):
            y = linear(norm(x, f"{layer}.first"), f"{layer}.qkv")
            query, key, value = (
                one.reshape(batch, length, model.heads, wide // model.heads).transpose(1, 2)
                for one in y.chunk(3, -1)
            )
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + linear(mixed.transpose(1, 2).reshape(batch, length, wide), f"{layer}.out")
            y = linear(norm(x, f"{layer}.second"), f"{layer}.up")
            x = x + linear(functional.gelu(y, approximate="tanh"), f"{layer}.down")
        logits = functional.linear(norm(x, "last"), weights["tokens"])
        flat = logits.reshape(batch * length, model.logits()).float()
        return functional.cross_entropy(flat, following.reshape(-1))


Batch = tuple[Any, Any]  # ids on the device, and the ids that follow them


@dataclass(frozen=True)
class Trainer:
    """place: brings ids of (batch, length + 1) to the device. step: trains with a batch; returns
    the loss, for which nobody has waited."""

    place: Callable[[Array], Batch]
    step: Callable[[Any, Any], Any]


def rates_of_steps() -> Iterator[float]:
    """The learning rate of each step: in every column the same, so that losses are comparable."""
    from lamina import nn

    rate = nn.schedules.cosine(RATE, 10 * RISE, RISE)
    return (rate(step) for step in itertools.count())


def lamina_trainer(model: Model, drawn: dict[str, Array], device: str) -> Trainer:
    """Lamina's training step, jitted; in several processes data parallel."""
    import lamina as lm
    from lamina import distributed, nn

    weights = {name: lm.Tensor(one, device=device, requires_grad=True)
               for name, one in drawn.items()}  # fmt: skip
    parameters = list(weights.values())
    optimizer = nn.optim.AdamW(parameters, betas=BETAS, weight_decay=DECAY)
    rates = rates_of_steps()

    @lm.jit
    def fast(ids: Any, following: Any) -> Any:
        loss = lamina_loss(lm, model, weights, ids, following)
        optimizer.step(distributed.averaged(lm.gradient(loss, parameters)))
        return loss

    def step(ids: Any, following: Any) -> Any:
        optimizer.lr = next(rates)
        return fast(ids, following)

    def place(ids: Array) -> Batch:
        here, following = (np.ascontiguousarray(part) for part in (ids[:, :-1], ids[:, 1:]))
        return lm.asarray(here, device=device), lm.asarray(following, device=device)

    return Trainer(place, step)


def torch_trainer(model: Model, drawn: dict[str, Array], device: str, compiled: bool) -> Trainer:
    """PyTorch's, eager or by its compiler, with its fused AdamW."""
    import torch

    kind = device.partition(":")[0]
    weights = {name: torch.from_numpy(one).to(kind).clone().requires_grad_()
               for name, one in drawn.items()}  # fmt: skip

    def loss_of(ids: Any, following: Any) -> Any:
        return torch_loss(torch, model, weights, ids, following)

    if compiled:
        # Else it takes the vocabulary, which an earlier model had another of, for one that changes.
        torch._dynamo.reset()
        loss_of = torch.compile(loss_of)
    return torch_steps(weights.values(), loss_of, kind)


def torch_steps(
    parameters: Iterable[Any], loss_of: Callable[[Any, Any], Any], device: Any
) -> Trainer:
    """PyTorch's steps by its fused AdamW, of parameters that `loss_of` has on the device."""
    import torch

    optimizer = torch.optim.AdamW(parameters, betas=BETAS, weight_decay=DECAY, fused=True)
    rates = rates_of_steps()

    def step(ids: Any, following: Any) -> Any:
        optimizer.param_groups[0]["lr"] = next(rates)
        optimizer.zero_grad()
        loss = loss_of(ids, following)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def place(ids: Array) -> Batch:
        here = torch.from_numpy(ids).to(device)
        return here[:, :-1].contiguous(), here[:, 1:].contiguous()

    return Trainer(place, step)


def trainer(column: str, model: Model, drawn: dict[str, Array], device: str) -> Trainer:
    """The trainer of a column of the table."""
    if column == LAMINA:
        return lamina_trainer(model, drawn, device)
    return torch_trainer(model, drawn, device, column == "torch.compile")
