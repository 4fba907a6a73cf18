"""GPT-2 124M writing: a token a call, with keys and values of those before it in memory."""

from __future__ import annotations

from bench.cases import Case, gpt2
from bench.cases.whole import LEAST_RATIO, PEERS, TOLERANCE, group

GROUP = group(
    "GPT-2 124M",
    Case(
        f"GPT-2 124M, decoding, {gpt2.CACHE} places", gpt2.inputs(1), gpt2.DECODE, PEERS,
        targets=(LEAST_RATIO,), quick=True, tolerance=TOLERANCE, makes_step=True, arguments=1,
    ),
)  # fmt: skip
