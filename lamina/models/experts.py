"""Mixtures of experts: a router chooses for each token a few gated layers of many, and their
results are added, each times its share.

Sources: Shazeer et al. 2017, "Outrageously large neural networks"; Jiang et al. 2024, "Mixtral of
experts". The matrices of all experts of a layer are one tensor, so that a program reads those that
were chosen, and no others, by their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lamina.core.dtypes import float32, int64
from lamina.distributed.layout import Layout
from lamina.distributed.tensor_parallel import enter_parallel, layout_of_part, leave_parallel
from lamina.frontend.functions.creation import arange, zeros
from lamina.frontend.functions.elementwise import sigmoid, silu
from lamina.frontend.functions.lookup import one_hot
from lamina.frontend.functions.reduction import softmax, topk
from lamina.frontend.functions.scatter import scatter
from lamina.frontend.functions.statistics import cumsum
from lamina.frontend.realize import download
from lamina.frontend.tensor import Tensor
from lamina.io.blocks import Packed
from lamina.io.mapped import tensor_over
from lamina.models.fields import Fields
from lamina.models.parts import Gated, Projection, rounded
from lamina.models.sharing import Cut
from lamina.models.weights import Source, Weight

__all__ = ["Choice", "Experts", "Mixture", "MixtureOfExperts", "chosen_of", "joined", "layers_of"]


@dataclass(frozen=True)
class Mixture:
    """What tells mixtures of experts apart.

    count: experts of a layer. chosen: how many of them see a token. inner: size of each expert.
    normalizes: the shares of the chosen ones add up to 1. shared: inner size of an expert that sees
    every token, times a share of its own, if there is one. layers: the numbers of those that are
    mixtures; the others have one gated layer."""

    count: int
    chosen: int
    inner: int
    normalizes: bool
    layers: tuple[int, ...]
    shared: int | None = None


@dataclass(frozen=True, eq=False)
class Choice:
    """Of each token: the numbers of its experts, and the share of each, both (tokens, chosen)."""

    experts: Tensor
    shares: Tensor


class MixtureOfExperts:
    """(batch, length, size) to the same shape."""

    def __init__(self, source: Source, name: str, size: int, mixture: Mixture) -> None:
        self.mixture = mixture
        self.gate = Projection(source, f"{name}.gate", size, mixture.count)
        self.experts = Experts(source, f"{name}.experts", mixture.count, size, mixture.inner)
        self.shared_expert: Gated | None = None
        self.shared_expert_gate: Projection | None = None
        if mixture.shared is not None:
            self.shared_expert = Gated(source, f"{name}.shared_expert", size, mixture.shared)
            self.shared_expert_gate = Projection(source, f"{name}.shared_expert_gate", size, 1)

    def __call__(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        mixed = self.experts(tokens, self._choice(tokens))
        if self.shared_expert is not None and self.shared_expert_gate is not None:
            mixed = mixed + sigmoid(self.shared_expert_gate(tokens)) * self.shared_expert(tokens)
        return mixed.reshape(x.shape)

    def _choice(self, tokens: Tensor) -> Choice:
        best = topk(softmax(self.gate(tokens), axis=-1), self.mixture.chosen)
        shares = best.values
        if self.mixture.normalizes:
            shares = shares / shares.sum(axis=-1, keepdims=True)
        return Choice(best.indices, shares)


class Experts:
    """Gated layers, of which each token passes those that were chosen for it.

    gate_proj, up_proj: (count, inner, size); down_proj: (count, size, inner), of any dtype or
    quantised. Where several processes share the model, each has some units of every expert.
    weighs_inputs: an expert sees a token times its share, and its result is added as it is."""

    def __init__(
        self, source: Source, name: str, count: int, size: int, inner: int,
        weighs_inputs: bool = False,
    ) -> None:  # fmt: skip
        self.count, self.weighs_inputs = count, weighs_inputs
        self._over, self._activations = source.over, source.activations
        self.gate_proj = source.take(f"{name}.gate_proj", (count, inner, size), Cut(1))
        self.up_proj = source.take(f"{name}.up_proj", (count, inner, size), Cut(1))
        self.down_proj = source.take(f"{name}.down_proj", (count, size, inner), Cut(2))

    def __call__(self, tokens: Tensor, choice: Choice) -> Tensor:
        """(tokens, size) to the same shape."""
        shares = choice.shares.unsqueeze(-1)
        if self._over is not None:
            tokens, shares = enter_parallel(tokens, self._over), enter_parallel(shares, self._over)
        inputs = tokens.unsqueeze(1)
        if self.weighs_inputs:
            inputs = inputs * shares
        inputs = inputs.expand((*choice.experts.shape, tokens.shape[-1]))
        results = self._results(inputs, choice.experts)
        mixed = (results if self.weighs_inputs else results * shares).sum(axis=1)
        return mixed if self._over is None else leave_parallel(mixed, self._over)

    def _results(self, inputs: Tensor, experts: Tensor) -> Tensor:
        """Of each input (tokens, chosen, size) the result of its expert. The way that reads fewer
        matrices: one for each input, or one for each block of inputs of one expert."""
        if experts.size <= self.count:
            return self._gated(inputs.unsqueeze(2), experts).squeeze(2)
        rows = inputs.flatten(0, 1)
        blocks = _blocks(experts.flatten(), self.count)
        results = self._gated(rows[blocks.inputs], blocks.experts)
        return results.flatten(0, 1)[blocks.rows].reshape(inputs.shape)

    def _gated(self, rows: Tensor, experts: Tensor) -> Tensor:
        """Rows (..., rows, size) with the matrices of `experts` (...)."""
        rows = rounded(rows, self._activations)
        gate = rounded(rows @ self._matrices(self.gate_proj, experts).mT, self._activations)
        inner = silu(gate) * (rows @ self._matrices(self.up_proj, experts).mT)
        return rounded(inner, self._activations) @ self._matrices(self.down_proj, experts).mT

    def _matrices(self, weight: Weight, experts: Tensor) -> Tensor:
        """Those of `experts`, integers of any shape, as float32 in the kernel that uses them."""
        if isinstance(weight, Packed):
            chosen = Packed(weight.kind, weight.data[experts]).decode()
        else:
            chosen = weight[experts].cast(float32)
        return rounded(chosen, self._activations)

    def layouts(self) -> dict[str, Layout]:
        """As `lamina.distributed.layout.HasLayouts`."""
        result: dict[str, Layout] = {}
        if self._over is None:
            return result
        for name, axis in (("gate_proj", 1), ("up_proj", 1), ("down_proj", 2)):
            weight: Weight = getattr(self, name)
            if isinstance(weight, Packed):
                result[f"{name}.data"] = layout_of_part(weight.data.shape, axis, self._over)
            else:
                result[name] = layout_of_part(weight.shape, axis, self._over)
        return result


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Inputs in blocks of one expert each, those of expert 0 first. Of 5 inputs with the experts
    2 0 2 2 0, in blocks of 2 rows: inputs (1 4) (0 2) (3 .), experts 0 2 2, rows 2 0 3 4 1.

    inputs: of each row of a block, (blocks, rows); rows that are left have any. experts: of each
    block, (blocks,). rows: of each input, the number of its row."""

    inputs: Tensor
    experts: Tensor
    rows: Tensor


