"""A PyTorch model trained through lamina: one argument of ``torch.compile`` is all that changes.

The model is a small GPT-2 of Hugging Face's, if `transformers` is installed, or one written here.
It learns to continue a line of text, once as PyTorch runs it and once as lamina's programs.
"""

import copy
import time

import torch

TEXT = "the quick brown fox jumps over the lazy dog. " * 40
LETTERS = sorted(set(TEXT))
LENGTH, BATCH, WIDTH, HEADS, STEPS = 32, 8, 64, 4, 30


class Block(torch.nn.Module):
    """Attention to the letters before, then a layer for each letter alone."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_layers = (torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.queries_keys_values = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.queries_keys_values(self.before_attention(x))
        q, k, v = parts.unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.layers(self.before_layers(x))


class Small(torch.nn.Module):
    """A block between the embeddings of letters and places, and a score for each letter."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = torch.nn.Embedding(len(LETTERS), WIDTH)
        self.places = torch.nn.Embedding(LENGTH, WIDTH)
        self.blocks = torch.nn.Sequential(Block())
        self.norm = torch.nn.LayerNorm(WIDTH)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        places = torch.arange(letters.shape[1])
        x = self.blocks(self.letters(letters) + self.places(places))
        return self.norm(x) @ self.letters.weight.T


class HuggingFace(torch.nn.Module):
    """The same from `transformers`."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.GPT2Config(
            vocab_size=len(LETTERS), n_positions=LENGTH, n_embd=WIDTH, n_layer=1, n_head=HEADS,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=0,
            eos_token_id=0,
        )  # fmt: skip
        self.model = transformers.GPT2LMHeadModel(config)

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=letters).logits


def batches() -> list[torch.Tensor]:
    """Stretches of the text, one letter longer than what the model sees."""
    codes = torch.tensor([LETTERS.index(letter) for letter in TEXT])
    starts = torch.randint(0, len(codes) - LENGTH - 1, (STEPS, BATCH))
    return [torch.stack([codes[at : at + LENGTH + 1] for at in row]) for row in starts]


def train(model: torch.nn.Module, run: torch.nn.Module, data: list[torch.Tensor]) -> list[float]:
    """Run a step for each batch; the losses. `run`: the model, compiled or not."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for batch in data:
        scores = run(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


torch.manual_seed(0)
try:
    import transformers

    eager: torch.nn.Module = HuggingFace()
except ImportError:
    eager = Small()
ours = copy.deepcopy(eager)
compiled = torch.compile(ours, backend="lamina")
data = batches()

started = time.perf_counter()
compiled(data[0][:, :-1]).sum().backward()
print(f"{type(eager).__name__}: compiled in {time.perf_counter() - started:.1f} s")

seconds = {}
for name, model, run in (("PyTorch", eager, eager), ("lamina", ours, compiled)):
    started = time.perf_counter()
    losses = train(model, run, data)
    seconds[name] = time.perf_counter() - started
    print(f"{name:8} loss {losses[0]:.3f} to {losses[-1]:.3f}, "
          f"{1e3 * seconds[name] / STEPS:.1f} ms a step")  # fmt: skip
    assert losses[-1] < losses[0] / 2
print(f"lamina is {seconds['PyTorch'] / seconds['lamina']:.2f} times as fast")

with torch.no_grad():
    torch.testing.assert_close(ours(data[0][:, :-1]), eager(data[0][:, :-1]), rtol=0.1, atol=0.1)
assert all(parameter.grad is not None for parameter in ours.parameters())
