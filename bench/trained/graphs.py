"""A network on a graph: nodes send messages along edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.cases import Array
from bench.trained.program import Phase, Program, Specification


@dataclass(frozen=True)
class MessagePassing:
    """Messages are computed from both ends of an edge, added up at its target, and change the node
    there (Gilmer et al. 2017). The graph is the same for all batches; nodes are classified."""

    layers: int
    width: int
    nodes: int
    edges: int
    classes: int = 40

    def program(self) -> Program:
        """Its training step."""
        s, wide = Specification(), self.width
        for layer in range(self.layers):
            s.linear(f"{layer}.message", 2 * wide, wide)
            s.linear(f"{layer}.node", 2 * wide, wide)
            s.norm(f"{layer}.norm", wide)
        s.linear("classes", wide, self.classes)
        sizes = f"{self.layers} layers, d {wide}, {self.nodes:,} nodes, {self.edges:,} edges"
        return Program(sizes, s.weights, self.draw, (Phase(self.loss),))

    def draw(self, random: np.random.Generator) -> list[Array]:
        """The nodes' features and classes, and the sources and targets of edges."""
        features = random.standard_normal((self.nodes, self.width), dtype=np.float32)
        labels = random.integers(0, self.classes, self.nodes)
        ends = random.integers(0, self.nodes, (2, self.edges))
        return [features, labels, ends[0], ends[1]]

    def loss(self, f: Any, x: Any, labels: Any, sources: Any, targets: Any) -> Any:
        share = self.nodes / self.edges
        for layer in range(self.layers):
            y = f.factor(f.layer_norm(x, f"{layer}.norm"))
            ends = f.concat([f.rows(y, sources), f.rows(y, targets)], -1)
            messages = f.wide(f.relu(f.linear(ends, f"{layer}.message")))
            arrived = f.sums_of_rows(self.nodes, targets, messages) * share
            both = f.concat([y, f.factor(arrived)], -1)
            x = x + f.relu(f.linear(both, f"{layer}.node"))
        return f.cross_entropy(f.linear(x, "classes"), labels)
