"""Layers that hold the settings of a function: PyTorch's arguments, results and derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, nn
from lamina.errors import ArgumentError
from tests.nn.beside_pytorch import case, check_equal, check_layers

torch = pytest.importorskip("torch")

VECTOR, SEQUENCE, IMAGE, VOLUME = (3, 6), (2, 4, 8), (2, 4, 6, 6), (1, 2, 4, 4, 4)

CASES = [
    case("CELU", VECTOR, 0.5), case("ELU", VECTOR, alpha=0.7), case("GELU", VECTOR),
    case("GELU", VECTOR, approximate="tanh"), case("GLU", VECTOR), case("GLU", SEQUENCE, dim=1),
    case("Hardshrink", VECTOR, 0.3), case("Hardsigmoid", VECTOR), case("Hardswish", VECTOR),
    case("Hardtanh", VECTOR, -0.5, 0.7), case("LeakyReLU", VECTOR, 0.2),
    case("LogSigmoid", VECTOR), case("LogSoftmax", VECTOR, dim=1), case("Mish", VECTOR),
    case("PReLU", IMAGE, 4), case("PReLU", VECTOR, init=0.5), case("RReLU", VECTOR, 0.25, 0.25),
    case("ReLU", VECTOR), case("ReLU6", VECTOR), case("SELU", VECTOR),
    case("SiLU", VECTOR), case("Sigmoid", VECTOR), case("Softmax", VECTOR, dim=0),
    case("Softmax2d", IMAGE), case("Softmin", VECTOR, dim=1), case("Softplus", VECTOR, beta=2.0),
    case("Softplus", VECTOR, beta=2.0, threshold=0.5), case("Softshrink", VECTOR, 0.2),
    case("Softsign", VECTOR), case("Tanh", VECTOR), case("Tanhshrink", VECTOR),
    case("Threshold", VECTOR, 0.1, 5.0),
    case("MaxPool1d", SEQUENCE, 3, stride=2, padding=1),
    case("MaxPool2d", IMAGE, 3, stride=2, ceil_mode=True),
    case("MaxPool2d", IMAGE, (2, 3), dilation=(2, 1)), case("MaxPool3d", VOLUME, 2),
    case("AvgPool1d", SEQUENCE, 3, padding=1, count_include_pad=False),
    case("AvgPool2d", IMAGE, 3, stride=2, divisor_override=5), case("AvgPool3d", VOLUME, 2),
    case("LPPool1d", SEQUENCE, 2, 3, stride=2), case("LPPool2d", IMAGE, 2, 2),
    case("LPPool3d", VOLUME, 2, 2), case("AdaptiveAvgPool1d", SEQUENCE, 3),
    case("AdaptiveAvgPool2d", IMAGE, (2, None)), case("AdaptiveAvgPool3d", VOLUME, 2),
    case("AdaptiveMaxPool1d", SEQUENCE, 3), case("AdaptiveMaxPool2d", IMAGE, 4),
    case("AdaptiveMaxPool3d", VOLUME, 2),
    case("PixelShuffle", IMAGE, 2), case("PixelUnshuffle", IMAGE, 3),
    case("ChannelShuffle", IMAGE, 2), case("Unfold", IMAGE, 3, padding=1, stride=2),
    case("Fold", (2, 8, 9), (4, 4), 2), case("LocalResponseNorm", IMAGE, 3, alpha=0.1),
    case("Upsample", IMAGE, scale_factor=2), case("Upsample", IMAGE, size=(9, 4), mode="bilinear"),
    case("Upsample", IMAGE, scale_factor=2, mode="bilinear", align_corners=True),
    case("UpsamplingNearest2d", IMAGE, scale_factor=2),
    case("UpsamplingBilinear2d", IMAGE, scale_factor=2),
    case("Flatten", IMAGE), case("Flatten", IMAGE, start_dim=2, end_dim=3),
    case("Unflatten", VECTOR, 1, (2, 3)), case("Unflatten", SEQUENCE, -2, (2, -1)),
    case("Identity", VECTOR, 5, unused=True),
    case("InstanceNorm1d", SEQUENCE, 4), case("InstanceNorm2d", IMAGE, 4, affine=True),
    case("InstanceNorm3d", VOLUME, 2),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "shape"), CASES)
def test_layer_agrees_with_pytorch(
    ours: Callable[[], Any], theirs: Callable[[], Any], shape: tuple[int, ...]
) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    check_layers(ours(), theirs(), [x])


def test_inplace_leaves_the_operand_alone() -> None:
    for name in ("ReLU", "LeakyReLU", "SELU", "Hardswish"):
        x = Tensor([-1.0, 2.0])
        getattr(nn, name)(inplace=True)(x).realize()
        assert x.tolist() == [-1.0, 2.0]


def test_bilinear_agrees() -> None:
    state = np.random.default_rng(0)
    inputs = [state.standard_normal((4, width)).astype(np.float32) for width in (3, 2)]
    check_layers(nn.Bilinear(3, 2, 5), torch.nn.Bilinear(3, 2, 5), inputs)
    check_layers(nn.Bilinear(3, 2, 5, bias=False), torch.nn.Bilinear(3, 2, 5, bias=False), inputs)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bags_agree(mode: str) -> None:
    ours, theirs = nn.EmbeddingBag(6, 3, mode=mode), torch.nn.EmbeddingBag(6, 3, mode=mode)
    nn.load_state_dict(ours, {"weight": theirs.weight.detach().numpy()})
    indices, offsets = np.array([0, 2, 1, 5, 5]), np.array([0, 2, 4])
    check_equal(ours(indices, offsets), theirs(torch.tensor(indices), torch.tensor(offsets)))
    check_equal(ours(indices[None]), theirs(torch.tensor(indices[None])))
    padded = nn.EmbeddingBag(6, 3, padding_idx=2)
    assert not padded.weight.numpy()[2].any()


LOGITS = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)
OTHERS = np.random.default_rng(2).standard_normal((2, 4, 3)).astype(np.float32)
CHANCES = 1.0 / (1.0 + np.exp(-OTHERS))
CLASSES = np.array([0, 2, 1, 2])
SIGNS = np.array([1, -1, 1, -1])
WEIGHT = np.array([0.5, 1.0, 2.0], np.float32)


@pytest.mark.parametrize(
    ("name", "arrays", "settings"),
    [
        ("BCELoss", (CHANCES[0], CHANCES[1]), {"reduction": "sum"}),
        ("BCEWithLogitsLoss", (LOGITS, CHANCES[0]), {"pos_weight": WEIGHT, "weight": WEIGHT}),
        ("CosineEmbeddingLoss", (*OTHERS, SIGNS), {"margin": 0.1}),
        ("CrossEntropyLoss", (LOGITS, CLASSES),
         {"weight": WEIGHT, "ignore_index": 1, "label_smoothing": 0.1}),
        ("GaussianNLLLoss", (*OTHERS, CHANCES[0]), {"full": True}),
        ("HingeEmbeddingLoss", (LOGITS[:, 0], SIGNS), {"margin": 0.5}),
        ("HuberLoss", tuple(OTHERS), {"delta": 0.5}),
        ("KLDivLoss", (LOGITS, CHANCES[0]), {"reduction": "batchmean"}),
        ("L1Loss", tuple(OTHERS), {"reduction": "none"}),
        ("MSELoss", tuple(OTHERS), {}),
        ("MarginRankingLoss", (*OTHERS[..., 0], SIGNS), {"margin": 0.5}),
        ("MultiLabelMarginLoss", (LOGITS, np.array([[0, -1, 1]] * 4)), {}),
        ("MultiLabelSoftMarginLoss", (LOGITS, CHANCES[0].round()), {"weight": WEIGHT}),
        ("MultiMarginLoss", (LOGITS, CLASSES), {"p": 2, "margin": 0.5, "weight": WEIGHT}),
        ("NLLLoss", (LOGITS, CLASSES), {"weight": WEIGHT, "ignore_index": 2}),
        ("PoissonNLLLoss", (LOGITS, CHANCES[0] * 4.0), {"full": True}),
        ("SmoothL1Loss", tuple(OTHERS), {"beta": 0.3}),
        ("SoftMarginLoss", (LOGITS[:, 0], SIGNS), {}),
        ("TripletMarginLoss", (LOGITS, *OTHERS), {"margin": 0.5, "p": 1.0, "swap": True}),
        ("TripletMarginWithDistanceLoss", (LOGITS, *OTHERS), {"margin": 0.5}),
    ],
)  # fmt: skip
def test_losses_agree(name: str, arrays: tuple[Any, ...], settings: dict[str, Any]) -> None:
    def theirs_of(value: Any) -> Any:
        return torch.tensor(value) if isinstance(value, np.ndarray) else value

    ours = getattr(nn, name)(**settings)
    theirs = getattr(torch.nn, name)(**{key: theirs_of(one) for key, one in settings.items()})
    check_equal(ours(*arrays), theirs(*map(theirs_of, arrays)))
    assert list(nn.state_dict(ours)) == list(theirs.state_dict())


def test_ctc_loss_agrees() -> None:
    scores = np.random.default_rng(3).standard_normal((6, 2, 4)).astype(np.float32)
    targets = np.array([[1, 2], [3, 3]])
    ours = nn.CTCLoss(reduction="sum")(lm.log_softmax(scores), targets, [6, 5], [2, 1])
    theirs = torch.nn.CTCLoss(reduction="sum")(
        torch.log_softmax(torch.tensor(scores), -1), torch.tensor(targets), (6, 5), (2, 1)
    )
    check_equal(ours, theirs)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("Dropout", (5, 6)), ("Dropout1d", (5, 6, 2)), ("Dropout2d", (5, 6, 2, 2)),
     ("Dropout3d", (5, 6, 2, 2, 2)), ("AlphaDropout", (5, 6)), ("FeatureAlphaDropout", (5, 6, 2))],
)  # fmt: skip
def test_dropouts_work_only_while_training(name: str, shape: tuple[int, ...]) -> None:
    layer = getattr(nn, name)(0.5, inplace=True)
    x = lm.ones(shape)
    assert (layer(x).numpy() != 1.0).any()
    np.testing.assert_array_equal(nn.eval(layer)(x).numpy(), 1.0)
    with pytest.raises(ArgumentError, match=f"{name}: p is 1.5"):
        getattr(nn, name)(1.5)


def test_rrelu_draws_only_while_training() -> None:
    layer = nn.RReLU()
    x = -lm.ones((100,))
    assert np.unique(layer(x).numpy()).size > 50
    assert np.unique(nn.eval(layer)(x).numpy()).size == 1


class Branches:
    """A layer made of every container."""

    def __init__(self) -> None:
        self.blocks = nn.ModuleList([nn.Linear(2, 3), nn.Linear(3, 2)])
        self.heads = nn.ModuleDict({"left": nn.Linear(2, 1, bias=False)})
        self.scales = nn.ParameterList([Tensor([1.0, 2.0])])
        self.shifts = nn.ParameterDict({"last": Tensor([3.0])})

    def __call__(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.heads["left"](x * self.scales[0]) + self.shifts["last"]


def test_containers_name_what_they_hold_and_learn() -> None:
    model = Branches()
    names = ["blocks.0.weight", "blocks.0.bias", "blocks.1.weight", "blocks.1.bias",
             "heads.left.weight", "scales.0", "shifts.last"]  # fmt: skip
    assert list(nn.state_dict(model)) == names
    assert len(nn.parameters(model)) == len(names)
    model(lm.ones((4, 2))).sum().backward()
    assert all(one.grad is not None for one in nn.parameters(model))
    model.blocks.append(nn.Dropout(0.5))
    assert isinstance(model.blocks[1:], nn.ModuleList)
    nn.eval(model)
    assert not model.blocks[2].training


@pytest.mark.parametrize(
    "held",
    [nn.ModuleList([nn.Linear(3, 2, device="cpu")]),
     nn.ModuleDict({0: nn.Linear(3, 2, device="cpu")}),
     nn.ParameterList([np.ones((3, 2))]), nn.ParameterDict({0: np.ones((3, 2))})],
)  # fmt: skip
def test_containers_are_arguments(held: Any) -> None:
    for name, one in nn.state_dict(held).items():
        assert one.requires_grad, name
        one.rebind(one.detach().to("cpu"))
        one.requires_grad = True
    x = Tensor([[1.0, 2.0, 3.0]], device="cpu")

    def call(given: Any, x: Tensor) -> Tensor:
        first = given[0]
        return first(x) if callable(first) else x @ first

    np.testing.assert_allclose(lm.jit(call)(held, x).numpy(), call(held, x).numpy(), rtol=1e-6)
