"""Mistakes in arguments and options: a typed error that names the operation and the user's line."""

from __future__ import annotations

import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import datasets, errors, nn
from lamina.core import options
from lamina.io import safetensors
from lamina.nn import optim


class _Guarded:
    """An array that refuses to be one, as those of other libraries do that record derivatives."""

    dtype = "float32"

    def __array__(self) -> Any:
        raise RuntimeError("it requires grad; detach it")


MISTAKES: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (errors.ShapeError, "ones: .*negative", lambda: lm.ones((3, -4))),
    (errors.DTypeError, "ones: 3.5 is no integer", lambda: lm.ones((3.5,))),  # type: ignore[arg-type]
    (errors.ShapeError, "eye: .*negative", lambda: lm.eye(-2)),
    (errors.ShapeError, "linspace: .*negative", lambda: lm.linspace(0, 1, -1)),
    (errors.ArgumentError, "arange: the step is 0", lambda: lm.arange(0, 5, 0)),
    (errors.DTypeError, r"normal: \(2\.5,\) is no shape of integers",
     lambda: lm.random.normal((2.5,))),  # type: ignore[arg-type]
    (errors.DTypeError, "key: 'a'", lambda: lm.random.key("a")),  # type: ignore[arg-type]
    (errors.ShapeError, "reshape: .*only one", lambda: lm.ones((4,)).reshape(-1, -1)),
    (errors.DTypeError, "reshape: 2.0", lambda: lm.ones((4,)).reshape(2.0, 2)),
    (errors.DTypeError, "sum: 'x'", lambda: lm.sum(lm.ones((4,)), axis="x")),  # type: ignore[arg-type]
    (errors.ShapeError, r"matmul: \(2, 3, 4\) @ \(3, 4, 5\): leading",
     lambda: lm.matmul(lm.ones((2, 3, 4)), lm.ones((3, 4, 5)))),
    (errors.ShapeError, "asarray: rows", lambda: lm.Tensor([[1, 2], [3]])),
    (errors.DTypeError, "permute_dims: axes=0 is of type int; a sequence is needed",
     lambda: lm.permute_dims(lm.ones((2, 3)), 0)),  # type: ignore[arg-type]
    (errors.DTypeError, "topk: k='a' is of type str; an integer is needed",
     lambda: lm.topk([1.0, 2.0], "a", axis=0)),  # type: ignore[arg-type]
    (errors.DTypeError, "max_pool1d: kernel_size: None is no integer",
     lambda: lm.max_pool1d(lm.ones((1, 1, 4)), None)),  # type: ignore[arg-type]
    (errors.ArgumentError, r"softplus\(.*, beta=0\): division by zero",
     lambda: lm.softplus([1.0], beta=0)),
    (errors.DTypeError, r"zeros\(2, 3\): too many .*; it takes shape, dtype, device",
     lambda: lm.zeros(2, 3)),  # type: ignore[call-arg, arg-type]
    (errors.DTypeError, r"dim=1\): .* keyword argument 'dim'; it takes x, axis, keepdims, "
     "dtype.*; dim is axis here",
     lambda: lm.ones((2, 3)).sum(dim=1)),
    (errors.DTypeError, "; keepdim is keepdims here", lambda: lm.mean(lm.ones(3), keepdim=True)),  # type: ignore[call-arg]
    (errors.DTypeError, "; unbiased is correction here", lambda: lm.ones(3).var(unbiased=False)),
    (errors.DTypeError, "; ddof is correction here", lambda: lm.ones(3).std(ddof=1)),
    (errors.DTypeError, "; p is ord here", lambda: lm.norm(lm.ones(3), p=1)),  # type: ignore[call-arg]
    (errors.UnknownDeviceError, r"^to: 'float16' is a dtype.*x\.cast\('float16'\)",
     lambda: lm.ones(2).to("float16")),
    (errors.UnknownDeviceError, r"^to: <class 'float'> is a dtype.*x\.cast\('float32'\)",
     lambda: lm.ones(2).to(float)),  # type: ignore[arg-type]
    (errors.ShapeError, r"^BatchNorm: .* shape \(2, 4, 3, 3\), of 4 channels; .*\(3,\)",
     lambda: nn.BatchNorm2d(3)(lm.ones((2, 4, 3, 3)))),
    (errors.ShapeError, r"padding_mask .* \(2, 3\); \(N, S\) = \(3, 2\) .* batch_first is False",
     lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 1)(
         lm.ones((2, 3, 4)), src_key_padding_mask=lm.zeros((2, 3), dtype=lm.bool))),
    (errors.DTypeError, r"^Linear\(3\): .* 'out_features'; it takes in_features, out_f",
     lambda: nn.Linear(3)),  # type: ignore[call-arg]
    (errors.UnknownDeviceError, "no device 3; there are", lambda: lm.ones(2).to(3)),  # type: ignore[arg-type]
    (errors.DTypeError, r"pad: padding=.*2.0.* is of type float64; a seq",
     lambda: lm.ones(2).pad(np.float64(2))),
    (errors.ArgumentError, "SGD: lr is -1",
     lambda: optim.SGD([lm.ones((2,), requires_grad=True)], lr=-1)),
    (errors.DTypeError, "^Adam: betas=0.9 is of type float; a sequence is needed",
     lambda: optim.Adam([lm.ones((2,), requires_grad=True)], betas=0.9)),  # type: ignore[arg-type]
    (errors.DTypeError, "^SGD: lr='a' is of type str; a number or a function is needed",
     lambda: optim.SGD([lm.ones((2,), requires_grad=True)], lr="a")),  # type: ignore[arg-type]
    (errors.DTypeError, "^SGD: momentum='a' is of type str; a number is",
     lambda: optim.SGD([lm.ones((2,), requires_grad=True)], momentum="a")),  # type: ignore[arg-type]
    (errors.DTypeError, r"^Conv2d\(3, 4\): missing .* 'kernel_size'; it takes in_channels",
     lambda: nn.Conv2d(3, 4)),  # type: ignore[call-arg]
    (errors.DTypeError, r"^Sequential: \[1\] is no layer", lambda: nn.Sequential([1])(lm.ones(2))),
    (errors.ShapeError, r"^LSTM: initial states \[\(1, 2, 3\)\], not 2 of \(1, 2, 3\)",
     lambda: nn.LSTM(4, 3)(lm.ones((5, 2, 4)), lm.ones((1, 2, 3)))),
    (errors.ShapeError, r"^GRU: initial states \[\(2, 3\)\], not 1 of \(1, 2, 3\)",
     lambda: nn.GRU(4, 3)(lm.ones((5, 2, 4)), lm.ones((2, 3)))),
    (errors.ShapeError, r"^GRU: x of shape \(4,\) has .* 2 or 3 axes",
     lambda: nn.GRU(4, 3)(lm.ones(4))),
    (errors.DTypeError, r"^realize\(\[<Tensor float32\[3\].*\]\): 'list' object",
     lambda: lm.realize([lm.ones(3)])),  # type: ignore[list-item]
    (errors.DTypeError, r"^save: tensors=\[1\] is of type list; a mapping",
     lambda: safetensors.save("x", [1])),  # type: ignore[arg-type]
    (errors.DTypeError, "^load: path=None is of", lambda: safetensors.load(None)),  # type: ignore[arg-type]
    (errors.DTypeError, "^digits: test_share='much'", lambda: datasets.digits("much")),  # type: ignore[arg-type]
    (errors.UnknownDeviceError, "^no device {}; there are", lambda: lm.ones(2).to({})),  # type: ignore[arg-type]
    (errors.ArgumentError, "^options: debug='much'", lambda: lm.using(debug="much").__enter__()),
    (errors.GradientError, r"SGD: no parameters; nn\.parameters\(model\) lists them",
     lambda: optim.SGD(nn.Linear(2, 2))),  # type: ignore[arg-type]
    (errors.DTypeError, "clip_grad_norm: parameters=.* is of type Linear; a sequence or a tensor",
     lambda: optim.clip_grad_norm(nn.Linear(2, 2), 1.0)),  # type: ignore[arg-type]
    (errors.DTypeError, "^Linear: in_features='a' is", lambda: nn.Linear("a", 2)),  # type: ignore[arg-type]
    (errors.ArgumentError, "BatchNorm.*negative", lambda: nn.BatchNorm(-1)),
    (errors.DTypeError, "str is not made of numbers", lambda: nn.Conv2d(1, 1, 1)("a")),  # type: ignore[arg-type]
    (errors.DTypeError, "cosine.*'a'", lambda: nn.schedules.cosine(1.0, "a")),  # type: ignore[arg-type]
    (errors.DTypeError, "load_state_dict: state=5 is of type int; a mapping is needed",
     lambda: nn.load_state_dict(nn.Linear(2, 2), 5)),  # type: ignore[arg-type]
    (errors.ArgumentError, "getitem.*slice step cannot be zero", lambda: lm.ones(3)[::0]),
    (errors.DTypeError, "getitem.*slice indices", lambda: lm.ones(3)["a":]),
    (errors.DTypeError, "setitem.*slice indices", lambda: lm.ones(3).__setitem__(slice(1.5), 0)),
    (errors.ArgumentError, "add.*int too large", lambda: lm.ones(3) + 10**400),
    (errors.GradientError, "grad: argnums 0 of 0", lambda: lm.grad(lm.sum)()),
    (errors.GradientError, "grad: argnums 2 of 1", lambda: lm.grad(lm.sum, 2)(lm.ones(3))),
    (errors.DTypeError, "grad: argnums: 'a'", lambda: lm.grad(lm.sum, "a")),  # type: ignore[arg-type]
    (errors.DTypeError, "repeat: 1.5", lambda: lm.repeat(lm.ones(3), 1.5)),
    (errors.DTypeError, "repeat: 1.0", lambda: lm.repeat(lm.ones(3), [1, 1.5, 1])),
    (errors.ShapeError, "repeat: .*negative", lambda: lm.repeat(lm.ones(3), [1, -1, 1])),
    (errors.ArgumentError, "one_hot: -2 is less than -1", lambda: lm.one_hot([0], -2)),  # type: ignore[arg-type]
    (errors.DTypeError, "one_hot: 1.5", lambda: lm.one_hot([0], 1.5)),  # type: ignore[arg-type]
    (errors.DTypeError, "cummax: complex64", lambda: lm.cummax(lm.asarray([1j, 2j]))),
    (errors.ArgumentError, "diff: -1", lambda: lm.diff(lm.ones(3), n=-1)),
    (errors.ArgumentError, "tensordot: -1",
     lambda: lm.tensordot(lm.ones((2, 2)), lm.ones((2, 2)), axes=-1)),
    (errors.ArgumentError, "split: -1", lambda: lm.random.split(lm.random.key(0), -1)),
    (errors.DTypeError, "split: 1.5", lambda: lm.random.split(lm.random.key(0), 1.5)),  # type: ignore[arg-type]
    (errors.DTypeError, "manual_seed: 1.5", lambda: lm.random.manual_seed(1.5)),  # type: ignore[arg-type]
    (errors.DTypeError, "pad: 1.5", lambda: lm.pad(lm.ones(3), [(1.5, 1)])),  # type: ignore[list-item]
    (errors.DTypeError, "eye: 0.5", lambda: lm.eye(2, k=0.5)),  # type: ignore[arg-type]
    (errors.DTypeError, "tril: 0.5", lambda: lm.tril(lm.ones((2, 2)), k=0.5)),  # type: ignore[arg-type]
    (errors.DTypeError, "adaptive_max_pool1d: 1.5",
     lambda: lm.adaptive_max_pool1d(lm.ones((1, 4)), (1.5,))),  # type: ignore[arg-type]
    (errors.AxisError, "embedding.*range",
     lambda: lm.embedding(lm.arange(2), lm.ones((3, 2)), 7)),
    (errors.DTypeError, "less: 256 is beyond uint8",
     lambda: lm.ones(2, dtype=lm.uint8) < 256),
    (errors.DTypeError, "multiply: -1 is beyond uint8",
     lambda: -1 * lm.ones(2, dtype=lm.uint8)),
    (errors.DTypeError, "setitem: 300 is beyond uint8",
     lambda: lm.ones(2, dtype=lm.uint8).__setitem__(0, 300)),
    (errors.DTypeError, "full: 300 is beyond uint8",
     lambda: lm.full(2, 300, dtype=lm.uint8)),
    (errors.DTypeError, "pad: 300 is beyond uint8",
     lambda: lm.pad(lm.ones(2, dtype=lm.uint8), (1, 1), value=300)),
    (errors.DTypeError, "masked_fill: -inf is beyond int64",
     lambda: lm.masked_fill(lm.arange(2), [True, False], -math.inf)),
    (errors.DTypeError, "setitem: nan is beyond int64",
     lambda: lm.arange(2).__setitem__(0, math.nan)),
    (errors.DTypeError, "asarray: .*complex", lambda: lm.Tensor([1j], dtype=lm.float32)),
    (errors.DTypeError, "imaginary", lambda: lm.Tensor(lm.asarray([1j]), dtype=lm.float32)),
    (errors.DTypeError, "imaginary", lambda: lm.asarray([1j]).cast(lm.int8)),
    (errors.DTypeError, "imaginary", lambda: lm.ones(2).assign(1j)),
    (errors.DTypeError, "imaginary", lambda: lm.ones(2).__setitem__(0, 1j)),
    (errors.DTypeError, "imaginary", lambda: lm.scatter(lm.ones(1), 0, [0], lm.asarray([1j]))),
    (errors.DTypeError, "nan_to_num: complex64", lambda: lm.nan_to_num(lm.asarray([1j]))),
    (errors.DTypeError, "sum: bool", lambda: lm.sum(lm.asarray([True]), dtype=lm.bool)),
    (errors.DTypeError, "^cumulative_prod: bool",
     lambda: lm.cumulative_prod(lm.asarray([1]), dtype=lm.bool)),
    (errors.DTypeError, "scatter: bool",
     lambda: lm.scatter(lm.asarray([True]), 0, [0], lm.asarray([True]), "add")),
    (errors.DTypeError, "scatter: complex64 has no 'prod'",
     lambda: lm.scatter(lm.asarray([1j]), 0, [0], lm.asarray([1j]), "prod")),
    (errors.DTypeError, "scatter: complex64",
     lambda: lm.scatter(lm.asarray([1j]), 0, [0], lm.asarray([1j]), "max")),
    (errors.DTypeError, "max_pool1d: complex64", lambda: lm.max_pool1d(lm.asarray([[1j, 2j]]), 2)),
    (errors.ShapeError, "norm: .*no elements", lambda: lm.norm(lm.ones(0), math.inf)),
    (errors.ShapeError, "asarray: .*differ", lambda: lm.asarray([lm.ones(2), lm.ones(3)])),
    (errors.DTypeError, "asarray: .*requires grad", lambda: lm.asarray(_Guarded())),
    (errors.DTypeError, f"^asarray: {1 << 70} is beyond int64 and uint64; give a wider",
     lambda: lm.Tensor([1 << 70])),
    (errors.DTypeError, "^asarray: 300 is beyond uint8", lambda: lm.asarray(300, dtype=lm.uint8)),
    (errors.DTypeError, "^asarray: -1 is beyond uint8",
     lambda: lm.Tensor([[1, 2], [3, -1]], lm.uint8)),
    (errors.DTypeError, "^masked_fill: the condition is float32",
     lambda: lm.masked_fill(lm.ones(2), lm.ones(2), 0)),
    (errors.DTypeError, "^masked_fill: the condition is float32",
     lambda: lm.ones(2).masked_fill(lm.ones(2), 0)),
    (errors.ShapeError, "^stack: there is nothing to join", lambda: lm.stack([])),
    (errors.AxisError, "^stack: axis 5", lambda: lm.stack([lm.ones(2)], axis=5)),
    (errors.ShapeError, r"^zeros: \(-1,\) has a negative size", lambda: lm.zeros((-1,))),
    (errors.DTypeError, "^zeros: 'text' is not a dtype", lambda: lm.zeros(2, dtype="text")),
    (errors.AxisError, "^unsqueeze: axis 7", lambda: lm.unsqueeze(lm.ones(2), 7)),
    (errors.DTypeError, "^bitwise_invert: float32", lambda: ~lm.ones(2)),
    (errors.ShapeError, r"^Linear: \(2, -1\) has a negative size", lambda: nn.Linear(-1, 2)),
    (errors.AxisError, "^Embedding: padding_idx=7 is out", lambda: nn.Embedding(3, 2, 7)),
    (errors.ShapeError, r"^LSTM: x \(5, 2, 7\) and weight \(12, 4\)",
     lambda: nn.LSTM(4, 3)(lm.ones((5, 2, 7)))),
    (errors.ShapeError, "^Conv2d: the input has shape", lambda: nn.Conv2d(3, 4, 3)(lm.ones(2))),
    (errors.ShapeError, "^MultiheadAttention: x",
     lambda: nn.MultiheadAttention(8, 2)(*[lm.ones((2, 3, 7))] * 3)),
    (errors.DTypeError, r"^Adam: lr='a' is of type str; a number or a function is needed",
     lambda: optim.Adam([lm.ones((2,), requires_grad=True)], lr="a")),  # type: ignore[arg-type]
    (errors.ArgumentError, "^norm: ord='tall' is neither a number nor 'fro'",
     lambda: lm.norm(lm.ones(2), "tall")),
    (errors.DTypeError, "^full: str is not made of numbers",
     lambda: lm.full((2,), "a")),  # type: ignore[arg-type]
    (errors.DTypeError, "^gradient: wrt=3 is of type int; a tensor or a sequence is needed",
     lambda: lm.gradient(lm.ones(()), 3)),  # type: ignore[arg-type]
    (errors.DTypeError, r"^einsum: equation=<Tensor.* is of type Tensor; a string is needed",
     lambda: lm.einsum(lm.ones(2), lm.ones(2))),  # type: ignore[arg-type]
]  # fmt: skip


