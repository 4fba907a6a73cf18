"""A small Llama learns the text of this file, is saved as on the Hugging Face hub, and writes."""

import json
import tempfile
from pathlib import Path

import numpy as np

import lamina as lm
from lamina import Tensor, models, nn
from lamina.io import safetensors
from lamina.models.configuration import from_hugging_face
from lamina.models.generate import Generator
from lamina.models.llama import Llama
from lamina.models.sampling import Sampling
from lamina.models.weights import DrawnWeights

LENGTH, STEPS = 64, 200
text = Path(__file__).read_text(encoding="utf-8")
letters = sorted(set(text))
numbers = np.array([letters.index(one) for one in text])

# What `config.json` says of a model; every other field has a default.
fields = {
    "model_type": "llama", "vocab_size": len(letters), "hidden_size": 64, "num_hidden_layers": 2,
    "intermediate_size": 160, "num_attention_heads": 4, "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}  # fmt: skip
lm.random.manual_seed(0)
network = Llama(from_hugging_face(fields, "this file"), DrawnWeights())
optimizer = nn.optim.AdamW(nn.parameters(network))
rate = nn.schedules.cosine(1e-2, STEPS, warmup=20)


@lm.jit
def learn(x: Tensor, y: Tensor) -> Tensor:
    loss = lm.cross_entropy(network(x).flatten(0, 1), y.flatten())
    loss.backward()
    nn.optim.clip_grad_norm(optimizer.parameters, 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss


generator = np.random.default_rng(0)
for step in range(STEPS):
    optimizer.lr = rate(step)
    starts = generator.integers(0, len(numbers) - LENGTH, 16)
    windows = numbers[starts[:, None] + np.arange(LENGTH + 1)]
    loss = learn(windows[:, :-1], windows[:, 1:])
    if step % 50 == 0:
        print(f"step {step:3}: loss {loss.item():.3f}")
print(f"the last loss: {loss.item():.3f}")
assert loss.item() < 1.3, loss.item()

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    (folder / "config.json").write_text(json.dumps(fields))
    safetensors.save(folder / "model.safetensors", nn.state_dict(network))
    loaded = models.load(folder)
    writer = Generator(loaded.writer, capacity=2 * LENGTH, device=loaded.device)
    prompt = [letters.index(one) for one in "from lamina"]
    best = list(writer.tokens(prompt, limit=40))
    print("from lamina" + "".join(letters[one] for one in best))
    drawn = list(writer.tokens(prompt, limit=40, sampling=Sampling(0.8, top_p=0.9, seed=1)))
    print("from lamina" + "".join(letters[one] for one in drawn))

# Without a cache, each letter is computed from all before it again: the same ones are the best.
logits = network(Tensor([prompt + best[:-1]]))[0, len(prompt) - 1 :]
chosen = lm.take_along_axis(logits, Tensor(best)[:, None], axis=1)[:, 0]
assert (logits.max(axis=1) - chosen).max().item() < 1e-3
