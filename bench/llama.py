"""A Llama with 8 thousand million parameters on one GPU: the share of the memory bandwidth that
decoding reaches, and the times of PyTorch's compiler beside lamina's.

    python -m bench.llama --device cuda:0 --output results
    python -m bench.llama --only decode,four-bit --layers 8
    python -m bench.llama --device cpu --tiny

decode     a token after the other, of one text, with weights in bfloat16
four-bit   the same with weights in blocks of the type Q4_0, as GGUF files have them
batch      a token of each of 64 texts at a time, beside PyTorch
prefill    8 prompts of 2,048 tokens, to the logits after the last ones, beside PyTorch

Weights are random; products have factors in bfloat16. Where a step is for one text, the host reads
each token after it has begun the next step, as `lamina.models.generate` does. PyTorch's model is
`torch_llama.py`, compiled with max-autotune and CUDA graphs; it has the same weights, in the same
memory. The last two sections have `--peer-layers` layers only, as PyTorch compiles each of them.
The first two count the bytes of the weights but the lookup's, and of the filled part of the cache;
bandwidths are those of a sum and of a copy, measured in the same run. With `--output` the sections
of a page that are not measured again are kept.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import lamina as lm
from bench.llama_shape import EIGHT_BILLION, TINY, HalfWeights
from bench.machine import commit
from bench.samples import in_turns, ratio
from lamina.core.shape import Shape
from lamina.frontend.tensor import Tensor
from lamina.io.blocks import BLOCK_TYPES, Packed
from lamina.models.llama import Llama, LlamaConfig
from lamina.models.parts import Cache
from lamina.models.sampling import best
from lamina.models.sharing import Cut
from lamina.runtime.buffer import heap_of

ROUNDS = 7
NOMINAL = 4.8e12  # bytes a second that NVIDIA says of an H200's memory
Q4_0 = BLOCK_TYPES[2]  # by its number in GGUF files
SECTIONS = ("decode", "four-bit", "batch", "prefill")
Step = Callable[[], object]


@dataclass(frozen=True)
class Sizes:
    """What is measured.

    config, peer_layers: the model, and its layers beside PyTorch. capacity: places of the cache of
    one text; batch_capacity: of each of `batch` texts. filled: of these, before the step.
    prompts: how many, of how many tokens. stream: bytes that bandwidths are measured with
    """

    config: LlamaConfig
    peer_layers: int
    capacity: int = 2048
    batch: int = 64
    batch_capacity: int = 1024
    filled: int = 512
    prompts: Shape = (8, 2048)
    stream: int = 4 << 30
    seconds: float = 0.3  # of a turn


SMALL = Sizes(replace(TINY, inner=64), 2, 64, 3, 32, 16, (2, 48), 1 << 20, 0.01)


class Weights(HalfWeights):
    """Those of `HalfWeights`, in memory and by name, in bfloat16."""

    def __init__(self) -> None:
        super().__init__(None, lm.bfloat16)
        self.tensors: dict[str, Tensor | Packed] = {}

    def take(self, name: str, shape: Shape, cut: Cut | None = None) -> Any:
        self.tensors[name] = self._drawn(shape)
        return self.tensors[name]

    def vector(self, name: str, size: int, cut: Cut | None = None) -> Tensor:
        scale = super().vector(name, size, cut)
        lm.realize(scale)
        self.tensors[name] = scale
        return scale

    def _drawn(self, shape: Shape) -> Tensor | Packed:
        return super().take("", shape)

    def nbytes(self) -> int:
        """Bytes of the weights that each token reads as a whole: all but the lookup's."""
        read = [weight for name, weight in self.tensors.items() if "embed_tokens" not in name]
        arrays = [weight.data if isinstance(weight, Packed) else weight for weight in read]
        return sum(math.prod(array.shape) * array.dtype.itemsize for array in arrays)