@pytest.mark.parametrize(("kind", "message", "mistake"), MISTAKES, ids=[m for _, m, _ in MISTAKES])
def test_a_mistake_is_named(
    kind: type[Exception], message: str, mistake: Callable[[], Any]
) -> None:
    with pytest.raises(kind, match=f"(?s){message}.*at test_errors.py:"):
        mistake()


def test_dtypes_of_pytorch_are_dtypes() -> None:
    torch = pytest.importorskip("torch")
    for name in ("float16", "bfloat16", "bool", "int64", "complex64"):
        assert lm.ones(2).cast(getattr(torch, name)).dtype.name == name
    with pytest.raises(errors.UnknownDeviceError, match=r"torch.float16 is a dtype.*x\.cast"):
        lm.ones(2).to(torch.float16)
    with pytest.raises(errors.DTypeError, match="not a dtype lamina has"):
        lm.ones(2).cast(torch.complex32)


def test_integers_of_numpy_are_axes_and_sizes() -> None:
    two: Any = np.int64(2)
    assert lm.ones((4, two)).sum(axis=two - 1).shape == (4,)
    x = lm.ones((1, 4, 4))
    assert lm.max_pool1d(x, two).shape == (1, 4, 2)
    assert lm.expand_dims(x, axis=two).shape == (1, 4, 1, 4)
    assert lm.roll(x, two, axis=two).shape == x.shape
    assert [one.shape for one in lm.split(x, two, two)] == [(1, 4, 2)] * 2
    assert lm.tile(x, two).shape == (1, 4, 8)
    assert lm.layer_norm(x, two * 2).shape == x.shape
    assert lm.pad(x, (two, two)).shape == (1, 4, 8)
    assert lm.adaptive_avg_pool1d(x, np.int8(2)).shape == (1, 4, 2)
    assert lm.repeat(x, two, axis=two).shape == (1, 4, 8)


