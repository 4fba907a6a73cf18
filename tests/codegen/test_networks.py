"""Random networks of products, normalisations and transposes, with their derivatives: kernels in
which reductions of different axes meet. All are scheduled, some are compiled and run."""

from __future__ import annotations

import random

import numpy as np
import pytest

import lamina as lm
from lamina import pipeline
from lamina.core.options import current, using
from lamina.frontend import execution
from tests.compiled import Recorder, compare

NETWORKS, COMPILED = 60, 6


def random_network(seed: int) -> list[lm.Tensor]:
    """The outputs of a network on a few leaves, and perhaps the derivative of their squares."""
    rng, values = random.Random(seed), np.random.default_rng(seed)
    batch, rows = rng.choice([1, 2, 3]), rng.choice([4, 6, 16, 24, 33])
    columns = [rng.choice([3, 4, 8, 17, 32]) for _ in range(3)]

    def leaf(*shape: int) -> lm.Tensor:
        return lm.asarray(values.standard_normal(shape).astype(np.float32))

    leaves = [leaf(batch, rows, size) for size in columns]
    pool = list(leaves)
    for _ in range(rng.randint(2, 6)):
        x = rng.choice(pool)
        same = [one for one in pool if one.shape == x.shape]
        mean = lm.mean(x, axis=rng.choice([1, 2]), keepdims=True)
        last, size, other = x.shape[2], rng.choice(columns), rng.choice(same)
        makers = (
            lambda x=x, n=last, m=size: x @ leaf(batch, n, m),
            lambda x=x, n=last, m=size: x @ leaf(n, m),
            lambda x=x: lm.softmax(x, axis=-1),
            lambda x=x: lm.tanh(x * 0.5),
            lambda x=x, mean=mean: x - mean,
            lambda x=x, mean=mean: lm.broadcast_to(mean, x.shape),
            lambda x=x, other=other: x * other,
        )
        pool.append(rng.choice(makers)())
    outputs = []
    for _ in range(rng.randint(2, 5)):
        x, y = rng.choice(pool[3:]), rng.choice(pool)
        product = lm.matrix_transpose(x) @ y
        turned = lm.matrix_transpose(product) + leaf(batch, y.shape[2], x.shape[2])
        outputs.append(rng.choice([product, turned, product * 0.5, lm.sum(x, axis=1), x]))
    if rng.random() < 0.5:
        outputs += lm.gradient(lm.sum(lm.stack([lm.sum(one * one) for one in outputs])), leaves)
    return outputs


def test_random_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr(execution, "execute", recorder)
    for seed in range(NETWORKS):
        recorder.test, recorder.kept = f"seed {seed}", 0
        with using(device="interp"):
            lm.realize(*random_network(seed))
    for sample in recorder.samples:
        pipeline.compile_source(sample.sinks, current())  # verifies what each pass returns
    assert not compare(recorder.samples[:: len(recorder.samples) // COMPILED])
