"""PyTorch's modules as functions of lamina's tensors.

``torch.export`` makes a graph of a module, whose rows run on lamina's tensors: what comes of a call
is a graph like any other, to be differentiated, compiled by ``lm.jit`` and run on any device.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

import lamina as lm
from lamina.errors import ArgumentError, LaminaError
from lamina.frontend.tensor import Tensor
from lamina.interop.torch import recurrent
from lamina.interop.torch.arrays import DTYPES
from lamina.interop.torch.compiled import UnsupportedOperationError, has_symbols, specialized
from lamina.interop.torch.dynamo import decompositions
from lamina.interop.torch.interpret import interpreted
from lamina.interop.torch.plan import Left, is_number, source_line
from lamina.interop.torch.rows import ROWS

Export = Callable[[Sequence[Any], pytree.TreeSpec, bool], torch.export.ExportedProgram]

_TORCH_DTYPES = {ours: theirs for theirs, ours in DTYPES.items()}
# They check what the graph's tensors say already.
_CHECKS = frozenset({"aten._assert_tensor_metadata.default", "aten._assert_scalar.default"})
_WITH_GRAD = torch.ops.higher_order.wrap_with_set_grad_enabled
_INPUTS = (
    InputKind.USER_INPUT, InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR
)  # fmt: skip
_OUTPUTS = (OutputKind.USER_OUTPUT, OutputKind.BUFFER_MUTATION)


class ImportedFunction(Mapping[str, Tensor]):
    """A function of lamina's tensors, and its parameters and buffers by PyTorch's names.

    As a mapping it is what ``lm.nn.parameters``, ``lm.nn.load_state_dict`` and
    ``safetensors.save`` take: the names are those of the module's ``state_dict()``. The values are
    copies; parameters require derivatives where PyTorch's do. A call takes the module's arguments,
    with tensors or arrays in place of PyTorch's tensors, and returns its results in the same lists
    and dicts; running statistics that it moves are assigned. Dropout draws lamina's random numbers.

    training: the mode of the calls; ``lm.nn.train`` and ``lm.nn.eval`` set it. What
    ``torch.export`` made before stays in the mode that it was exported in."""

    def __init__(self, tensors: Mapping[str, Tensor], export: Export, training: bool) -> None:
        """export: makes the program for leaves of arguments, which are PyTorch's tensors or
        constants, for how the arguments are nested, and a mode."""
        self.training = training
        self._tensors = dict(tensors)
        self._export = export
        self._graphs: dict[Hashable, _Graph] = {}

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises UnsupportedOperationError for operations that lamina has no row for, which are
        those that draw random numbers too, but for dropout."""
        leaves, nesting = pytree.tree_flatten((args, kwargs))
        values = [_as_argument(leaf) for leaf in leaves]
        signature = [
            (value.shape, value.dtype) if isinstance(value, Tensor) else value for value in values
        ]
        key = (self.training, tuple(signature), str(nesting))
        graph = self._graphs.get(key)
        if graph is None:
            examples = [_example(value) if isinstance(value, Tensor) else value for value in values]
            graph = _Graph(self._export(examples, nesting, self.training), examples)
            self._graphs[key] = graph
        return graph(values, self._tensors)


def from_module(module: torch.nn.Module) -> ImportedFunction:
    """The function that a PyTorch module computes. ``torch.export`` takes it apart for each set of
    shapes, dtypes and constants among the arguments, and for each mode, which is the module's at
    first; what that raises is raised."""

    def export(
        examples: Sequence[Any], nesting: pytree.TreeSpec, training: bool
    ) -> torch.export.ExportedProgram:
        args, kwargs = pytree.tree_unflatten(examples, nesting)
        modes = {part: part.training for part in module.modules()}
        if training != module.training:
            module.train(training)
        try:
            return torch.export.export(module, args, kwargs)
        finally:
            for part, mode in modes.items():
                part.training = mode

    return ImportedFunction(_copies(module.state_dict(keep_vars=True)), export, module.training)