def test_what_the_users_own_code_raises_is_left_alone() -> None:
    def missing(x: lm.Tensor) -> lm.Tensor:
        raise KeyError("x")

    with pytest.raises(KeyError):
        nn.Sequential(missing)(lm.ones(2))
    with pytest.raises(KeyError):
        lm.grad(missing)(lm.ones(2))


def test_an_error_keeps_the_name_of_what_the_users_own_code_called() -> None:
    def rate(step: int) -> float:
        return lm.sum(lm.ones(step + 1), axis=3).item()

    with pytest.raises(errors.AxisError, match=r"^sum: axis 3"):
        optim.SGD([lm.ones((2,), requires_grad=True)], lr=rate)
    with pytest.raises(errors.AxisError, match=r"^sum: axis 3"):
        lm.value_and_grad(lambda x: lm.sum(x, axis=3))(lm.ones(2))


def test_errors_of_files_keep_their_type() -> None:
    with pytest.raises(errors.FormatError, match=r"^load_state_dict: Linear: missing weight"):
        nn.load_state_dict(nn.Linear(2, 2), {})


def test_what_fits_the_annotations_keeps_pythons_words() -> None:
    with pytest.raises(errors.ArgumentError, match=r"^softplus\(\[1.0\], beta=0\): .*zero"):
        lm.softplus([1.0], beta=0)