class FourBitWeights(Weights):
    """The same in blocks of 32 numbers of 4 bits with a scale in float16, all drawn."""

    def _drawn(self, shape: Shape) -> Packed:
        rows, blocks = shape[0], -(-shape[1] // Q4_0.weights)
        numbers = lm.random.randint((rows, blocks, Q4_0.nbytes - 2), low=0, high=256)
        # 0.0039 is 0x1C00 in float16: weights of 8 times that at most.
        scales = Tensor([0x00, 0x1C], lm.uint8).expand((rows, blocks, 2))
        data = lm.concat([scales, numbers.cast(lm.uint8)], axis=-1).contiguous()
        lm.realize(data)
        return Packed(Q4_0, data)


def decoder(
    network: Llama, caches: list[Cache]
) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A program for the next tokens, (batch, 1), and their logits, of texts that are all at one
    place: ids (batch, 1), and the place as a scalar."""

    @lm.jit
    def step(ids: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        logits = network(ids, caches, place)
        return best(logits), logits

    return step


def filled_caches(network: Llama, batch: int, capacity: int, device: str) -> list[Cache]:
    """Caches with keys and values at all places: where a text ends, a tensor says."""
    caches = network.new_caches(batch, capacity, device)
    for cache in caches:
        for kept in (cache.keys, cache.values):
            numbers = kept.numbers
            numbers.assign(lm.random.normal(numbers.shape).cast(numbers.dtype))
            lm.realize(numbers)
    return caches


def turn(step: Step, finish: Callable[[], None], seconds: float) -> Callable[[], float]:
    """As many calls of `step` as take about so many seconds, then `finish`, which waits: the
    seconds of one call. The first calls compile."""

    def queue(calls: int) -> float:
        started = time.perf_counter()
        for _ in range(calls):
            step()
        finish()
        return (time.perf_counter() - started) / calls

    queue(3)
    calls = max(int(seconds / queue(2)), 1)
    return lambda: queue(calls)


class Run:
    """The sections of a run, each a row of a page."""

    def __init__(self, sizes: Sizes, device: str) -> None:
        self.sizes, self.device = sizes, device
        self._read_rate: float | None = None
        self.bandwidths_line = ""  # once they are measured

    def section(self, name: str) -> str:
        """The row of a section."""
        if name in ("decode", "four-bit"):
            return self._single(name, Weights() if name == "decode" else FourBitWeights())
        return self._beside_torch(name)

    def _wait(self) -> None:
        heap_of(self.device).synchronize()

    def read_rate(self) -> float:
        """Bytes a second that a sum reads, measured once."""
        if self._read_rate is None:
            self._read_rate = self._measure_bandwidths()
        return self._read_rate

    def _measure_bandwidths(self) -> float:
        """The bandwidth of a sum, in bytes a second; the line of the page has a copy's as well."""
        x = lm.ones((self.sizes.stream // 4,)).contiguous()
        lm.realize(x)
        total, copy = lm.jit(lambda x: x.sum()), lm.jit(lambda x: x * 0.5)
        turns = {
            "read": turn(lambda: total(x), self._wait, self.sizes.seconds),
            "copy": turn(lambda: copy(x), self._wait, self.sizes.seconds),
        }
        seconds = {name: median(times) for name, times in in_turns(turns, ROUNDS).items()}
        read_rate = self.sizes.stream / seconds["read"]
        copy_rate = 2 * self.sizes.stream / seconds["copy"]
        self.bandwidths_line = (
            f"{STREAMS} {read_rate / 1e12:.2f} TB/s; "
            f"a copy reads and writes {copy_rate / 1e12:.2f} TB/s."
        )
        return read_rate

    def _single(self, name: str, weights: Weights) -> str:
        """The row of a section that decodes one text."""
        sizes, read_rate = self.sizes, self.read_rate()
        network = Llama(sizes.config, weights)
        step = decoder(network, filled_caches(network, 1, sizes.capacity, self.device))
        place = Tensor(sizes.filled, lm.int64, self.device)
        chosen, _ = step(Tensor([[1]], lm.int64, self.device), place)

        def write() -> None:
            nonlocal chosen
            following, _ = step(chosen, place)
            chosen.item()
            chosen = following

        timed = turn(write, self._wait, sizes.seconds)
        seconds = median(timed() for _ in range(ROUNDS))
        keys = network.keys
        bytes_of_place = 2 * keys.layers * keys.heads * keys.size * keys.dtype.itemsize
        nbytes = weights.nbytes() + sizes.filled * bytes_of_place
        rate = nbytes / seconds
        return (
            f"| {name} | {sizes.config.layers} | {1e3 * seconds:.3f} | {1 / seconds:,.1f} | "
            f"{nbytes / 1e9:.2f} GB | {rate / 1e12:.2f} TB/s | {rate / read_rate:.1%} | "
            f"{rate / NOMINAL:.1%} |"
        )

    def _beside_torch(self, name: str) -> str:
        """The row of a section with many texts, in turns with PyTorch."""
        import torch

        from bench import torch_llama

        sizes = self.sizes
        config = replace(sizes.config, layers=sizes.peer_layers)
        weights = Weights()
        network = Llama(config, weights)
        shape = (sizes.batch, 1) if name == "batch" else sizes.prompts
        caches: list[Cache] = []
        if name == "batch":
            caches = filled_caches(network, sizes.batch, sizes.batch_capacity, self.device)
        ids = lm.random.randint(shape, low=0, high=config.vocabulary).cast(lm.int64).contiguous()
        lm.realize(ids)
        first = sizes.filled if name == "batch" else 0
        place, last = (Tensor(at, lm.int64, self.device) for at in (first, shape[1] - 1))
        their_caches = [
            (_theirs(cache.keys.numbers).clone(), _theirs(cache.values.numbers).clone())
            for cache in caches
        ]
        model = torch_llama.Llama(
            config, {key: _theirs(one) for key, one in weights.tensors.items()}, their_caches
        )

        @lm.jit
        def prefill(ids: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
            logits = network(ids, only=last)
            return best(logits), logits

        ours = decoder(network, caches) if name == "batch" else prefill
        argument = place if name == "batch" else last
        theirs = torch_llama.compiled(model, is_cached=name == "batch")
        their_ids = _theirs(ids)
        positions = torch.arange(first, first + shape[1], device=their_ids.device)
        difference = _difference(ours(ids, argument)[1], theirs(their_ids, positions)[1])

        def wait_for_theirs() -> None:
            if their_ids.is_cuda:
                torch.cuda.synchronize()

        turns = {
            "lamina": turn(lambda: ours(ids, argument), self._wait, sizes.seconds),
            "torch": turn(lambda: theirs(their_ids, positions), wait_for_theirs, sizes.seconds),
        }
        taken = in_turns(turns, ROUNDS, random.Random(0))
        tokens = math.prod(shape)
        milliseconds = " | ".join(f"{1e3 * median(taken[who]):.3f}" for who in turns)
        rates = " | ".join(f"{tokens / median(taken[who]):,.0f}" for who in turns)
        faster = ratio(taken["torch"], taken["lamina"])
        return (
            f"| {name} | {config.layers} | {milliseconds} | {rates} | {faster:.2f} | "
            f"{difference:.4f} |"
        )


def _theirs(array: Any) -> Any:
    """The memory of an array of lamina's as PyTorch's."""
    import torch

    return torch.from_dlpack(array)


def _difference(ours: Tensor, theirs: Any) -> float:
    """The norm of the difference of two arrays of logits, as a share of the norm of PyTorch's."""
    import numpy as np

    reference = theirs.float().cpu().numpy().reshape(-1)
    difference = ours.numpy().reshape(-1) - reference
    return float(np.linalg.norm(difference) / np.linalg.norm(reference))


HEADS = {
    "one": (
        "| | layers | ms a token | tokens/s | read | rate | of a sum's | of 4.8 TB/s |\n"
        "|---|---|---|---|---|---|---|---|"
    ),
    "many": (
        "| | layers | lamina, ms | PyTorch, ms | lamina, tokens/s | PyTorch, tokens/s "
        "| PyTorch's time : lamina's | logits apart |\n|---|---|---|---|---|---|---|---|"
    ),
}


STREAMS = "A sum reads"  # how the line on bandwidths begins


def page(lines: dict[str, str]) -> str:
    """The rows of sections, and the line on bandwidths, as Markdown."""
    parts = ["# A Llama with 8 thousand million parameters on one GPU", f"At {commit()}."]
    parts += [lines[STREAMS]] if STREAMS in lines else []
    for head, names in (("one", SECTIONS[:2]), ("many", SECTIONS[2:])):
        rows = [lines[name] for name in names if name in lines]
        if rows:
            parts.append("\n".join([HEADS[head], *rows]))
    return "\n\n".join(parts) + "\n"


def rows_of(path: Path) -> dict[str, str]:
    """What `page` was written from: other sections of a page are kept."""
    if not path.exists():
        return {}
    begins = {STREAMS: STREAMS} | {name: f"| {name} |" for name in SECTIONS}
    text = path.read_text(encoding="utf-8").splitlines()
    return {name: line for line in text for name, begin in begins.items() if line.startswith(begin)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections: %(default)s")
    parser.add_argument("--layers", type=int, help="of the first two sections; all by default")
    parser.add_argument("--peer-layers", type=int, default=8, help="of the others: %(default)s")
    parser.add_argument("--tiny", action="store_true", help="a small model, to see that all runs")
    parser.add_argument("--output", type=Path, help="a folder for the page, after each section")
    options = parser.parse_args()
    wanted = options.only.split(",")
    if not set(wanted) <= set(SECTIONS):
        parser.error(f"--only {options.only}: there are {', '.join(SECTIONS)}")
    config = EIGHT_BILLION
    if options.layers:
        config = replace(config, layers=options.layers)
    run = Run(SMALL if options.tiny else Sizes(config, options.peer_layers), options.device)
    path = None
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)  # before anything is measured
        path = options.output / "h200_llama.md"
    lines = rows_of(path) if path else {}
    lm.set_options(device=options.device)
    lm.random.manual_seed(0)
    for name in wanted:
        lines[name] = run.section(name)
        if run.bandwidths_line:
            lines[STREAMS] = run.bandwidths_line
        if path:
            path.write_text(page(lines), encoding="utf-8")
    print(page(lines))


if __name__ == "__main__":
    main()