_MIN_BLOCK = 4  # rows; each row of a block reads its matrix from the cache


def _blocks(experts: Tensor, count: int) -> _Blocks:
    """experts: of each input, (inputs,). The comments have the numbers of the example above."""
    inputs, device = experts.shape[0], experts.device
    size = _rows_of_block(inputs, count)
    # All experts may end in a block that is not full: so many blocks are enough for any choice.
    blocks = inputs // size + min(inputs, count)
    is_of = one_hot(experts, count)  # (inputs, count)
    counts_so_far = cumsum(is_of, 0)  # of inputs of each expert, down to each input
    place = (counts_so_far * is_of).sum(axis=1) - 1  # of an input at its expert: 0 0 1 2 1
    blocks_of_expert = (counts_so_far[-1] + (size - 1)) // size  # 1 0 2
    ends = cumsum(blocks_of_expert, 0)  # the first block behind those of each expert: 1 1 3
    starts = ends - blocks_of_expert  # 0 1 1
    rows = starts[experts] * size + place  # 2 0 3 4 1
    numbers = arange(blocks, device=device).unsqueeze(1)
    experts_before = (ends <= numbers).sum(axis=1)  # whose blocks all come earlier: 0 2 2 3 3
    first_input = zeros((blocks * size,), dtype=int64, device=device)  # of rows that are left
    filled = scatter(first_input, 0, rows, arange(inputs, device=device))
    return _Blocks(filled.reshape((blocks, size)), experts_before.minimum(count - 1), rows)