@pytest.mark.parametrize("given", [list, tuple, np.array])
def test_operands_are_all_that_asarray_takes(given: Callable[[list[float]], Any]) -> None:
    x, classes = given([1.0, 3.0, 2.0]), given([0, 2])
    assert lm.one_hot(classes, 3).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert lm.sort(x).tolist() == [1.0, 2.0, 3.0]
    assert lm.flip(x).tolist() == [2.0, 3.0, 1.0]
    assert lm.dot(x, lm.asarray(x)).item() == 14.0
    assert lm.mse_loss(x=x, target=lm.asarray(x)).item() == 0.0
    found = lm.cross_entropy(lm.asarray([x, x]), classes, weight=[1.0, 1.0, 1.0])
    assert found.item() == lm.cross_entropy(lm.asarray([x, x]), lm.asarray(classes)).item()


def test_operands_go_where_tensors_beside_them_are() -> None:
    x = lm.Tensor([1.0, 3.0], device="interp")
    y = np.array([2.0, 1.0], np.float32)  # which says that it is on "cpu"
    assert lm.dot(y, x).item() == lm.dot(x, y).item() == 5.0
    assert lm.dot(y, x).device == "interp"


@pytest.mark.parametrize(
    ("name", "text"), [("DEBUG", "much"), ("CHECK", "no"), ("SEARCH", "9" * 20)]
)
def test_an_option_that_makes_no_sense(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"LAMINA_{name}", text)
    with pytest.raises(errors.ArgumentError, match=f"LAMINA_{name}='{text}'"):
        options.from_environment()


