"""What drawn programs are made of: operations, and how each framework writes them.

A text has places for its arguments, ``{0}``, ``{1}``, and by name for its attributes. ``{m}`` is
the framework's module, ``{dtype}`` the floats of the program. PyTorch's texts have ``F`` for
``torch.nn.functional``, JAX's have ``jnp`` as ``{m}`` and ``jax`` beside it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Operation:
    """One operation as text for each framework; an empty one says that it cannot take part."""

    lamina: str
    torch: str
    jax: str = ""


def _everywhere(text: str) -> Operation:
    return Operation(text, text, text)


def _reduction(name: str, torch: str = "") -> Operation:
    """A reduction over `axis`, a tuple, with `keepdims`."""
    call = f"{{m}}.{name}({{0}}, axis={{axis}}, keepdims={{keepdims}})"
    theirs = f"torch.{torch or name}({{0}}, {{axis}}, keepdim={{keepdims}})"
    return Operation(call, theirs, call)


def _activation(name: str, torch: str = "", jax: str = "") -> Operation:
    return Operation(
        f"lm.{name}({{0}})", torch or f"F.{name}({{0}})", jax or f"jax.nn.{name}({{0}})"
    )


_SMOOTH = ("tanh", "sin", "cos", "exp", "sqrt", "abs", "log1p", "square", "exp2", "expm1")

ARITHMETIC = {
    "add": _everywhere("{0} + {1}"),
    "subtract": _everywhere("{0} - {1}"),
    "multiply": _everywhere("{0} * {1}"),
    "divide": _everywhere("{0} / {1}"),
    "negative": _everywhere("-{0}"),
    "scale": _everywhere("{0} * {factor}"),
    "shift": _everywhere("{0} + {amount}"),
    "over": _everywhere("{factor} / {0}"),
    "clip": Operation(
        "lm.clip({0}, {low}, {high})", "torch.clamp({0}, {low}, {high})",
        "jnp.clip({0}, {low}, {high})",
    ),
    "where_positive": _everywhere("{m}.where({0} > 0, {1}, {2})"),
    "where": _everywhere("{m}.where({0}, {1}, {2})"),
    "maximum": _everywhere("{m}.maximum({0}, {1})"),
    "minimum": _everywhere("{m}.minimum({0}, {1})"),
    "power": _everywhere("{0} ** {exponent}"),
    "float": Operation("{0}.cast({dtype})", "{0}.to({dtype})", "{0}.astype({dtype})"),
    **{name: _everywhere(f"{{m}}.{name}({{0}})") for name in _SMOOTH},
    "rsqrt": Operation("lm.rsqrt({0})", "torch.rsqrt({0})", "jax.lax.rsqrt({0})"),
    "erf": Operation("lm.erf({0})", "torch.erf({0})", "jax.lax.erf({0})"),
    "sigmoid": _activation("sigmoid", "torch.sigmoid({0})"),
    "relu": _activation("relu"),
    "gelu": _activation("gelu", jax="jax.nn.gelu({0}, approximate=False)"),
    "gelu_tanh": Operation(
        "lm.gelu({0}, 'tanh')", "F.gelu({0}, approximate='tanh')", "jax.nn.gelu({0})"
    ),
    "silu": _activation("silu"),
    "softplus": _activation("softplus"),
    "leaky_relu": _activation("leaky_relu"),
    "elu": _activation("elu"),
    "mish": _activation("mish"),
    "hardswish": _activation("hardswish", jax="jax.nn.hard_swish({0})"),
}  # fmt: skip

PRODUCTS = {
    "matmul": _everywhere("{0} @ {1}"),
    "turned": _everywhere("{0}.T"),
    "turned_last": _everywhere("{0}.mT"),
    "matmul_int8": Operation(
        "{0}.cast(lm.int32) @ {1}.cast(lm.int32)", "torch._int_mm({0}, {1})",
        "jnp.matmul({0}, {1}, preferred_element_type=jnp.int32)",
    ),
    "linear": Operation(
        "lm.linear({0}, {1}, {2})", "F.linear({0}, {1}, {2})", "{0} @ {1}.T + {2}"
    ),
    "einsum": Operation(
        "lm.einsum({equation}, {0}, {1})", "torch.einsum({equation}, {0}, {1})",
        "jnp.einsum({equation}, {0}, {1})",
    ),
    "attention": Operation(
        "lm.scaled_dot_product_attention({0}, {1}, {2}, is_causal={causal}, enable_gqa={grouped})",
        "F.scaled_dot_product_attention({0}, {1}, {2}, is_causal={causal}, enable_gqa={grouped})",
    ),
    "attention_masked": Operation(
        "lm.scaled_dot_product_attention({0}, {1}, {2}, {3})",
        "F.scaled_dot_product_attention({0}, {1}, {2}, {3})",
    ),
}  # fmt: skip

REDUCTIONS = {
    "sum": _reduction("sum"),
    "mean": _reduction("mean"),
    "max": _reduction("max", "amax"),
    "min": _reduction("min", "amin"),
    "logsumexp": Operation(
        "lm.logsumexp({0}, axis={axis}, keepdims={keepdims})",
        "torch.logsumexp({0}, {axis}, keepdim={keepdims})",
        "jax.nn.logsumexp({0}, axis={axis}, keepdims={keepdims})",
    ),
    "var": Operation(
        "lm.var({0}, axis={axis}, keepdims={keepdims})",
        "torch.var({0}, {axis}, correction=0, keepdim={keepdims})",
        "jnp.var({0}, axis={axis}, keepdims={keepdims})",
    ),
    "argmax": Operation(
        "lm.argmax({0}, axis={axis})", "torch.argmax({0}, {axis})", "jnp.argmax({0}, axis={axis})"
    ),
    "softmax": Operation(
        "lm.softmax({0}, axis={axis})", "torch.softmax({0}, {axis})",
        "jax.nn.softmax({0}, axis={axis})",
    ),
    "log_softmax": Operation(
        "lm.log_softmax({0}, axis={axis})", "torch.log_softmax({0}, {axis})",
        "jax.nn.log_softmax({0}, axis={axis})",
    ),
    "cross_entropy": Operation(
        "lm.cross_entropy({0}, {1}, label_smoothing={smoothing}, reduction={reduction})",
        "F.cross_entropy({0}, {1}, label_smoothing={smoothing}, reduction={reduction})",
    ),
    "layer_norm": Operation(
        "lm.layer_norm({0}, {count}, {1}, {2})", "F.layer_norm({0}, {count}, {1}, {2})"
    ),
    "rms_norm": Operation(
        "lm.rms_norm({0}, {count}, {1}, 1e-05)", "F.rms_norm({0}, {count}, {1}, 1e-05)"
    ),
    "group_norm": Operation(
        "lm.group_norm({0}, {groups}, {1}, {2})", "F.group_norm({0}, {groups}, {1}, {2})"
    ),
    "batch_norm": Operation(
        "lm.batch_norm({0}, None, None, {1}, {2}).output",
        "F.batch_norm({0}, None, None, {1}, {2}, training=True)",
    ),
    "instance_norm": Operation(
        "lm.instance_norm({0}, {1}, {2})", "F.instance_norm({0}, None, None, {1}, {2})"
    ),
    "normalize": Operation(
        "lm.normalize({0}, axis={axis})", "F.normalize({0}, dim={axis})"
    ),
}  # fmt: skip


def _convolution(rank: int) -> Operation:
    arguments = (
        "{0}, {1}, {2}, stride={stride}, padding={padding}, dilation={dilation}, groups={groups}"
    )
    return Operation(f"lm.conv{rank}d({arguments})", f"F.conv{rank}d({arguments})")


def _pooling(name: str) -> Operation:
    arguments = "{0}, {window}, stride={stride}, padding={padding}"
    return Operation(f"lm.{name}({arguments})", f"F.{name}({arguments})")


WINDOWS = {
    **{f"conv{rank}d": _convolution(rank) for rank in (1, 2, 3)},
    "conv_transpose2d": Operation(
        "lm.conv_transpose2d({0}, {1}, {2}, stride={stride}, padding={padding})",
        "F.conv_transpose2d({0}, {1}, {2}, stride={stride}, padding={padding})",
    ),
    **{
        f"{kind}_pool{rank}d": _pooling(f"{kind}_pool{rank}d")
        for kind in ("max", "avg")
        for rank in (1, 2)
    },
    **{
        f"adaptive_{kind}_pool2d": Operation(
            f"lm.adaptive_{kind}_pool2d({{0}}, {{size}})",
            f"F.adaptive_{kind}_pool2d({{0}}, {{size}})",
        )
        for kind in ("max", "avg")
    },
    "interpolate": Operation(
        "lm.interpolate({0}, {size}, mode={mode})", "F.interpolate({0}, {size}, mode={mode})"
    ),
    "interpolate_aligned": Operation(
        "lm.interpolate({0}, {size}, mode={mode}, align_corners=True)",
        "F.interpolate({0}, {size}, mode={mode}, align_corners=True)",
    ),
}

MOVEMENT = {
    "reshape": _everywhere("{0}.reshape({sizes})"),
    "permute": Operation(
        "lm.permute_dims({0}, {axes})", "{0}.permute({axes})", "jnp.transpose({0}, {axes})"
    ),
    "dense": Operation("{0}.contiguous()", "{0}.contiguous()", "{0} + 0"),
    "flip": Operation("lm.flip({0}, axis={axis})", "torch.flip({0}, ({axis},))",
                      "jnp.flip({0}, axis={axis})"),
    "roll": Operation("lm.roll({0}, {amount}, axis={axis})", "torch.roll({0}, {amount}, {axis})",
                      "jnp.roll({0}, {amount}, axis={axis})"),
    "concat": Operation("lm.concat([{0}, {1}], axis={axis})", "torch.cat([{0}, {1}], {axis})",
                        "jnp.concatenate([{0}, {1}], axis={axis})"),
    "stack": Operation("lm.stack([{0}, {1}], axis={axis})", "torch.stack([{0}, {1}], {axis})",
                       "jnp.stack([{0}, {1}], axis={axis})"),
    "slice": _everywhere("{0}[{key}]"),
    "first": _everywhere("{0}[..., :{count}]"),
    "rest": _everywhere("{0}[..., {count}:]"),
    "pad": Operation(
        "lm.pad({0}, {pairs}, mode={mode})", "F.pad({0}, {pairs}, mode={mode})"
    ),
    "repeat": Operation("lm.repeat({0}, {times}, axis={axis})",
                        "torch.repeat_interleave({0}, {times}, {axis})",
                        "jnp.repeat({0}, {times}, axis={axis})"),
    "tile": Operation("lm.tile({0}, {times})", "{0}.repeat({times})", "jnp.tile({0}, {times})"),
    "broadcast": Operation("lm.broadcast_to({0}, {sizes})", "{0}.expand({sizes})",
                           "jnp.broadcast_to({0}, {sizes})"),
    "pixel_shuffle": Operation("lm.pixel_shuffle({0}, {factor})", "F.pixel_shuffle({0}, {factor})"),
    "tril": _everywhere("{m}.tril({0})"),
}  # fmt: skip

LOOKUPS = {
    "embedding": Operation("lm.embedding({0}, {1})", "F.embedding({0}, {1})",
                           "jnp.take({1}, {0}, axis=0)"),
    "take": Operation("lm.take({0}, {1}, axis={axis})", "torch.index_select({0}, {axis}, {1})",
                      "jnp.take({0}, {1}, axis={axis})"),
    "gather": Operation("lm.take_along_axis({0}, {1}, axis={axis})",
                        "torch.gather({0}, {axis}, {1})",
                        "jnp.take_along_axis({0}, {1}, axis={axis})"),
    "index_add": Operation("lm.index_add({0}, {axis}, {1}, {2})",
                           "torch.index_add({0}, {axis}, {1}, {2})"),
    "scatter_add": Operation("lm.scatter_add({0}, {axis}, {1}, {2})",
                             "torch.scatter_add({0}, {axis}, {1}, {2})"),
    "one_hot": Operation("lm.one_hot({0}, {classes}).cast({dtype})",
                         "F.one_hot({0}, {classes}).to({dtype})",
                         "jax.nn.one_hot({0}, {classes}, dtype={dtype})"),
}  # fmt: skip

SCANS = {
    **{name: Operation(f"lm.{name}({{0}}, axis={{axis}})", f"torch.{name}({{0}}, {{axis}})",
                       f"jnp.{name}({{0}}, axis={{axis}})") for name in ("cumsum", "cumprod")},
    "cummax": Operation("lm.cummax({0}, axis={axis})", "torch.cummax({0}, {axis}).values",
                        "jax.lax.cummax({0}, axis={axis})"),
    "logcumsumexp": Operation("lm.logcumsumexp({0}, axis={axis})",
                              "torch.logcumsumexp({0}, {axis})",
                              "jax.lax.cumlogsumexp({0}, axis={axis})"),
    "diff": Operation("lm.diff({0}, axis={axis})", "torch.diff({0}, dim={axis})",
                      "jnp.diff({0}, axis={axis})"),
}  # fmt: skip

SORTS = {
    "sort": Operation(
        "lm.sort({0}, axis={axis}, descending={down})",
        "torch.sort({0}, dim={axis}, descending={down}).values",
        "jnp.sort({0}, axis={axis}, descending={down})",
    ),
    "argsort": Operation(
        "lm.argsort({0}, axis={axis})", "torch.argsort({0}, dim={axis}, stable=True)",
        "jnp.argsort({0}, axis={axis})",
    ),
    "topk": Operation("lm.topk({0}, {count}, axis={axis}).values",
                      "torch.topk({0}, {count}, {axis}).values"),
    "median": Operation("lm.median({0}, axis={axis}).values", "torch.median({0}, {axis}).values"),
}  # fmt: skip

OPERATIONS: dict[str, Operation] = {
    **ARITHMETIC, **PRODUCTS, **REDUCTIONS, **WINDOWS, **MOVEMENT, **LOOKUPS, **SCANS, **SORTS,
}  # fmt: skip
