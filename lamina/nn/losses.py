"""Losses as layers; see the functions of `lamina` of the same meaning.

A `weight` or `pos_weight` is part of the layer's state, as in PyTorch.
"""

from dataclasses import dataclass

from lamina.frontend.functions import losses, neural, sequence
from lamina.frontend.functions.sequence import Lengths
from lamina.frontend.tensor import Tensor, as_tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss",
    "GaussianNLLLoss", "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MSELoss",
    "MarginRankingLoss", "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss",
    "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]  # fmt: skip

Weight = Tensor | None


def _weight(value: Weight) -> Weight:
    """A weight that may be given as an array."""
    return None if value is None else as_tensor(value)


@dataclass(eq=False)
class BCELoss:
    """See `lamina.binary_cross_entropy`."""

    weight: Weight = None
    reduction: str = "mean"

    def __post_init__(self) -> None:
        self.weight = _weight(self.weight)

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return neural.binary_cross_entropy(x, target, weight=self.weight, reduction=self.reduction)


@dataclass(eq=False)
class BCEWithLogitsLoss:
    """See `lamina.binary_cross_entropy_with_logits`."""

    weight: Weight = None
    reduction: str = "mean"
    pos_weight: Weight = None

    def __post_init__(self) -> None:
        self.weight = _weight(self.weight)
        self.pos_weight = _weight(self.pos_weight)

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return neural.binary_cross_entropy_with_logits(
            x, target, weight=self.weight, reduction=self.reduction, pos_weight=self.pos_weight,
        )  # fmt: skip


@dataclass(eq=False)
class CTCLoss:
    """See `lamina.ctc_loss`."""

    blank: int = 0
    reduction: str = "mean"
    zero_infinity: bool = False

    def __call__(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths
    ) -> Tensor:
        return sequence.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, blank=self.blank,
            reduction=self.reduction, zero_infinity=self.zero_infinity,
        )  # fmt: skip


@dataclass(eq=False)
class CosineEmbeddingLoss:
    """See `lamina.cosine_embedding_loss`."""

    margin: float = 0.0
    reduction: str = "mean"

    def __call__(self, x1: Tensor, x2: Tensor, target: Tensor) -> Tensor:
        return losses.cosine_embedding_loss(
            x1, x2, target, margin=self.margin, reduction=self.reduction,
        )  # fmt: skip


@dataclass(eq=False)
class CrossEntropyLoss:
    """See `lamina.cross_entropy`."""

    weight: Weight = None
    ignore_index: int = -100
    reduction: str = "mean"
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        self.weight = _weight(self.weight)

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return neural.cross_entropy(
            x, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )  # fmt: skip


@dataclass(eq=False)
class GaussianNLLLoss:
    """See `lamina.gaussian_nll_loss`."""

    full: bool = False
    eps: float = 1e-6
    reduction: str = "mean"

    def __call__(self, x: Tensor, target: Tensor, var: Tensor) -> Tensor:
        return losses.gaussian_nll_loss(
            x, target, var, full=self.full, eps=self.eps, reduction=self.reduction,
        )  # fmt: skip


@dataclass(eq=False)
class HingeEmbeddingLoss:
    """See `lamina.hinge_embedding_loss`."""

    margin: float = 1.0
    reduction: str = "mean"

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return losses.hinge_embedding_loss(x, target, margin=self.margin, reduction=self.reduction)


@dataclass(eq=False)
class HuberLoss:
    """See `lamina.huber_loss`."""

    reduction: str = "mean"
    delta: float = 1.0

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return neural.huber_loss(x, target, reduction=self.reduction, delta=self.delta)


@dataclass(eq=False)
class KLDivLoss:
    """See `lamina.kl_div`."""

    reduction: str = "mean"
    log_target: bool = False

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return neural.kl_div(x, target, reduction=self.reduction, log_target=self.log_target)


