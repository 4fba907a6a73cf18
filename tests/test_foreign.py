"""Names of other libraries: attribute errors that say lamina's, and the table that they have."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, nn
from lamina.errors import LaminaError, MissingNameError
from lamina.frontend import foreign
from lamina.io import safetensors
from tests.names_page import is_words

ALL = {
    "TORCH_METHODS": foreign.TORCH_METHODS, "TORCH_FUNCTIONS": foreign.TORCH_FUNCTIONS,
    "TORCH_FUNCTIONAL": foreign.TORCH_FUNCTIONAL, "TORCH_LAYERS": foreign.TORCH_LAYERS,
    "TORCH_OPTIM": foreign.TORCH_OPTIM, "TORCH_SCHEDULES": foreign.TORCH_SCHEDULES,
    "NUMPY": foreign.NUMPY, "NUMPY_RANDOM": foreign.NUMPY_RANDOM, "JAX": foreign.JAX,
}  # fmt: skip
ROWS = [(table, names) for table, rows in ALL.items() for names in rows]


def names_of(table: str) -> list[str]:
    return [name for names in ALL[table] for name in names.split()]


def operands(tmp_path: Any) -> dict[str, Any]:
    x = Tensor(np.linspace(0.0, 0.9, 32, dtype=np.float32).reshape(4, 8))
    model = nn.Sequential(nn.Linear(8, 4))
    state = nn.state_dict(model)
    safetensors.save(tmp_path / "state", state)
    return {
        "lm": lm, "nn": nn, "Tensor": Tensor, "safetensors": safetensors, "model": model,
        "x": x, "y": x * 0.5 + 0.1, "v": x[0], "n": lm.asarray([1, 3]), "mask": x > 0.5,
        "i": lm.zeros((4, 8), dtype=lm.int64), "w": model[0].weight, "b": model[0].bias,
        "array": x.numpy(), "data": x.numpy(), "logits": x, "labels": lm.arange(4), "f": lm.sin,
        "optimizer": nn.optim.SGD(nn.parameters(model)), "loss": model(x).sum(), "state": state,
        "path": tmp_path / "state",
    }  # fmt: skip


@pytest.mark.parametrize(("table", "names"), ROWS)
def test_every_spelling_runs(table: str, names: str, tmp_path: Any) -> None:
    spelling = ALL[table][names]
    codes = re.findall("`(.+?)`", spelling) if is_words(spelling) else [spelling]
    for code in codes:
        if "cuda:" not in code and code != "__call__":
            with lm.using():
                exec(code, operands(tmp_path))


@pytest.mark.parametrize("table", ALL)
def test_the_names_are_not_laminas(table: str) -> None:
    own: dict[str, list[Any]] = {
        "TORCH_METHODS": [Tensor], "TORCH_LAYERS": [nn], "JAX": [lm], "TORCH_OPTIM": [nn.optim],
        "TORCH_SCHEDULES": [nn.schedules], "NUMPY_RANDOM": [lm.random],
    }  # fmt: skip
    names = names_of(table)
    assert not [name for name in names for one in own.get(table, [lm]) if hasattr(one, name)]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_the_names_are_torchs() -> None:
    torch = pytest.importorskip("torch")
    homes: dict[str, list[Any]] = {
        "TORCH_METHODS": [torch.Tensor], "TORCH_FUNCTIONS": [torch],
        "TORCH_FUNCTIONAL": [torch.nn.functional], "TORCH_LAYERS": [torch.nn],
        "TORCH_OPTIM": [torch.optim], "TORCH_SCHEDULES": [torch.optim.lr_scheduler],
    }  # fmt: skip
    for table, (home,) in homes.items():
        assert not [name for name in names_of(table) if not hasattr(home, name)]


def test_the_names_are_numpys() -> None:
    assert not [name for name in names_of("NUMPY")
                if not hasattr(np, name) and not hasattr(np.ndarray, name)]  # fmt: skip
    assert not [name for name in names_of("NUMPY_RANDOM") if not hasattr(np.random, name)]


MISSING: list[tuple[Any, str, str]] = [
    (lm.ones((4, 8)), "view", r"'Tensor' object has no attribute 'view'; .*: x\.reshape\(2, -1\)"),
    (lm.ones((4, 8)), "add_", r"x\.assign\(x\.add\(\.\.\.\)\)"),
    (lm.ones((4, 8)), "clamp_", r"x\.assign\(x\.clip\(0, 1\)\)"),
    (lm.ones((4, 8)), "at", r"x\[0\] = 1\.0"),
    (lm.ones((4, 8)), "tril", r"lm\.tril\(x, \.\.\.\)"),
    (lm, "cat", r"module 'lamina' has no attribute 'cat'; .*: lm\.concat\(\[x, y\]\)"),
    (lm, "clamp", r"x\.clip\(0, 1\)"),
    (lm, "relu_", r"x\.assign\(x\.relu\(\.\.\.\)\)"),
    (lm, "detach", r"x\.detach"),
    (lm, "multinomial", r"in its place: lm\.random\.multinomial"),
    (lm, "optim", r"nn\.optim\.SGD"),
    (lm, "Parameter", r"requires_grad=True"),
    (lm, "vmap", r"in its place: nothing, as functions broadcast"),
    (nn.optim, "clip_grad_norm_", r"in its place: lm\.nn\.optim\.clip_grad_norm\(\.\.\.\)"),
    (nn.optim, "lr_scheduler", r"nn\.schedules\.cosine"),
    (lm.random, "randn", r"in its place: lm\.random\.normal\(\(2, 3\)\)"),
    (lm.random, "shuffle", r"lm\.random\.permutation"),
    (nn.schedules, "OneCycleLR", r"nn\.schedules\.one_cycle"),
    (nn, "Module", r"module 'lamina\.nn' has no attribute 'Module'; .*any class with"),
]


@pytest.mark.parametrize(("where", "name", "message"), MISSING, ids=[one[1] for one in MISSING])
def test_an_error_says_laminas_name(where: Any, name: str, message: str) -> None:
    with pytest.raises(MissingNameError, match=f"(?s){message}.*at test_foreign.py:") as caught:
        getattr(where, name)
    assert isinstance(caught.value, (AttributeError, LaminaError))
    assert not hasattr(where, name)
    assert getattr(where, name, None) is None


@pytest.mark.parametrize("where", [lm.ones(2), lm, nn, nn.optim, nn.schedules])
def test_a_name_of_nobody(where: Any) -> None:
    with pytest.raises(MissingNameError, match="no attribute 'flatmap'\n"):
        where.flatmap  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute '__flatmap__'$"):
        where.__flatmap__  # noqa: B018


def test_pytorchs_constructor_names_lamina_s() -> None:
    with pytest.raises(MissingNameError, match=r"in its place: Tensor\(array\)"):
        lm.tensor([1.0])


def test_imports_still_fail_as_imports() -> None:
    with pytest.raises(ImportError, match="cannot import name 'cat'"):
        exec("from lamina import cat")
