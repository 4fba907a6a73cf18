"""Derivatives of tensors and of functions of tensors: graphs again, which nothing has run yet."""

from collections.abc import Callable, Sequence, Set
from typing import Any

from lamina.errors import GradientError
from lamina.frontend import realize as memory
from lamina.frontend.arguments import sizes_of
from lamina.frontend.session import SESSION, during, tracers
from lamina.frontend.tensor import Tensor, as_tensor, common_device
from lamina.graph import autodiff
from lamina.ir.build import full
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op

__all__ = ["grad", "gradient", "value_and_grad"]


def gradient(y: Tensor, wrt: Tensor | Sequence[Tensor], seed: Tensor | None = None) -> list[Tensor]:
    """The derivative of y for each tensor of `wrt`, or for the only one, in its shape; zeros where
    y ignores it. y is a single value, unless `seed` weighs its elements.

    Equal results of equal operands are one value, and so is what an operation returned unchanged:
    the derivative for one of them is that for all. Raises GradientError where `wrt` has two of
    them. Tensors that require their derivative, and arguments of what `grad` returns, are told
    apart."""
    wrt = [wrt] if isinstance(wrt, Tensor) else wrt
    common_device("gradient", y, *wrt)
    adjoints = _adjoints(y, wrt, seed)
    _refuse_equal(wrt, adjoints)
    return [Tensor.of(full(one.shape, 0, one.dtype) if node is None else node, one.device)
            for one, node in zip(wrt, adjoints, strict=True)]  # fmt: skip


def _refuse_equal(wrt: Sequence[Tensor], adjoints: Sequence[Node | None]) -> None:
    """Raise GradientError where y needs a value that two tensors of `wrt` name: nobody knows which
    of them was used."""
    first: dict[Node, int] = {}  # the place of the first tensor of each node
    for place, (tensor, adjoint) in enumerate(zip(wrt, adjoints, strict=True)):
        before = first.setdefault(tensor.node, place)
        if adjoint is not None and wrt[before] is not tensor:
            raise GradientError(
                f"wrt[{before}] and wrt[{place}] are two names of one value, whose "
                f"derivatives cannot be told apart; set requires_grad=True on both before they "
                f"are used, or take lm.grad(f, argnums=(0, 1)) of a function of them",
                operation="gradient",
            )


def backward(y: Tensor, seed: Tensor | None = None) -> None:
    """Add the derivative of y to `grad` of every tensor that y needs and that requires it."""
    leaves = SESSION.leaves_of(toposort([y.node]))
    wanted = [tensor for tensor in leaves if tensor.device == y.device]
    adjoints = _adjoints(y, wanted, seed)
    if all(node is None for node in adjoints):
        raise GradientError(
            "y needs no tensor that was made with requires_grad=True", operation="backward"
        )
    for tensor, node in zip(wanted, adjoints, strict=True):
        if node is not None:
            new = Tensor.of(node, tensor.device)
            tensor.grad = new if tensor.grad is None else tensor.grad + new


def _adjoints(y: Tensor, wrt: Sequence[Tensor], seed: Tensor | None) -> Sequence[Node | None]:
    """The adjoints of `wrt`: those of an earlier graph that differed in its leaves alone, unless y
    is being traced, or a result on the way to it is in memory, where adjoints may read it."""
    nodes = [tensor.node for tensor in (y, *wrt)]
    SESSION.differentiate(nodes[1:])
    if seed is not None:
        nodes.append(seed.cast(y.dtype).node)
    order = toposort(nodes)
    cone = autodiff.depends_on([tensor.node for tensor in wrt], order)
    inner = cone.difference(nodes[:1])
    in_memory = any(node.src and memory.home_of(node) for node in inner)
    if tracers.get() is not None or in_memory:
        return _differentiate(nodes, len(wrt), order, cone)
    leaves = [node for node in order if node.op is Op.BUFFER or _is_read(node, cone)]
    sinks = memory.over(nodes, leaves)

    def make() -> Sequence[Node | None]:
        return _differentiate(sinks, len(wrt), order, cone)

    return memory.called((len(wrt), *sinks), leaves, make)


