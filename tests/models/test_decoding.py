"""A loop that writes token after token: its programs stay, and its memory does not grow."""

from __future__ import annotations

import gc

import pytest

from lamina import Tensor, random
from lamina.core.dtypes import int64
from lamina.core.options import using
from lamina.frontend.execution import compile_sinks
from lamina.frontend.jit import jit
from lamina.frontend.session import SESSION
from lamina.ir.kernel import points
from lamina.models import generate
from lamina.models.generate import Generator
from lamina.models.llama import Llama, LlamaConfig
from lamina.models.rope import Rope
from lamina.models.sampling import Sampling
from lamina.models.weights import DrawnWeights
from lamina.runtime.profile import passes, runs

CONFIG = LlamaConfig(
    vocabulary=64, size=32, inner=48, layers=2, heads=4, key_heads=2, head_size=8,
    rope=Rope(8, 10000.0), tied=True,
)  # fmt: skip
CAPACITY = 100


@pytest.fixture(scope="module")
def network() -> Llama:
    random.manual_seed(3)
    return Llama(CONFIG, DrawnWeights())


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, 0.9, 0.05)])
def test_hundreds_of_tokens_compile_nothing_and_leave_nothing(
    network: Llama, sampling: Sampling
) -> None:
    generator = Generator(network, CAPACITY, "cpu", chunks=(8,))

    def write(number: int) -> None:
        prompt = [number % 60 + 1, 2, 3]
        assert len([*generator.tokens(prompt, CAPACITY, sampling)]) == CAPACITY - 2

    def state() -> tuple[int, dict[str, int], int]:
        gc.collect()
        return compile_sinks.cache_info().misses, SESSION.counts(), len(gc.get_objects())

    write(0)
    write(1)
    compiled, counts, objects = state()
    with passes() as records:
        for number in range(2, 5):
            write(number)
    assert not records
    assert state()[:2] == (compiled, counts)
    assert state()[2] <= objects + 50  # of 294 tokens


def test_a_token_is_written_into_the_caches_alone(network: Llama) -> None:
    """Of the memory that lives on, a step stores a row of keys and one of values in each layer."""
    caches = network.new_caches(1, CAPACITY, "cpu")

    @jit
    def step(ids: Tensor, first: Tensor) -> Tensor:
        return network(ids, caches, first).argmax()

    with using(device="cpu"), runs() as records:
        step(Tensor([[5]], int64), Tensor(0, int64)).item()
        places = [cache.keys.numbers.node for cache in caches]
        buffers = [place.arg.storage.pointer for place in places]
        step(Tensor([[6]], int64), Tensor(1, int64)).item()
    program = records[-1][0].program
    stored = [
        points(store.axes)
        for launch in program.launches
        for store in launch.kernel.stores
        if launch.arguments[store.parameter].kind == "input"
    ]
    assert stored == [CONFIG.key_heads * CONFIG.head_size] * (2 * CONFIG.layers)
    assert [cache.keys.numbers.node.arg.storage.pointer for cache in caches] == buffers


def test_the_next_token_is_begun_before_one_is_read(
    network: Llama, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the host does not see the device's memory. What follows is the same, and so is what
    the caches hold once the reader has stopped early."""
    usual = Generator(network, CAPACITY, "cpu", chunks=(8,))
    plain = [*usual.tokens([7, 2, 3], 12)]
    begun: list[Tensor] = []

    def fetch(tensor: Tensor) -> bool:
        begun.append(tensor)
        return True

    monkeypatch.setattr(generate, "fetch", fetch)
    ahead = Generator(network, CAPACITY, "cpu", chunks=(8,))
    assert [*ahead.tokens([7, 2, 3], 12)] == plain
    assert len(begun) == 12
    reader = ahead.tokens([7, 2, 3], 12)
    first = [next(reader) for _ in range(4)]
    reader.close()
    assert first == plain[:4]
    assert ahead._held == [7, 2, 3, *first]
    assert [*ahead.tokens([7, 2, 3, *first], 5)] == plain[4:9]
