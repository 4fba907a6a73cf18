"""Language models of several processes, beside the same in each of them alone.

``models.py FOLDER ...``: of each model its logits, a step of training, and what it writes.
"""

import sys

import numpy as np

import lamina as lm
from lamina import Tensor, distributed, models, nn
from lamina.distributed.layout import layouts_of, whole
from lamina.models.generate import Generator
from lamina.models.language_model import LanguageModel

rank, size = distributed.rank(), distributed.size()
over = distributed.Mesh(model=size)["model"]


def check(folder: str) -> None:
    alone, shared = models.load(folder), models.load(folder, over=over)
    networks = [alone.network, shared.network]
    bytes_of = [sum(one.nbytes for one in nn.state_dict(one).values()) for one in networks]
    assert bytes_of[1] < 0.6 * bytes_of[0]
    ids = np.random.default_rng(0).integers(0, alone.config.vocabulary, (2, 12))
    expected, logits = (network(Tensor(ids)) for network in networks)
    np.testing.assert_allclose(logits.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)
    compare_gradients(networks, ids)
    compare_texts(networks, [int(token) for token in ids[0]], alone.device)
    print(f"rank {rank}: {folder}: all is well", flush=True)


def compare_gradients(networks: list[LanguageModel], ids: np.ndarray) -> None:
    """Each process has the gradients of its parts of the weights."""
    found = []
    for network in networks:
        state = nn.state_dict(network)
        logits = network(Tensor(ids[:, :-1])).flatten(0, 1)
        loss = lm.cross_entropy(logits, Tensor(ids[:, 1:]).flatten())
        gradients = lm.gradient(loss, list(state.values()))
        found.append(dict(zip(state, gradients, strict=True)))
    alone, shared = found
    layouts = layouts_of(networks[1])
    for name, gradient in shared.items():
        layout = layouts.get(name, whole(gradient.shape))
        assert layout.shape == alone[name].shape
        for box in layout.boxes:
            ends = np.add(box.start, box.shape)
            expected = alone[name].numpy()[tuple(map(slice, box.start, ends))]
            own = gradient.numpy()[box.own_slices]
            np.testing.assert_allclose(own, expected, rtol=1e-3, atol=1e-4, err_msg=name)


def compare_texts(
    networks: list[LanguageModel], prompt: list[int], device: str
) -> None:
    """With caches, of which each process has those of its heads."""
    alone, shared = networks
    assert shared.keys.heads * size == alone.keys.heads
    texts = [
        list(Generator(network, 24, device, chunks=(8,)).tokens(prompt, 6)) for network in networks
    ]
    assert texts[0] == texts[1]


for folder in sys.argv[1:]:
    check(folder)