def from_exported(program: torch.export.ExportedProgram) -> ImportedFunction:
    """The function of a program that ``torch.export`` made, such as a file that
    ``torch.export.load`` reads. A call raises ArgumentError for arguments of other shapes, dtypes
    or constants than it was exported for; an axis that was exported as dynamic may have any size
    that its ``torch.export.Dim`` allows."""

    def export(
        examples: Sequence[Any], nesting: pytree.TreeSpec, training: bool
    ) -> torch.export.ExportedProgram:
        if nesting != program.call_spec.in_spec:
            raise ArgumentError(f"from_exported: the arguments are nested as {nesting}, not as "
                                f"{program.call_spec.in_spec}")  # fmt: skip
        _check_arguments(program, examples)
        return program

    return ImportedFunction(_copies(program.state_dict), export, False)


class _Graph:
    """The rows of a program, for arguments of fixed shapes."""

    def __init__(self, program: torch.export.ExportedProgram, examples: Sequence[Any]) -> None:
        _detach_without_grad(program)
        program = program.run_decompositions(_decompositions())
        self._signature = program.graph_signature
        self._nesting = program.call_spec.out_spec
        module = program.graph_module
        self._check_kinds()
        if has_symbols(module.graph):
            module = specialized(module, self._arguments(examples, program, program.constants))
        nodes = list(module.graph.nodes)
        self._inputs = [node for node in nodes if node.op == "placeholder"]
        self._calls = [node for node in nodes if node.op not in ("placeholder", "output")]
        (output,) = module.graph.find_nodes(op="output")
        self._outputs: Sequence[Any] = output.args[0]
        self._constants = _copies(program.constants)
        self._calls = [
            node for node in self._calls
            if not is_number(node) and str(node.target) not in _CHECKS
        ]  # fmt: skip
        left = [_left(node, "it has no row") for node in self._calls if not _has_row(node)]
        if left:
            raise _unsupported(left)

    def _check_kinds(self) -> None:
        """Raise UnsupportedOperationError for programs that change their arguments and for what is
        no tensor."""
        inputs = [spec.kind for spec in self._signature.input_specs]
        outputs = [spec.kind for spec in self._signature.output_specs]
        for kind in (*inputs, *outputs):
            if kind not in (*_INPUTS, *_OUTPUTS):
                what = kind.name.lower().replace("_", " ")
                raise UnsupportedOperationError(f"an exported program with a {what}")

    def _arguments(
        self, leaves: Sequence[Any], program: Any, constants: Mapping[str, Any]
    ) -> list[Any]:
        """What the placeholders are, of the leaves of a call and what the program holds."""
        held = {**constants, **program.state_dict}
        rest = iter(leaves)
        return [
            next(rest) if spec.kind is InputKind.USER_INPUT else held[str(spec.target)]
            for spec in self._signature.input_specs
        ]

    def __call__(self, leaves: Sequence[Any], tensors: Mapping[str, Tensor]) -> Any:
        held = {**self._constants, **tensors}
        rest = iter(leaves)
        values: dict[fx.Node, Any] = {}
        for node, spec in zip(self._inputs, self._signature.input_specs, strict=True):
            is_argument = spec.kind is InputKind.USER_INPUT
            values[node] = next(rest) if is_argument else held[str(spec.target)]
        for node in self._calls:
            try:
                values[node] = _result(node, values)
            except LaminaError as error:
                raise _unsupported([_left(node, error.message.partition("\n")[0])]) from error
        results = []
        for value, spec in zip(self._outputs, self._signature.output_specs, strict=True):
            result = values.get(value, value) if isinstance(value, fx.Node) else value
            if spec.kind is OutputKind.BUFFER_MUTATION:
                held[str(spec.target)].assign(result.detach())
            else:
                results.append(result)
        return pytree.tree_unflatten(results, self._nesting)


def _detach_without_grad(program: torch.export.ExportedProgram) -> None:
    """Say in the graph that no derivatives flow through what ``torch.no_grad()`` encloses: a
    decomposition forgets that. The program means the same as before."""
    for part in program.graph_module.modules():
        if not isinstance(part, fx.GraphModule):
            continue
        for node in part.graph.find_nodes(op="call_function", target=_WITH_GRAD):
            if not node.args[0]:
                for result in list(node.users):
                    _detach(part.graph, result, program)
        part.recompile()


def _detach(graph: fx.Graph, result: fx.Node, program: torch.export.ExportedProgram) -> None:
    with graph.inserting_after(result):
        detached = graph.call_function(torch.ops.aten.detach.default, (result,))
    detached.meta = dict(result.meta)
    result.replace_all_uses_with(detached, lambda user: user is not detached)
    if graph is program.graph:
        program.graph_signature.replace_all_uses(result.name, detached.name)