@dataclass(eq=False)
class L1Loss:
    """See `lamina.l1_loss`."""

    reduction: str = "mean"

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return neural.l1_loss(x, target, reduction=self.reduction)


@dataclass(eq=False)
class MSELoss:
    """See `lamina.mse_loss`."""

    reduction: str = "mean"

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return neural.mse_loss(x, target, reduction=self.reduction)


@dataclass(eq=False)
class MarginRankingLoss:
    """See `lamina.margin_ranking_loss`."""

    margin: float = 0.0
    reduction: str = "mean"

    def __call__(self, x1: Tensor, x2: Tensor, target: Tensor) -> Tensor:
        return losses.margin_ranking_loss(
            x1, x2, target, margin=self.margin, reduction=self.reduction,
        )  # fmt: skip


@dataclass(eq=False)
class MultiLabelMarginLoss:
    """See `lamina.multilabel_margin_loss`."""

    reduction: str = "mean"

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return losses.multilabel_margin_loss(x, target, reduction=self.reduction)


@dataclass(eq=False)
class MultiLabelSoftMarginLoss:
    """See `lamina.multilabel_soft_margin_loss`."""

    weight: Weight = None
    reduction: str = "mean"

    def __post_init__(self) -> None:
        self.weight = _weight(self.weight)

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return losses.multilabel_soft_margin_loss(
            x, target, weight=self.weight, reduction=self.reduction,
        )  # fmt: skip


@dataclass(eq=False)
class MultiMarginLoss:
    """See `lamina.multi_margin_loss`."""

    p: int = 1
    margin: float = 1.0
    weight: Weight = None
    reduction: str = "mean"

    def __post_init__(self) -> None:
        self.weight = _weight(self.weight)

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return losses.multi_margin_loss(
            x, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction,
        )  # fmt: skip


@dataclass(eq=False)
class NLLLoss:
    """See `lamina.nll_loss`."""

    weight: Weight = None
    ignore_index: int = -100
    reduction: str = "mean"

    def __post_init__(self) -> None:
        self.weight = _weight(self.weight)

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return neural.nll_loss(
            x, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction,
        )  # fmt: skip


@dataclass(eq=False)
class PoissonNLLLoss:
    """See `lamina.poisson_nll_loss`."""

    log_input: bool = True
    full: bool = False
    eps: float = 1e-8
    reduction: str = "mean"

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return losses.poisson_nll_loss(
            x, target, log_input=self.log_input, full=self.full, eps=self.eps,
            reduction=self.reduction,
        )  # fmt: skip


@dataclass(eq=False)
class SmoothL1Loss:
    """See `lamina.smooth_l1_loss`."""

    reduction: str = "mean"
    beta: float = 1.0

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return neural.smooth_l1_loss(x, target, reduction=self.reduction, beta=self.beta)


@dataclass(eq=False)
class SoftMarginLoss:
    """See `lamina.soft_margin_loss`."""

    reduction: str = "mean"

    def __call__(self, x: Tensor, target: Tensor) -> Tensor:
        return losses.soft_margin_loss(x, target, reduction=self.reduction)


@dataclass(eq=False)
class TripletMarginLoss:
    """See `lamina.triplet_margin_loss`."""

    margin: float = 1.0
    p: float = 2.0
    eps: float = 1e-6
    swap: bool = False
    reduction: str = "mean"

    def __call__(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return losses.triplet_margin_loss(
            anchor, positive, negative, margin=self.margin, p=self.p, eps=self.eps, swap=self.swap,
            reduction=self.reduction,
        )  # fmt: skip


@dataclass(eq=False)
class TripletMarginWithDistanceLoss:
    """See `lamina.triplet_margin_with_distance_loss`."""

    distance_function: losses.Distance | None = None
    margin: float = 1.0
    swap: bool = False
    reduction: str = "mean"

    def __call__(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return losses.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function,
            margin=self.margin, swap=self.swap, reduction=self.reduction,
        )  # fmt: skip
