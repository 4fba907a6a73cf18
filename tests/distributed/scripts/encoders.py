"""Encoders of text that two processes share, from the folders of the command line: the vectors of
one process."""

import sys

import numpy as np

from lamina import Tensor, models
from lamina.distributed.mesh import Mesh

PAIR = Mesh(pair=2)["pair"]
IDS = np.random.default_rng(0).integers(4, 97, (2, 11))
MASK = np.arange(11) < np.array([[11], [6]])


def main() -> None:
    for folder in sys.argv[1:]:
        alone, shared = models.load(folder).network, models.load(folder, over=PAIR).network
        vectors = shared(Tensor(IDS), Tensor(MASK)).numpy()
        np.testing.assert_allclose(vectors, alone(Tensor(IDS), Tensor(MASK)).numpy(), atol=1e-5)
        print("all is well")


main()
