"""Rows of ai.onnx.ml: labels, features and ensembles of trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.values import dtype_of, lamina_dtype, tensor

_DOMAIN = "ai.onnx.ml"
Array = np.ndarray[Any, Any]


@row("Binarizer", domain=_DOMAIN)
def binarize(context: Context, x: Any, *, threshold: float = 0.0) -> Any:
    values = tensor(x)
    return (values > threshold).cast(values.dtype)


@row("ArrayFeatureExtractor", domain=_DOMAIN)
def extract_features(context: Context, x: Any, indices: Any) -> Any:
    """The elements at `indices` of the last axis; a vector is a matrix of one row."""
    rows = lm.atleast_2d(tensor(x))
    return lm.take(rows, lm.reshape(tensor(indices), (-1,)), axis=-1)


@row("Scaler", domain=_DOMAIN)
def scale(
    context: Context, x: Any, *, offset: Sequence[float] = (), scale: Sequence[float] = ()
) -> Any:
    """One number, or one for each feature; in float32."""
    shifts, factors = (np.array(values, np.float32) for values in (offset or [0], scale or [1]))
    return (tensor(x).cast(lm.float32) - lm.asarray(shifts)) * lm.asarray(factors)


@row("Normalizer", domain=_DOMAIN)
def normalize(context: Context, x: Any, *, norm: str = "MAX") -> Any:
    """Rows divided by their largest element, their sum or their length; rows of zeros stay."""
    values = tensor(x).cast(lm.float32)
    norms = {
        "MAX": lambda: lm.max(values, axis=-1, keepdims=True),
        "L1": lambda: lm.sum(lm.abs(values), axis=-1, keepdims=True),
        "L2": lambda: lm.sqrt(lm.sum(values * values, axis=-1, keepdims=True)),
    }
    if norm not in norms:
        raise OnnxError(f"norm {norm!r}")
    divisor = norms[norm]()
    return values / lm.where(divisor == 0, 1, divisor)


@row("Imputer", domain=_DOMAIN)
def impute(
    context: Context, x: Any, *, imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (), replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Any:  # fmt: skip
    """Elements that equal the replaced value, or are NaN where that is, get the imputed value, one
    for all or one for each feature."""
    values = tensor(x)
    if not values.dtype.is_float:
        return lm.where(values == replaced_value_int64, lm.asarray(np.array(imputed_value_int64s)),
                        values)  # fmt: skip
    is_replaced = values == replaced_value_float
    if np.isnan(replaced_value_float):
        is_replaced = lm.isnan(values)
    imputed = lm.asarray(np.array(imputed_value_floats), dtype=values.dtype)
    return lm.where(is_replaced, imputed, values)


@row("FeatureVectorizer", domain=_DOMAIN)
def join_features(context: Context, *inputs: Any, inputdimensions: Sequence[int] = ()) -> Any:
    """(rows, features) of all inputs beside each other; a vector is a matrix of one row."""
    return lm.concat([lm.atleast_2d(tensor(x)).cast(lm.float32) for x in inputs], axis=1)


@row("LinearRegressor", domain=_DOMAIN)
def linear_regression(
    context: Context, x: Any, *, coefficients: Sequence[float], intercepts: Sequence[float] = (),
    targets: int = 1, post_transform: str = "NONE",
) -> Any:  # fmt: skip
    """(rows, features) times coefficients (targets, features)."""
    weights = lm.asarray(np.array(coefficients, np.float32).reshape(targets, -1))
    result = lm.matmul(lm.atleast_2d(tensor(x)).cast(lm.float32), weights.T)
    if intercepts:
        result = result + lm.asarray(np.array(intercepts, np.float32))
    if post_transform not in _TRANSFORM_NAMES:
        raise OnnxError(f"post_transform {post_transform!r}")
    return _TRANSFORMS[_TRANSFORM_NAMES.index(post_transform)](result)


@row("LabelEncoder", domain=_DOMAIN)
def encode_classes(
    context: Context, x: Any, *, classes_strings: Sequence[str], default_int64: int = -1,
    default_string: str = "_Unused",
) -> Any:  # fmt: skip
    """Strings to their places in the list of classes, and places to strings."""
    texts = np.array(classes_strings, object)
    places = np.arange(len(texts))
    if dtype_of(x).kind == "O":
        return _looked_up(context, x, texts, places, default_int64)
    return _looked_up(context, x, places, texts, default_string)


@row("LabelEncoder", since=2, domain=_DOMAIN)
def encode_labels(
    context: Context, x: Any, *, keys_floats: Any = None, keys_int64s: Any = None,
    keys_strings: Any = None, keys_tensor: Any = None, values_floats: Any = None,
    values_int64s: Any = None, values_strings: Any = None, values_tensor: Any = None,
    default_float: float = -0.0, default_int64: int = -1, default_string: str = "_Unused",
    default_tensor: Any = None,
) -> Any:  # fmt: skip
    """The value beside the key that equals an element, or the default."""
    keys = _listed(keys_floats, keys_int64s, keys_strings, keys_tensor)
    values = _listed(values_floats, values_int64s, values_strings, values_tensor)
    if keys.size != values.size:
        raise OnnxError(f"{keys.size} keys for {values.size} values")
    if values_tensor is not None and default_tensor is not None:
        default = default_tensor.reshape(-1)[0]
    else:
        default = {"O": default_string, "f": default_float}.get(values.dtype.kind, default_int64)
    return _looked_up(context, x, keys, values, default)


def _listed(floats: Any, integers: Any, strings: Any, array: Any) -> Array:
    """The list that a node has, with ONNX's dtype of such lists."""
    kinds = ((floats, np.float32), (integers, np.int64), (strings, object))
    for values, dtype in kinds:
        if values is not None:
            return np.array(values, dtype)
    if array is None:
        raise OnnxError("no keys or no values")
    return np.asarray(array).reshape(-1)