# Operations that a graph of AOTAutograd's has in another way: its derivatives are there already,
# of recurrent layers those of the steps, and PyTorch draws its random numbers.
def _dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, None]:
    return lm.dropout(x, p, training=train is not False), None


_SPECIAL: dict[str, Callable[..., Any]] = {
    "aten.detach.default": lambda x: x.detach(),
    "aten.native_dropout.default": _dropout,
    **recurrent.ROWS,
}


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions of what is neither in the table nor special."""
    return {
        overload: parts
        for overload, parts in decompositions().items() if str(overload) not in _SPECIAL
    }  # fmt: skip


def _has_row(node: fx.Node) -> bool:
    name = str(node.target)
    return name == "<built-in function getitem>" or name in ROWS or name in _SPECIAL


def _result(node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    special = _SPECIAL.get(str(node.target))
    if special is None:
        return interpreted(node, values)
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    return special(*args, **kwargs)


def _left(node: fx.Node, reason: str) -> Left:
    return Left(str(node.target), source_line(node), reason)


def _unsupported(left: Sequence[Left]) -> UnsupportedOperationError:
    operations = "; ".join(map(str, dict.fromkeys(left)))
    return UnsupportedOperationError(f"lamina cannot run {operations}")


def _copies(tensors: Mapping[str, Any]) -> dict[str, Tensor]:
    """Lamina's tensors of the same values; what has two names stays one tensor."""
    copies: dict[int, Tensor] = {}
    for tensor in tensors.values():
        if isinstance(tensor, torch.Tensor) and id(tensor) not in copies:
            values = tensor.detach().resolve_conj().resolve_neg()
            copies[id(tensor)] = lm.from_dlpack(values, copy=True)
            copies[id(tensor)].requires_grad = tensor.requires_grad
    return {name: copies[id(tensor)] for name, tensor in tensors.items() if id(tensor) in copies}


def _as_argument(leaf: Any) -> Any:
    """A tensor of an array, lamina's or not; a constant as it is."""
    return Tensor(leaf) if hasattr(leaf, "__dlpack__") and not isinstance(leaf, Tensor) else leaf


def _example(tensor: Tensor) -> torch.Tensor:
    """A tensor of PyTorch's that an export may read: its values mean nothing."""
    return torch.zeros(tuple(tensor.shape), dtype=_TORCH_DTYPES[tensor.dtype])


def _check_arguments(program: torch.export.ExportedProgram, examples: Sequence[Any]) -> None:
    """Raise ArgumentError where the program was not exported for such arguments."""
    specs = program.graph_signature.input_specs
    places = zip(program.graph.find_nodes(op="placeholder"), specs, strict=True)
    users = [(node, spec.arg) for node, spec in places if spec.kind is InputKind.USER_INPUT]
    sizes: dict[Any, int] = {}
    for number, ((node, argument), example) in enumerate(zip(users, examples, strict=True)):
        what = f"from_exported: argument {number}"
        if isinstance(argument, ConstantArgument):
            if argument.value != example:
                raise ArgumentError(f"{what} is {example!r}, not {argument.value!r}")
            continue
        fake = node.meta["val"]
        if not isinstance(example, torch.Tensor) or example.dtype != fake.dtype:
            raise ArgumentError(f"{what} is {example!r}, not a tensor of {fake.dtype}")
        if len(example.shape) != len(fake.shape) or not all(
            _fits(size, said, program, sizes)
            for size, said in zip(example.shape, fake.shape, strict=True)
        ):
            raise ArgumentError(f"{what} has shape {tuple(example.shape)}, not {(*fake.shape,)}")


def _fits(
    size: int, said: Any, program: torch.export.ExportedProgram, sizes: dict[Any, int]
) -> bool:
    """Whether a size is the one that was exported, or one that a symbol may have. `sizes`: those
    that symbols have; a new one is added."""
    if not isinstance(said, torch.SymInt):
        return bool(size == said)
    symbol = said.node.expr
    limits = program.range_constraints.get(symbol)
    is_allowed = limits is None or bool(limits.lower <= size <= limits.upper)
    return is_allowed and sizes.setdefault(symbol, size) == size
