"""Rows of images: sampling at points, and boxes."""

from __future__ import annotations

from typing import Any

import numpy as np

import lamina as lm
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.values import tensor

Array = np.ndarray[Any, Any]

_SAMPLING = {"linear": "bilinear", "cubic": "bicubic"}  # ONNX's names to PyTorch's


@row("GridSample")
def grid_sample(
    context: Context, x: Any, grid: Any, *, align_corners: int = 0, mode: str = "linear",
    padding_mode: str = "zeros",
) -> Any:  # fmt: skip
    return lm.grid_sample(
        tensor(x), tensor(grid), _SAMPLING.get(mode, mode), padding_mode, bool(align_corners)
    )


def _overlaps(box: Array, boxes: Array) -> Array:
    """Intersection over union of a box (4,) and `boxes` (n, 4), of (y, x) of two corners."""
    begins = np.maximum(np.minimum(box[:2], box[2:]), np.minimum(boxes[:, :2], boxes[:, 2:]))
    ends = np.minimum(np.maximum(box[:2], box[2:]), np.maximum(boxes[:, :2], boxes[:, 2:]))
    common = np.prod(np.maximum(ends - begins, 0), axis=1)
    areas = np.prod(np.abs(boxes[:, 2:] - boxes[:, :2]), axis=1)
    union = np.prod(np.abs(box[2:] - box[:2])) + areas - common
    shares: Array = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return shares


def _kept(boxes: Array, scores: Array, count: int, overlap: float) -> list[int]:
    """The best of `boxes`, at most `count`: one after the other, those that overlap a better one
    by more than `overlap` are left out (greedy non-maximum suppression)."""
    kept: list[int] = []
    order = np.argsort(-scores, kind="stable")
    while order.size and len(kept) < count:
        best, rest = order[0], order[1:]
        kept.append(int(best))
        order = rest[_overlaps(boxes[best], boxes[rest]) <= overlap]
    return kept


@row("NonMaxSuppression")
def non_max_suppression(
    context: Context, boxes: Any, scores: Any, max_output_boxes_per_class: Any = None,
    iou_threshold: Any = None, score_threshold: Any = None, *, center_point_box: int = 0,
) -> Any:  # fmt: skip
    """The triples (batch, class, box) that are kept, int64. How many there are depends on the
    elements: the host computes them."""
    corners, marks = context.host(boxes), context.host(scores)
    if center_point_box:  # x, y, width, height
        middle, half = corners[..., 1::-1], corners[..., :1:-1] / 2
        corners = np.concatenate([middle - half, middle + half], axis=-1)
    count = 0 if max_output_boxes_per_class is None else context.integers(
        max_output_boxes_per_class)[0]  # fmt: skip
    overlap = 0.0 if iou_threshold is None else float(context.host(iou_threshold).reshape(-1)[0])
    chosen = []
    for batch, of_class in np.ndindex(*marks.shape[:2]):
        candidates = np.arange(marks.shape[2])
        if score_threshold is not None:
            lowest = context.host(score_threshold).reshape(-1)[0]
            candidates = np.flatnonzero(marks[batch, of_class] > lowest)
        places = _kept(
            corners[batch][candidates], marks[batch, of_class][candidates], count, overlap
        )
        chosen += [(batch, of_class, int(candidates[place])) for place in places]
    return np.array(chosen, np.int64).reshape(-1, 3)
