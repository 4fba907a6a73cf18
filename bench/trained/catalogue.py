"""The programs that are measured, by name, and the same in small."""

from __future__ import annotations

from collections.abc import Callable

from bench.trained.graphs import MessagePassing
from bench.trained.language import GPT2, T5, Bert, Llama
from bench.trained.program import Program
from bench.trained.vision import DCGAN, ConvNeXt, ResNet, UNet, ViT

Catalogue = dict[str, Callable[[], Program]]

# Those whose compilers take longest first, as programs next to each other compile at one time.
PROGRAMS: Catalogue = {
    "resnet50": ResNet((3, 4, 6, 3), batch=128, side=224).program,
    "t5": T5(6, 512, 8, 64, 2048, batch=16, length=512, written=128).program,
    "gpt2-350m": GPT2(24, 1024, 16, batch=8).program,
    "convnext": ConvNeXt((3, 3, 9, 3), (96, 192, 384, 768), batch=64, side=224).program,
    "bert": Bert(12, 768, 12, batch=32, length=512).program,
    "mixtral": Llama(4, 1024, 16, 4, 3584, batch=8, length=1024, experts=8).program,
    "gpt2": GPT2(12, 768, 12, batch=16).program,
    "vit": ViT(12, 768, 12, patch=16, batch=64, side=224).program,
    "unet": UNet(64, 4, batch=8, side=256).program,
    "bert-short": Bert(12, 768, 12, batch=128, length=128).program,
    "llama": Llama(8, 2048, 32, 8, 5632, batch=4, length=2048).program,
    "dcgan": DCGAN(64, 100, batch=128).program,
    "graph": MessagePassing(3, 128, nodes=100_000, edges=1_000_000).program,
}

# Each in small, by its name after "tiny-", to try the bench on any machine.
TINY: Catalogue = {
    "tiny-resnet50": ResNet((1, 1), batch=2, side=32).program,
    "tiny-t5": T5(1, 32, 2, 16, 64, batch=2, length=24, written=16, vocabulary=64).program,
    "tiny-gpt2-350m": GPT2(2, 64, 2, batch=2, length=32, vocabulary=128).program,
    "tiny-convnext": ConvNeXt((1, 1), (32, 64), batch=2, side=32).program,
    "tiny-bert": Bert(1, 64, 2, batch=2, length=32, vocabulary=128).program,
    "tiny-mixtral": Llama(1, 64, 4, 2, 96, batch=2, length=32, vocabulary=128, experts=4).program,
    "tiny-gpt2": GPT2(1, 64, 2, batch=2, length=32, vocabulary=128).program,
    "tiny-vit": ViT(1, 64, 2, patch=8, batch=2, side=32).program,
    "tiny-unet": UNet(16, 2, batch=2, side=32).program,
    "tiny-bert-short": Bert(2, 64, 2, batch=4, length=16, vocabulary=128).program,
    "tiny-llama": Llama(2, 64, 4, 2, 96, batch=2, length=32, vocabulary=128).program,
    "tiny-dcgan": DCGAN(8, 16, batch=2).program,
    "tiny-graph": MessagePassing(2, 32, nodes=100, edges=1000).program,
}

ALL = PROGRAMS | TINY
