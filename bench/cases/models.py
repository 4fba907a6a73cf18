"""Whole models."""

from __future__ import annotations

from bench.cases import Case, Group, gpt2, resnet

_TRAINING_TOKENS = 128
_PEERS = ("torch", "torch.compile", "onnxruntime")


def forward(length: int, quick: bool) -> Case:
    """GPT-2-small on so many tokens."""
    return Case(
        f"GPT-2-small, forward, T={length}", gpt2.inputs(length), gpt2.FORWARD,
        (*_PEERS, "jax") if length < 512 else _PEERS,
        targets=(), quick=quick, tolerance=1e-4, makes_step=True, arguments=1,
    )  # fmt: skip


GROUP = Group(
    "Models (float32, random weights)",
    (
        forward(64, True),
        forward(512, False),
        Case(
            f"GPT-2-small, training step with AdamW, T={_TRAINING_TOKENS}",
            gpt2.inputs(_TRAINING_TOKENS), gpt2.TRAINING, ("torch", "torch.compile"),
            targets=(), tolerance=1e-4, makes_step=True, arguments=2,
        ),
        Case(
            f"ResNet-18, forward, {resnet.BATCH} images", resnet.inputs, resnet.FORWARD, _PEERS,
            targets=(), tolerance=1e-4, makes_step=True, arguments=1,
        ),
    ),
    ("Batch 1 for GPT-2, which is compared by logits, or by the loss of the third step.",),
    single=False,
    rounds=4,
)  # fmt: skip