def _looked_up(context: Context, x: Any, keys: Array, values: Array, default: Any) -> Any:
    """On the host where there are strings; otherwise each element is compared with all keys."""
    is_text = "O" in (keys.dtype.kind, values.dtype.kind)
    if is_text or lamina_dtype(values.dtype) is None:
        table = dict(zip(keys.tolist(), values.tolist(), strict=True))
        known = context.host(x)
        texts = [table.get(element, default) for element in known.reshape(-1).tolist()]
        return np.array(texts, values.dtype).reshape(known.shape)
    elements = tensor(x)[..., None]
    hits = elements == lm.asarray(keys)
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        hits = hits | (lm.isnan(elements) & lm.asarray(np.isnan(keys)))
    place = lm.argmax(hits.cast(lm.int32), axis=-1)
    labels = lm.take(lm.asarray(values), lm.reshape(place, (-1,)), axis=0)
    return lm.where(lm.any(hits, axis=-1), lm.reshape(labels, place.shape), default)


@dataclass(frozen=True)
class Forest:
    """Trees of one table: the nodes, and behind them the leaves, each of which leads to itself.

    roots: (trees,) places in the table. yes, no: where a node leads to. depth: the most nodes
    on the way to a leaf. members: (nodes, most members), the rest NaN, of nodes of mode 6."""

    roots: Array
    yes: Array
    no: Array
    features: Array
    splits: Array
    modes: Array
    misses: Array  # whether NaN leads to `yes`
    members: Array
    depth: int


_MODES: dict[int, Callable[[Tensor, Tensor], Tensor]] = {
    0: lambda x, split: x <= split, 1: lambda x, split: x < split, 2: lambda x, split: x >= split,
    3: lambda x, split: x > split, 4: lambda x, split: x == split, 5: lambda x, split: x != split,
}  # fmt: skip
_MEMBER = 6


def _depth(roots: Array, yes: Array, no: Array, nodes: int) -> int:
    """Raises OnnxError for nodes that lead outside of the table, or back to themselves."""
    places = np.concatenate([roots, yes, no])
    if places.size and (places.min() < 0 or places.max() >= yes.size):
        raise OnnxError("a node leads to a node or leaf that there is not")
    level = np.unique(roots[roots < nodes])
    depth = 0
    while level.size:
        depth += 1
        if depth > nodes:
            raise OnnxError("a node leads back to itself")
        following = np.unique(np.concatenate([yes[level], no[level]]))
        level = following[following < nodes]
    return depth


def _members(modes: Array, values: Any) -> Array:
    """Of the nodes of mode 6, in their order, the lists of `values`, which end with NaN each."""
    sets = np.flatnonzero(modes == _MEMBER)
    listed = np.zeros(0) if values is None else np.asarray(values).reshape(-1)
    ends = np.flatnonzero(np.isnan(listed))
    if len(ends) != len(sets):
        raise OnnxError(f"{len(ends)} lists of members for {len(sets)} nodes")
    begins = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    most = int((ends - begins).max(initial=0))
    table = np.full((modes.size, most), np.nan)
    for node, begin, end in zip(sets, begins, ends, strict=True):
        table[node, : end - begin] = listed[begin:end]
    return table


def _forest(
    nodes_splits: Any, nodes_featureids: Any, nodes_modes: Any, nodes_truenodeids: Any,
    nodes_falsenodeids: Any, nodes_trueleafs: Any, nodes_falseleafs: Any, tree_roots: Any,
    leaves: int, nodes_missing_value_tracks_true: Any = None, membership_values: Any = None,
) -> Forest:  # fmt: skip
    modes = np.asarray(nodes_modes).reshape(-1).astype(np.int64)
    nodes, itself = modes.size, np.arange(modes.size, modes.size + leaves)
    true_is_leaf, false_is_leaf = np.array(nodes_trueleafs), np.array(nodes_falseleafs)
    to_true, to_false = np.array(nodes_truenodeids), np.array(nodes_falsenodeids)
    yes = np.concatenate([to_true + nodes * (true_is_leaf != 0), itself])
    no = np.concatenate([to_false + nodes * (false_is_leaf != 0), itself])
    roots = np.array(tree_roots)
    # A tree that is one leaf is written as a node both of whose ways lead to that leaf.
    padding = np.zeros(leaves, np.int64)
    misses = np.zeros(nodes) if nodes_missing_value_tracks_true is None else np.array(
        nodes_missing_value_tracks_true)  # fmt: skip
    members = _members(modes, membership_values)
    return Forest(
        roots, yes, no, np.concatenate([nodes_featureids, padding]),
        np.concatenate([np.asarray(nodes_splits).reshape(-1), padding]),
        np.concatenate([modes, padding]), np.concatenate([misses, padding]) != 0,
        np.concatenate([members, np.full((leaves, members.shape[1]), np.nan)]),
        _depth(roots, yes, no, nodes),
    )  # fmt: skip


