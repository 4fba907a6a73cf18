"""Scaled dot-product attention, forward and with its gradients, with and without a causal mask."""

from __future__ import annotations

from typing import Any

from bench.cases import Case, Group

HEADS, LENGTH, WIDTH = 8, 1024, 64
SHAPE = (1, HEADS, LENGTH, WIDTH)
PEERS = ("torch", "jax")


def _jax_attention(jax: Any, causal: bool, q: Any, k: Any, v: Any) -> Any:
    q, k, v = (one.transpose(0, 2, 1, 3) for one in (q, k, v))
    return jax.nn.dot_product_attention(q, k, v, is_causal=causal).transpose(0, 2, 1, 3)


def functions(causal: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Attention in lamina and in PyTorch, and with its gradients."""

    def lamina(lm: Any, q: Any, k: Any, v: Any) -> Any:
        return lm.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def torch(torch: Any, q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def lamina_both(lm: Any, q: Any, k: Any, v: Any, dy: Any) -> Any:
        y = lamina(lm, q, k, v)
        return y, *lm.gradient(y, [q, k, v], dy)

    def torch_both(torch_: Any, q: Any, k: Any, v: Any, dy: Any) -> Any:
        inputs = [one.detach().requires_grad_() for one in (q, k, v)]
        y = torch(torch_, *inputs)
        return y.detach(), *torch_.autograd.grad(y, inputs, dy)

    return {"lamina": lamina, "torch": torch}, {"lamina": lamina_both, "torch": torch_both}


def _cases(causal: bool) -> list[Case]:
    def jax(jax: Any, q: Any, k: Any, v: Any) -> Any:
        return _jax_attention(jax, causal, q, k, v)

    def jax_both(jax_: Any, q: Any, k: Any, v: Any, dy: Any) -> Any:
        y, pull = jax_.vjp(lambda *inputs: jax(jax_, *inputs), q, k, v)
        return y, *pull(dy)

    flops = 4.0 * HEADS * LENGTH * LENGTH * WIDTH / (2 if causal else 1)
    forward, both = functions(causal)
    forward, both = {**forward, "jax": jax}, {**both, "jax": jax_both}
    name = "causal" if causal else "full"
    return [
        Case(f"{name}, forward", (SHAPE,) * 3, forward, PEERS, ("fma", flops), quick=True),
        Case(f"{name}, forward and backward", (SHAPE,) * 4, both, PEERS, ("fma", 3.5 * flops)),
    ]


def _long(length: int) -> Case:
    functions = {
        "lamina": lambda lm, q, k, v: lm.scaled_dot_product_attention(q, k, v),
        "torch": lambda torch, *qkv: torch.nn.functional.scaled_dot_product_attention(*qkv),
    }
    return Case(f"forward, T={length}", ((1, HEADS, length, WIDTH),) * 3, functions, ("torch",))


LONG = tuple(_long(LENGTH * factor) for factor in (2, 4, 8, 16))  # for their memory alone
GROUP = Group(
    f"Attention ({HEADS} heads, T={LENGTH}, D={WIDTH}, float32)",
    tuple(case for causal in (False, True) for case in _cases(causal)),
    others=LONG,
)