def _rows_of_block(inputs: int, count: int) -> int:
    """Half as many as experts have inputs on average, so that less than half of a block is empty
    for each: 64 for 1000 inputs of 8 experts."""
    rows = _MIN_BLOCK
    while 2 * rows * count < inputs:
        rows *= 2
    return rows


# Configurations and weights of a folder.


def chosen_of(fields: Fields, name: str, count: int) -> int:
    """How many of `count` experts see a token."""
    chosen = fields.size(name)
    if chosen > count:
        raise fields.fail(name, f"{chosen} of {count} experts")
    return chosen


def layers_of(fields: Fields, layers: int) -> tuple[int, ...]:
    """The numbers of the layers that are mixtures: each `decoder_sparse_step`-th, without those of
    `mlp_only_layers`."""
    step = fields.size("decoder_sparse_step", 1)
    plain = fields.get("mlp_only_layers", [])
    if not isinstance(plain, list) or not all(isinstance(number, int) for number in plain):
        raise fields.fail("mlp_only_layers", f"{plain!r}; numbers of layers are needed")
    return tuple(set(range(step - 1, layers, step)) - set(plain))


_PARTS = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}  # as Mixtral's files name them
_APART = re.compile(r"(.*\.experts)\.(\d{1,6})\.(\w+)\.weight")


def joined(weights: Mapping[str, Weight], mixture: Mixture) -> dict[str, Weight]:
    """The weights with the matrices of all experts of a layer in one tensor, whether a file has
    each apart, or gates and ups as one. Those that do not fit stay, and are reported with all
    others."""
    stacks = dict[str, dict[int, Weight]]()
    result = dict[str, Weight]()
    for name, weight in weights.items():
        renamed = name.replace(".block_sparse_moe.", ".mlp.")
        match = _APART.fullmatch(renamed)
        if match is not None:
            part = _PARTS.get(match[3], match[3])
            stacks.setdefault(f"{match[1]}.{part}", {})[int(match[2])] = weight
        elif renamed.endswith(".experts.gate_up_proj"):
            result |= _halves(renamed, weight, mixture)
        else:
            result[renamed] = weight
    for name, matrices in stacks.items():
        result |= _stacked(name, matrices, mixture.count)
    return result


def _halves(name: str, weight: Weight, mixture: Mixture) -> dict[str, Weight]:
    """Gates are the first half of the rows of each expert."""
    if not isinstance(weight, Tensor) or weight.shape[:2] != (mixture.count, 2 * mixture.inner):
        return {name: weight}
    stem = name.removesuffix("gate_up_proj")
    gates, ups = weight[:, : mixture.inner], weight[:, mixture.inner :]
    return {f"{stem}gate_proj": gates, f"{stem}up_proj": ups}


def _stacked(name: str, matrices: Mapping[int, Weight], count: int) -> dict[str, Weight]:
    """The matrices of experts 0 to count - 1 as one tensor in memory; or each as it is where they
    do not fit together."""
    ordered = [matrices[number] for number in sorted(matrices)]
    tensors = [matrix for matrix in ordered if isinstance(matrix, Tensor)]
    is_whole = sorted(matrices) == list(range(count)) and len(tensors) == count
    are_alike = len({(tensor.shape, tensor.dtype) for tensor in tensors}) == 1
    if not (is_whole and are_alike):
        stem, part = name.rsplit(".", 1)
        return {f"{stem}.{number}.{part}.weight": one for number, one in matrices.items()}
    stack = np.stack([download(tensor) for tensor in tensors])
    return {name: tensor_over(stack, tensors[0].dtype, tensors[0].device)}