def test_a_program_beside_the_package_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose path only begins as the package's does is not part of the package."""
    package = Path(errors.__file__).parent
    beside = f"{package}_trial.py"
    monkeypatch.setattr("linecache.getline", lambda *_: "")
    found: dict[str, Any] = {"line": errors.user_line}
    exec(compile("found = line()", beside, "exec"), found)
    assert found["found"] == f"{Path(beside).name}:1"


def test_unknown_options_and_negative_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ({"typo": 1}, {"device": 3}, {"check": "no"}, {"threads": -3}, {"debug": 1.0}):
        with pytest.raises(errors.ArgumentError, match="is none of device: str, debug: int"):
            options.set_options(**given)
    monkeypatch.setenv("LAMINA_THREADS", "-3")
    with pytest.raises(errors.ArgumentError, match="LAMINA_THREADS='-3': an integer from 0"):
        options.from_environment()


def test_an_error_has_its_parts_as_fields() -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        lm.softshrink(lm.ones(2), lambd=-1.0)
    error = caught.value
    assert (error.operation, error.problem) == ("softshrink", "lambd=-1.0 must not be negative")
    assert error.message == "softshrink: lambd=-1.0 must not be negative"
    assert error.line is not None
    assert str(error) == f"{error.message}\n  at {error.line}"
    asked = errors.UnknownDeviceError("it is gone", operation="cuda", remedy="install it")
    assert asked.message == "cuda: it is gone; install it"


@pytest.mark.parametrize("kind", [errors.ShapeError, errors.OutOfMemoryError, datasets.DataError])
def test_an_error_that_was_pickled_is_the_same(kind: type[errors.LaminaError]) -> None:
    error = kind("too few", operation="f", remedy="add some")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)


def test_no_code_takes_the_text_of_an_error_apart() -> None:
    """Its parts are fields; the text has the user's line behind it."""
    package = Path(errors.__file__).parent
    taken = re.compile(r"str\(error\)\.(split|partition|rpartition|startswith)|\\n  at ")
    found = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if taken.search(file.read_text(encoding="utf-8"))
    }
    assert found == {"errors.py"}
