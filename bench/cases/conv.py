"""Convolutions of images, forward and backward (gradients of input and weights)."""

from __future__ import annotations

from typing import Any

from bench.cases import Case, Group

BATCH, CHANNELS, SIDE = 8, 64, 56
KINDS = {  # filters, channels of one filter, side of the window, stride, padding, groups
    "3x3": (CHANNELS, CHANNELS, 3, 1, 1, 1),
    "1x1": (CHANNELS, CHANNELS, 1, 1, 0, 1),
    "depthwise 3x3": (CHANNELS, 1, 3, 1, 1, CHANNELS),
    "3x3, stride 2": (2 * CHANNELS, CHANNELS, 3, 2, 1, 1),
}


def _cases(name: str) -> list[Case]:
    filters, channels, window, stride, padding, groups = KINDS[name]
    side = (SIDE + 2 * padding - window) // stride + 1
    x, w, y = (
        (BATCH, CHANNELS, SIDE, SIDE),
        (filters, channels, window, window),
        (BATCH, filters, side, side),
    )
    options = {"stride": stride, "padding": padding, "groups": groups}
    flops = 2.0 * BATCH * filters * side * side * channels * window * window

    def lamina(lm: Any, x: Any, w: Any) -> Any:
        return lm.conv2d(x, w, **options)

    def torch(torch: Any, x: Any, w: Any) -> Any:
        return torch.nn.functional.conv2d(x, w, **options)

    def jax(jax: Any, x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x, w, (stride, stride), [(padding, padding)] * 2, feature_group_count=groups
        )

    def lamina_backward(lm: Any, x: Any, w: Any, dy: Any) -> Any:
        return lm.gradient(lm.conv2d(x, w, **options), [x, w], dy)

    def torch_backward(torch: Any, x: Any, w: Any, dy: Any) -> Any:
        return torch.ops.aten.convolution_backward(
            dy, x, w, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups,
            [True, True, False],
        )[:2]  # fmt: skip

    def jax_backward(jax_: Any, x: Any, w: Any, dy: Any) -> Any:
        return jax_.vjp(lambda x, w: jax(jax_, x, w), x, w)[1](dy)

    forward = {"lamina": lamina, "torch": torch, "jax": jax}
    backward = {"lamina": lamina_backward, "torch": torch_backward, "jax": jax_backward}
    peers, quick = ("torch", "jax"), name in ("3x3", "depthwise 3x3")
    return [
        Case(f"{name}, forward", (x, w), forward, peers, ("fma", flops), quick=quick),
        Case(f"{name}, backward", (x, w, y), backward, peers, ("fma", 2 * flops), quick=quick),
    ]


GROUP = Group(
    f"Convolutions ({BATCH} x {CHANNELS} x {SIDE} x {SIDE}, float32, channels first)",
    tuple(case for name in KINDS for case in _cases(name)),
    ("Backward computes the gradients of the input and of the weights, from one of the result.",),
)