def _leaves_of(context: Context, forest: Forest, x: Tensor) -> Tensor:
    """The place in the table of the leaf of each row of `x` in each tree: (rows, trees)."""
    def of_node(values: Array, at: Tensor) -> Tensor:
        return lm.take(lm.asarray(values), at, axis=0)

    context.spend(forest.depth * (1 + forest.members.shape[1]))
    rows, trees = x.shape[0], forest.roots.size
    at = lm.reshape(lm.broadcast_to(lm.asarray(forest.roots), (rows, trees)), (-1,))
    for _ in range(forest.depth):
        features = lm.reshape(of_node(forest.features, at), (rows, trees))
        values = lm.reshape(lm.take_along_axis(x, features, axis=1), (-1,))
        splits = of_node(forest.splits.astype(x.dtype.numpy), at)
        mode = of_node(forest.modes, at)
        follows = lm.isnan(values) & of_node(forest.misses, at)
        for kind, compare in _MODES.items():
            if kind in forest.modes:
                follows = follows | ((mode == kind) & compare(values, splits))
        if _MEMBER in forest.modes:
            for members in forest.members.astype(x.dtype.numpy).T:
                follows = follows | ((mode == _MEMBER) & (values == of_node(members, at)))
        at = lm.where(follows, of_node(forest.yes, at), of_node(forest.no, at))
    return lm.reshape(at, (rows, trees))


def _aggregated(weights: Tensor, is_target: Tensor, function: int) -> Tensor:
    """Mean, sum, smallest or largest for 0 to 3, over the trees, of (rows, trees, targets)."""
    if function in (0, 1):
        total = lm.sum(lm.where(is_target, weights, 0), axis=1)
        return total / weights.shape[1] if function == 0 else total
    finite = np.finfo(weights.dtype.numpy)
    if function == 2:
        return lm.min(lm.where(is_target, weights, finite.max), axis=1)
    if function == 3:
        return lm.max(lm.where(is_target, weights, finite.min), axis=1)
    raise OnnxError(f"aggregate_function {function}")


def _softmax_of_nonzero(x: Tensor) -> Tensor:
    exponentials = lm.where(x != 0, lm.exp(x - lm.max(x, axis=1, keepdims=True)), 0)
    total = lm.sum(exponentials, axis=1, keepdims=True)
    return exponentials / lm.where(total == 0, 1, total)


_TRANSFORM_NAMES = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_TRANSFORMS: dict[int, Callable[[Tensor], Tensor]] = {
    0: lambda x: x, 1: lambda x: lm.softmax(x, axis=1), 2: lm.sigmoid, 3: _softmax_of_nonzero,
    4: lambda x: 2**0.5 * lm.erfinv(2 * x - 1),
}  # fmt: skip


@row("TreeEnsemble", since=5, domain=_DOMAIN)
def tree_ensemble(
    context: Context, x: Any, *, leaf_targetids: Sequence[int], leaf_weights: Any, n_targets: int,
    aggregate_function: int = 1, post_transform: int = 0, nodes_hitrates: Any = None, **nodes: Any,
) -> Any:  # fmt: skip
    """(rows, features) to (rows, n_targets). All rows go down all trees at once, a level of the
    deepest tree a step; leaves stay where they are."""
    values = tensor(x)
    forest = _forest(leaves=len(leaf_targetids), **nodes)
    if forest.features.min(initial=0) < 0 or forest.features.max(initial=0) >= values.shape[1]:
        raise OnnxError(f"a node asks for a feature that {values.shape[1]} features have not")
    if post_transform not in _TRANSFORMS:
        raise OnnxError(f"post_transform {post_transform}")
    leaves = _leaves_of(context, forest, values) - (forest.yes.size - len(leaf_targetids))
    flat = lm.reshape(leaves, (-1,))
    shape = (values.shape[0], forest.roots.size, 1)
    array = np.asarray(leaf_weights).reshape(-1)
    weights = lm.reshape(lm.take(lm.asarray(array), flat, axis=0), shape).cast(values.dtype)
    targets = lm.reshape(lm.take(lm.asarray(np.array(leaf_targetids)), flat, axis=0), shape)
    is_target = targets == lm.arange(n_targets)
    spread = lm.broadcast_to(weights, is_target.shape)
    return _TRANSFORMS[post_transform](_aggregated(spread, is_target, aggregate_function))
