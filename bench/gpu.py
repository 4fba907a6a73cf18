"""Compare kernels on a GPU with PyTorch's on the same one: ``python -m bench.gpu``.

A time is the median over rounds of the wall time of one call in a queue of calls that ends with a
synchronisation, so what a call costs the host counts wherever the GPU waits for it. Bandwidth
counts every input and output once. Inputs are random; results are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch

import lamina as lm
from bench.cases import gpt2, mlp
from lamina import nn
from lamina.runtime.buffer import heap_of

DEVICE, QUEUE, ROUNDS = "cuda:0", 20, 7
GIB = 1 << 28  # float32 elements
MLP = {"lamina": mlp._lamina, "torch": mlp._torch}


def seconds(call: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """The time of one of `QUEUE` calls."""
    call()
    wait()
    found = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(QUEUE):
            call()
        wait()
        found.append((time.perf_counter() - started) / QUEUE)
    return median(found)


def pair(*shape: int, kind: str = "float32") -> tuple[lm.Tensor, torch.Tensor]:
    """One random array on the GPU, here and there."""
    array = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    ours = lm.Tensor(array, device=DEVICE).cast(getattr(lm, kind))
    ours.realize()
    return ours, torch.from_numpy(array).cuda().to(getattr(torch, kind))


def row(
    name: str, ours: Callable[..., Any], theirs: Callable[..., Any],
    *pairs: tuple[lm.Tensor, torch.Tensor], nbytes: float = 0, flops: float = 0,
) -> None:  # fmt: skip
    """Print both times, both rates, their ratio, and the largest difference."""
    here, there = [one for one, _ in pairs], [one for _, one in pairs]
    fast = lm.jit(ours)
    got, want = fast(*here).cast(lm.float32).numpy(), theirs(*there).float().cpu().numpy()
    error = np.abs(got - want).max() / max(np.abs(want).max(), 1e-30)
    mine = seconds(lambda: fast(*here), heap_of(DEVICE).synchronize)
    other = seconds(lambda: theirs(*there), torch.cuda.synchronize)
    work, unit = (flops, "TFLOP/s") if flops else (nbytes, "TB/s")
    rates = f"{work / mine * 1e-12:.2f} | {work / other * 1e-12:.2f} {unit}" if work else "| "
    print(f"| {name} | {mine * 1e6:.1f} | {other * 1e6:.1f} | {rates} | {other / mine:.2f} | "
          f"{error:.0e} |", flush=True)  # fmt: skip


def memory() -> None:
    """What moving memory bounds."""
    big = pair(GIB)
    row("sum, 1 GiB f32", lm.sum, torch.sum, big, nbytes=4 * GIB)
    row("x * 2 + 1, 1 GiB f32", lambda x: x * 2 + 1, lambda x: x * 2 + 1, big, nbytes=8 * GIB)
    row("exp, 1 GiB f32", lm.exp, torch.exp, big, nbytes=8 * GIB)
    for kind, short, size in (("float32", "f32", 4), ("bfloat16", "bf16", 2)):
        x = pair(16384, 8192, kind=kind)
        n = 16384 * 8192 * size
        row(f"x + 1, {short}", lambda x: x + 1, lambda x: x + 1, x, nbytes=2 * n)
        row(f"gelu, {short}", lambda x: x.gelu(), torch.nn.functional.gelu, x, nbytes=2 * n)
        row(f"softmax, {short}", lambda x: lm.softmax(x, -1), lambda x: x.softmax(-1), x,
            nbytes=2 * n)  # fmt: skip
        row(f"sum of rows, {short}", lambda x: lm.sum(x, axis=1), lambda x: x.sum(1), x, nbytes=n)
        row(f"sum of columns, {short}", lambda x: lm.sum(x, axis=0), lambda x: x.sum(0), x,
            nbytes=n)  # fmt: skip
        row(f"argmax of rows, {short}", lambda x: lm.argmax(x, axis=1), lambda x: x.argmax(1), x,
            nbytes=n)  # fmt: skip
        ours = nn.LayerNorm(8192, dtype=getattr(lm, kind), device=DEVICE)
        theirs = torch.nn.LayerNorm(8192).cuda().to(x[1].dtype).requires_grad_(False)
        row(f"layer_norm, {short}", lambda x, layer=ours: layer(x).detach(), theirs, x,
            nbytes=2 * n)  # fmt: skip
        row(f"transpose, {short}", lambda x: lm.permute_dims(x, (1, 0)).contiguous(),
            lambda x: x.t().contiguous(), x, nbytes=2 * n)  # fmt: skip


def products() -> None:
    """Contractions in float32, without tensor cores on either side."""
    for size in (1024, 4096):
        a, b, work = pair(size, size), pair(size, size), 2.0 * size**3
        row(f"matmul {size} f32", lambda a, b: a @ b, lambda a, b: a @ b, a, b, flops=work)
        row(f"matmul {size} f32, second operand turned",
            lambda a, b: a @ lm.permute_dims(b, (1, 0)), lambda a, b: a @ b.t(), a, b,
            flops=work)  # fmt: skip
    image, window = pair(16, 64, 56, 56), pair(64, 64, 3, 3)
    row("convolution 3x3, 64 channels, f32", lambda x, w: lm.conv2d(x, w, padding=1),
        lambda x, w: torch.nn.functional.conv2d(x, w, padding=1), image, window,
        flops=2.0 * 16 * 64 * 56 * 56 * 64 * 9)  # fmt: skip


def orders() -> None:
    """Sorts and scans, and what a call costs when there is nothing to do."""
    line, block, small = pair(1 << 20), pair(4096, 1024), pair(16)
    row("sort 2^20 f32", lm.sort, lambda x: x.sort()[0], line)
    row("sort 4096 rows of 1024", lm.sort, lambda x: x.sort()[0], block)
    row("cumulative sum of 2^20 f32", lm.cumulative_sum, lambda x: x.cumsum(0), line)
    row("cumulative sum of 4096 rows of 1024", lambda x: lm.cumulative_sum(x, axis=1),
        lambda x: x.cumsum(1), block)  # fmt: skip
    row("x + 1, 16 elements", lambda x: x + 1, lambda x: x + 1, small)
    row("8 sums of 16 elements, one after the other", _chain, _chain, small)


def models() -> None:
    """Whole programs in float32; the difference is that of the first results."""
    for name, makers, draw in (
        ("MLP 784-512-10, training step, batch 64", MLP, mlp._data),
        ("GPT-2-small, 512 tokens, forward", gpt2.FORWARD, gpt2.inputs(512)),
        ("GPT-2-small, 512 tokens, training step with AdamW", gpt2.TRAINING, gpt2.inputs(512)),
    ):
        arrays = draw(np.random.default_rng(0))
        with lm.using(device=DEVICE):
            ours = makers["lamina"](lm, *map(lm.Tensor, arrays))
            theirs = makers["torch"](torch, *(torch.from_numpy(one).cuda() for one in arrays))
            row(name, ours, lambda make=theirs: make().detach())


def _chain(x: Any) -> Any:
    for _ in range(8):
        x = x + x.sum()
    return x


def _many(x: Any) -> Any:
    for _ in range(500):
        x = x * 0.5 + x.sum(0) * (0.5 / 64)
        x = x * 0.5 + x.sum(1)[:, None] * (0.5 / 64)
    return x


def launches() -> None:
    """What many small kernels cost, all in all and the host alone."""
    x = pair(64, 64)
    row("1,000 kernels of 4,096 elements", _many, _many, x)
    fast, found = lm.jit(_many), list[float]()
    for _ in range(2 * ROUNDS):
        started = time.perf_counter()
        fast(x[0])
        found.append(time.perf_counter() - started)
        heap_of(DEVICE).synchronize()
    print(f"\nOf the 1,000 kernels the host needs {median(found) * 1e3:.2f} us for each.")


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    print(f"{heap_of(DEVICE)}; PyTorch {torch.__version__}, eager\n")
    print("| | lamina, us | PyTorch, us | lamina | PyTorch | times as fast | error |")
    print("|---|---|---|---|---|---|---|")
    for table in (memory, products, orders, models, launches):
        table()


if __name__ == "__main__":
    main()
