"""Two spirals told apart by a network; its weights go to a file and come back."""

import tempfile
from pathlib import Path

import numpy as np

import lamina as lm
from lamina import Tensor, nn
from lamina.io import safetensors

lm.random.manual_seed(0)
generator = np.random.default_rng(0)


def spirals(count: int) -> tuple[Tensor, Tensor]:
    """`count` points of two interleaved spirals, and which spiral each is on."""
    labels = generator.integers(0, 2, count)
    angle = generator.uniform(0.5, 3.0 * np.pi, count)
    turned = angle + np.pi * labels
    points = np.stack([np.cos(turned), np.sin(turned)], axis=1) * angle[:, None] / 3.0
    points += generator.normal(0.0, 0.06, points.shape)
    return Tensor(points, dtype=lm.float32), Tensor(labels)


class Classifier:
    """Any class with tensors or layers in its attributes is a model."""

    def __init__(self, width: int) -> None:
        self.layers = [nn.Linear(2, width), nn.Linear(width, width)]
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, 2)

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).silu()
        return self.output(self.norm(x))


STEPS = 240
model = Classifier(32)
rate = nn.schedules.cosine(0.02, STEPS, warmup=20)
optimizer = nn.optim.AdamW(nn.parameters(model), lr=rate)
for step in range(STEPS):
    points, labels = spirals(128)
    loss = lm.cross_entropy(model(points), labels)
    loss.backward()
    nn.optim.clip_grad_norm(optimizer.parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if step % 60 == 0:
        print(f"step {step:3}: loss {loss.item():.4f}")

points, labels = spirals(1000)
right = lm.argmax(model(points), axis=1) == labels
accuracy = right.cast(lm.float32).mean().item()
print(f"accuracy on new points: {accuracy:.1%}")
assert accuracy > 0.97, accuracy

# The state is a dict of tensors by their paths; safetensors files hold such dicts.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "spirals.safetensors"
    safetensors.save(path, nn.state_dict(model))
    copy = Classifier(32)
    nn.load_state_dict(copy, safetensors.load(path))
    print("saved and loaded:", ", ".join(nn.state_dict(copy)))
    assert (copy(points).numpy() == model(points).numpy()).all()
