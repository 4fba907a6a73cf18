"""PyTorch's training steps in several processes, as its guides write them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from bench.cases import Array
from bench.trainers import Model, Trainer, torch_loss, torch_steps

Peak = Callable[[], int]


def joined(kind: str) -> torch.device:
    """The device of this process, which has joined the others."""
    if kind == "cpu":
        torch.distributed.init_process_group("gloo")
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl", device_id=device)
    return device


def data_parallel(model: Model, drawn: dict[str, Array], kind: str) -> tuple[Trainer, Peak]:
    """By DistributedDataParallel, in bfloat16 by autocast."""
    device = joined(kind)
    module = _Flat(model, drawn).to(device)
    parameters = list(module.parameters())
    ids = None if kind == "cpu" else [device.index]
    wrapped = DistributedDataParallel(module, device_ids=ids, gradient_as_bucket_view=True)
    return torch_steps(parameters, torch.compile(wrapped), device), _peak(device)


class _Flat(nn.Module):
    """The model as a module, whose parameters DistributedDataParallel finds."""

    def __init__(self, model: Model, drawn: dict[str, Array]) -> None:
        super().__init__()
        self.model, self.names = model, list(drawn)
        self.weights = nn.ParameterDict(
            {name.replace(".", "_"): torch.from_numpy(one) for name, one in drawn.items()}
        )

    def forward(self, ids: Any, following: Any) -> Any:
        weights = {name: self.weights[name.replace(".", "_")] for name in self.names}
        return torch_loss(torch, self.model, weights, ids, following)


def fully_sharded(model: Model, kind: str) -> tuple[Trainer, Peak]:
    """By fully_shard of each layer, then of the model, with parameters of bfloat16 and gradients
    added up as float32; layers are compiled one by one."""
    device = joined(kind)
    mesh = torch.distributed.device_mesh.init_device_mesh(
        device.type, (torch.distributed.get_world_size(),)
    )
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    torch.manual_seed(0)
    with device:
        gpt = _Gpt(model)
        for _ in range(model.layers):
            layer = _Layer(model)
            layer.compile()
            gpt.layers.append(fully_shard(layer, mesh=mesh, mp_policy=policy))
    fully_shard(gpt, mesh=mesh, mp_policy=policy)
    return torch_steps(list(gpt.parameters()), gpt, device), _peak(device)


class _Layer(nn.Module):
    def __init__(self, model: Model) -> None:
        super().__init__()
        wide = model.width
        self.heads = model.heads
        self.first, self.second = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.qkv, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)

    def forward(self, x: Any) -> Any:
        batch, length, wide = x.shape
        query, key, value = (
            one.reshape(batch, length, self.heads, wide // self.heads).transpose(1, 2)
            for one in self.qkv(self.first(x)).chunk(3, -1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, wide))
        return x + self.down(functional.gelu(self.up(self.second(x)), approximate="tanh"))


class _Gpt(nn.Module):
    """From tokens to the loss; the last projection has the weight of the embedding."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.tokens = nn.Embedding(model.logits(), model.width)
        self.positions = nn.Embedding(model.length, model.width)
        self.layers = nn.ModuleList()
        self.last = nn.LayerNorm(model.width)
        for one in (self.tokens, self.positions):
            nn.init.normal_(one.weight, std=0.02)

    def forward(self, ids: Any, following: Any) -> Any:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        logits = functional.linear(self.last(x), self.tokens.weight)
        return functional.cross_entropy(logits.flatten(0, 1).float(), following.flatten())


def _peak(device: torch.device) -> Peak:
    """The most bytes that the allocator has given out at a time."""
    if device.type == "cpu":
        return lambda: 0
    torch.cuda.reset_peak_memory_stats(device)
    return lambda: int(torch.cuda.max_memory_allocated(device))
