"""Training GPT-2 with products in bfloat16 and weights in float32, in lamina and in PyTorch: the
losses of both from the same weights on the same tokens, and the tokens that each takes a second."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from bench.cases import Array
from bench.report import LAMINA, VALUE, Row, Section, Target

# As GPT-2 is usually trained: the rate rises in a straight line.
RATE, RISE, BETAS, DECAY = 6e-4, 700, (0.9, 0.95), 0.1
STEPS, TIMED, CLOSE = 50, 5, 1e-2
SLOWEST = 40  # kernels that are named


@dataclass(frozen=True)
class Model:
    """The sizes of a GPT-2 and of its batches."""

    vocabulary: int = 50257
    width: int = 768
    heads: int = 12
    layers: int = 12
    batch: int = 16
    length: int = 1024

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Every weight by name."""
        wide = self.width
        yield "tokens", (self.vocabulary, wide)
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


def _lamina_loss(lm: Any, model: Model, weights: dict[str, Any], ids: Any, following: Any) -> Any:
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
    flat = logits.reshape((batch * length, model.vocabulary)).cast(lm.float32)
    return lm.cross_entropy(flat, following.reshape((batch * length,)))


def _torch_loss(torch: Any, model: Model, weights: Any, ids: Any, following: Any) -> Any:
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
        flat = logits.reshape(batch * length, model.vocabulary).float()
        return functional.cross_entropy(flat, following.reshape(-1))


Step = Callable[[Array], Any]  # one of a batch of ids; the loss


def lamina_step(model: Model, drawn: dict[str, Array], device: str) -> Step:
    """Lamina's training step, jitted."""
    import lamina as lm
    from lamina import nn

    weights = {name: lm.Tensor(one, device=device, requires_grad=True)
               for name, one in drawn.items()}  # fmt: skip
    parameters = list(weights.values())
    optimizer = nn.optim.AdamW(parameters, betas=BETAS, weight_decay=DECAY)
    rate, count = nn.schedules.cosine(RATE, 10 * RISE, RISE), itertools.count()

    def step(ids: Any, following: Any) -> Any:
        loss = _lamina_loss(lm, model, weights, ids, following)
        optimizer.step(lm.gradient(loss, parameters))
        return loss

    fast = lm.jit(step)

    def run(ids: Array) -> Any:
        optimizer.lr = rate(next(count))
        halves = (np.ascontiguousarray(one) for one in (ids[:, :-1], ids[:, 1:]))
        return fast(*(lm.asarray(one, device=device) for one in halves))

    return run


def torch_step(model: Model, drawn: dict[str, Array], device: str, compiled: bool) -> Step:
    """PyTorch's, eager or by its compiler, with its fused AdamW."""
    import torch

    from lamina import nn

    place = device.partition(":")[0]
    weights = {name: torch.from_numpy(one).to(place).clone().requires_grad_()
               for name, one in drawn.items()}  # fmt: skip
    optimizer = torch.optim.AdamW(weights.values(), betas=BETAS, weight_decay=DECAY, fused=True)
    rate, count = nn.schedules.cosine(RATE, 10 * RISE, RISE), itertools.count()

    def loss_of(ids: Any, following: Any) -> Any:
        return _torch_loss(torch, model, weights, ids, following)

    chosen = torch.compile(loss_of) if compiled else loss_of

    def run(ids: Array) -> Any:
        here = torch.from_numpy(ids).to(place)
        optimizer.param_groups[0]["lr"] = rate(next(count))
        optimizer.zero_grad()
        loss = chosen(here[:, :-1], here[:, 1:])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return run


def curves(model: Model, seed: int, device: str, steps: int) -> tuple[list[list[float]], float]:
    """The losses of lamina and of PyTorch over `steps`, and how far apart they are at most."""
    random = np.random.default_rng(seed)
    drawn, ids = model.weights(random), model.tokens(random, steps)
    ours, theirs = lamina_step(model, drawn, device), torch_step(model, drawn, device, False)
    found = [[float(step(batch).item()) for batch in ids] for step in (ours, theirs)]
    return found, max(abs(a - b) for a, b in zip(*found, strict=True))


def _rate(model: Model, step: Step, batches: Array) -> list[float]:
    """Tokens a second, in each of several turns."""
    step(batches[0]).item()
    rates = []
    for batch in batches[1:]:
        started = time.perf_counter()
        step(batch).item()
        rates.append(model.batch * model.length / (time.perf_counter() - started))
    return rates


def _slowest(step: Step, batch: Array) -> list[str]:
    """Where lamina's time goes."""
    from lamina.explain.report import profile

    with profile() as records:
        step(batch).item()
    total, count = Counter[str](), Counter(one.name for one in records)
    for one in records:
        total[one.name] += 1e3 * one.seconds
    named = (f"{count[name]} {name} {taken:.2f} ms" for name, taken in total.most_common(SLOWEST))
    return [f"{len(records)} kernels take {total.total():.0f} ms: {', '.join(named)}, ..."]


def training(seed: int, device: str) -> Section:
    """The section of the page."""
    import gc

    import torch

    model = Model()
    (ours, theirs), apart = curves(model, seed, device, STEPS)
    notes = [
        "Losses of lamina and PyTorch at steps "
        + ", ".join(f"{at + 1}: {ours[at]:.4f} and {theirs[at]:.4f}"
                    for at in (0, 9, 19, 29, 39, STEPS - 1)) + "."
    ]  # fmt: skip
    random = np.random.default_rng(seed + 1)
    drawn, batches = model.weights(random), model.tokens(random, TIMED + 1)
    steps: dict[str, Callable[[], Step]] = {
        LAMINA: lambda: lamina_step(model, drawn, device),
        "torch": lambda: torch_step(model, drawn, device, False),
        "torch.compile": lambda: torch_step(model, drawn, device, True),
    }
    rates: dict[str, list[float]] = {}
    for name, make in steps.items():
        step = make()
        rates[name] = _rate(model, step, batches)
        if name == LAMINA:
            notes += _slowest(step, batches[0])
        del step
        gc.collect()
        torch.cuda.empty_cache()
    tokens = model.batch * model.length
    seconds = {name: [1e3 * tokens / one for one in values] for name, values in rates.items()}
    notes += [f"{name}: {median(values):,.0f} tokens a second." for name, values in rates.items()]
    return Section(
        f"Training GPT-2 124M (batch {model.batch}, {model.length} tokens each, bf16 products)",
        ("torch", "torch.compile"),
        [
            Row(f"losses of {STEPS} steps, largest difference", {LAMINA: [apart]}, "",
                (Target(CLOSE, VALUE),)),
            Row("one step", seconds, "ms"),
        ],
        notes,
    )  # fmt: skip