def _is_read(node: Node, cone: Set[Node]) -> bool:
    """Whether `node` is not on the way and is in memory, or is a stretch of what is there."""
    if node in cone:
        return False
    return memory.home_of(node) is not None or memory.stretch(node) is not None


def _differentiate(
    nodes: Sequence[Node], count: int, order: Sequence[Node], cone: Set[Node]
) -> Sequence[Node | None]:
    """The adjoints of `count` nodes; `nodes`: what is differentiated, these, and a seed if there is
    one."""
    # What is not on the way stays as it is: by its nodes a trace knows what it captured.
    unchanged = {node: node for node in order if node not in cone}
    y, *others = memory.opened_as_computed(nodes, unchanged)
    return autodiff.gradient(y, others[:count], *others[count:])


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns what `f` returns and its derivative for the arguments `argnums`.

    Arguments are tensors, arrays, floats, or dicts, lists and tuples of them; a derivative has the
    same form, with None for whatever else is there, such as integers. With `has_aux`, `f` returns a
    pair and only the first part is differentiated."""
    positions = sizes_of("grad", argnums, signed=True, argument="argnums")

    def differentiated(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        if not all(-len(args) <= place < len(args) for place in positions):
            raise GradientError(
                f"argnums {argnums} of {len(args)} positional arguments", operation="grad"
            )
        leaves = _Leaves()
        inner = list(args)
        for place in positions:
            inner[place] = map_tree(leaves.replace, args[place], object)
        with during(tracers, tracers.get() or frozenset()):
            result = f(*inner, **kwargs)
        y = result[0] if has_aux else result
        if not isinstance(y, Tensor):
            raise GradientError(
                f"the function returned {type(y).__name__}, not a tensor", operation="grad"
            )
        slopes = dict(zip(map(id, leaves.wrt), gradient(y, leaves.wrt), strict=True))
        grads = [
            map_tree(lambda value: slopes.get(id(value)), inner[place], object)
            for place in positions
        ]
        parts = grads[0] if isinstance(argnums, int) else tuple(grads)
        return map_tree(leaves.opened, result), map_tree(leaves.opened, parts)

    return differentiated


class _Leaves:
    """Leaves in the place of the float arguments of a function: a derivative for one is not one for
    what else has the same node."""

    def __init__(self) -> None:
        self.wrt: list[Tensor] = []
        self.contents: dict[Node, Node] = {}  # of the arguments, by their leaves

    def replace(self, value: Any) -> Any:
        """A leaf of its own for floats; anything else as it is."""
        x = as_tensor(value) if isinstance(value, float) or hasattr(value, "__array__") else None
        if x is None or not x.dtype.is_float:
            return value
        leaf = Tensor.of(memory.leaf(x.node, x.device), x.device)
        self.wrt.append(leaf)
        self.contents[leaf.node] = x.node
        SESSION.differentiate([x.node])
        return leaf

    def opened(self, x: Tensor) -> Tensor:
        """`x` without the leaves, so that an enclosing derivative sees through them."""
        (node,) = memory.replaced_as_computed([x.node], self.contents)
        return x if node is x.node else Tensor.of(node, x.device)


def grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the derivative of `f`, with `has_aux` beside the second part of what
    `f` returns; see `value_and_grad`."""
    both = value_and_grad(f, argnums, has_aux)

    def differentiated(*args: Any, **kwargs: Any) -> Any:
        result, grads = both(*args, **kwargs)
        return (grads, result[1]) if has_aux else grads

    return differentiated


def map_tree(function: Callable[[Any], Any], tree: Any, kind: type = Tensor) -> Any:
    """The same dicts, lists and tuples with `function` applied to every `kind`, in order."""
    if isinstance(tree, dict):
        return {key: map_tree(function, value, kind) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        parts = [map_tree(function, value, kind) for value in tree]
        if hasattr(tree, "_fields"):
            return type(tree)(*parts)
        return tuple(parts) if isinstance(tree, tuple) else parts
    return function(tree) if isinstance(tree, kind) else tree
