"""Models as functions: a walk over the nodes of a graph, whose rows run on lamina's tensors.

What comes of a call is a lazy graph like any other: to be differentiated, compiled by ``lm.jit``
and run on any device. Values that shape arithmetic needs stay NumPy arrays on the host.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, defs

from lamina.errors import CompileError, LaminaError, MissingNameError, VerifyError, message_of
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.checks import definition_of
from lamina.interop.onnx.errors import OnnxError, RowError
from lamina.interop.onnx.interface import argument_of, described, result_of, type_of
from lamina.interop.onnx.model import (
    Identity,
    Storage,
    called,
    copied,
    detached,
    functions_of,
    parse_model,
    read_model,
    versions,
)
from lamina.interop.onnx.rows import Context, find_row, without_row
from lamina.interop.onnx.values import check_size, held

Attributes = Mapping[str, Any]

# Nodes that a call runs, each as often as loops and functions make it, and steps that rows unroll:
# a file of 200 bytes may ask for a loop of 2**62 turns.
MAX_STEPS = 2**18

# What Python and NumPy raise for numbers of a model that do not fit, such as an axis or a size.
_OF_A_MODEL = (ArithmeticError, MemoryError, RecursionError, LookupError, ValueError)


def load(model: str | os.PathLike[str] | bytes | onnx.ModelProto) -> Model:
    """The function of a model: a file's path, a file's content, or a ModelProto. External data is
    read from the folder of the path. Raises OnnxError for what is no model, for data outside of
    that folder, and for functions that expand beyond bounds."""
    if isinstance(model, onnx.ModelProto):
        return _checked_model(model, Storage(None))
    if isinstance(model, bytes):
        return _checked_model(parse_model(model, "the content"), Storage(None))
    return _checked_model(read_model(model), Storage(model))


def _checked_model(proto: onnx.ModelProto, storage: Storage) -> Model:
    try:
        return Model(proto, storage)
    except _OF_A_MODEL as error:
        if isinstance(error, LaminaError):
            raise
        raise OnnxError(f"the model cannot be read: {type(error).__name__}: {error}") from error


class Model(Mapping[str, Tensor]):
    """A model of ONNX as a function of tensors, and a mapping of its parameters: the initializers
    that are tensors, by name.

    inputs: the names that a call has to give values for. outputs: the names of the results. types:
    of all inputs by name, those too that the model has values for.
    """

    def __init__(self, proto: onnx.ModelProto, storage: Storage) -> None:
        self._library = Library(functions_of(proto), storage)
        self._graph = Graph(proto.graph, self._library, versions(proto.opset_import))
        self.types = {entry.name: copied(entry.type) for entry in proto.graph.input}
        constants = self._graph.initializers
        self.inputs = tuple([name for name in self.types if name not in constants])
        self.outputs = tuple(self._graph.outputs)

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __getitem__(self, name: str) -> Tensor:
        value = self._graph.initializers[name]
        if not isinstance(value, Tensor):
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        initializers = self._graph.initializers.items()
        return iter([name for name, value in initializers if isinstance(value, Tensor)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """The output, or a tuple of several. Arguments are tensors or arrays, in the order of
        `inputs` or by name; by name, an initializer that is an input too may be replaced. Strings
        and dtypes that lamina lacks are NumPy arrays, sequences are lists. Raises OnnxError for
        arguments that do not fit, and for nodes that lamina cannot run."""
        if len(args) > len(self.inputs):
            raise OnnxError(f"{len(args)} arguments for the inputs {', '.join(self.inputs)}")
        given = dict(zip(self.inputs, args, strict=False))
        twice = [name for name in kwargs if name in given]
        unknown = [name for name in kwargs if name not in self.types]
        if twice or unknown:
            raise OnnxError(f"arguments {(twice + unknown)!r}; inputs are {', '.join(self.types)}")
        given.update(kwargs)
        missing = [name for name in self.inputs if name not in given]
        if missing:
            raise OnnxError(f"no value for the inputs {', '.join(missing)}")
        values = {
            name: argument_of(name, value, self.types[name]) for name, value in given.items()
        }
        results = [result_of(value) for value in self._graph.run(Scope(values, Budget()))]
        return results[0] if len(results) == 1 else tuple(results)


@dataclass
class Budget:
    """What is left of the steps of a call, which all of its graphs share."""

    left: int = field(default_factory=lambda: MAX_STEPS)

    def spend(self, steps: int = 1) -> None:
        """Raises OnnxError where a call takes more than its steps."""
        self.left -= steps
        if self.left < 0:
            raise OnnxError(
                f"the model takes more than {MAX_STEPS} steps: nodes, turns of loops and steps of "
                "recurrent nets"
            )


@dataclass
class Scope:
    """The values of a graph by name, before its constants; other names are those of the graph
    around. attributes: of the call of a function, for the nodes of its body that refer to them."""

    values: dict[str, Any]
    budget: Budget
    outer: Scope | None = None
    attributes: Attributes = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            for known in (scope.values, scope.constants):
                if name in known:
                    return known[name]
            scope = scope.outer
        raise OnnxError(f"no node before gives a value to {name!r}")


@dataclass
class Subgraph:
    """A graph that is a node's attribute: a function of its inputs, which may read what is in the
    graphs around it."""

    graph: Graph
    scope: Scope

    @property
    def inputs(self) -> Sequence[str]:
        return self.graph.inputs

    @property
    def output_types(self) -> Sequence[onnx.TypeProto]:
        """As the graph says; types and sizes may be missing."""
        return self.graph.output_types

    def __call__(self, *values: Any) -> list[Any]:
        if len(values) > len(self.graph.inputs):
            raise OnnxError(f"{len(values)} values for a graph of {len(self.graph.inputs)} inputs")
        own = dict(zip(self.graph.inputs, values, strict=False))
        self.scope.budget.spend()
        return self.graph.run(Scope(own, self.scope.budget, self.scope, self.scope.attributes))


class Library:
    """What all graphs of a model share: its functions, and the files of its tensors."""

    def __init__(
        self, functions: Mapping[Identity, onnx.FunctionProto], storage: Storage
    ) -> None:
        self.storage = storage
        self._functions = {name: copied(function) for name, function in functions.items()}
        self._bodies: dict[Identity, Function] = {}

    def function(self, name: Identity) -> Function | None:
        """The model's function of that name."""
        if name not in self._functions:
            return None
        if name not in self._bodies:
            self._bodies[name] = Function(self._functions[name], self)
        return self._bodies[name]

    def body_of(
        self, node: Node, inputs: Sequence[Any], attributes: Attributes
    ) -> Function | None:
        """The body that ONNX's definition of an operator has for such inputs."""
        try:
            schema = defs.get_schema(node.operator, node.version, node.domain)
        except defs.SchemaError:
            return None
        content = _content_of_body(schema, node, inputs, attributes)
        if not content:
            return None
        proto = onnx.FunctionProto()
        proto.ParseFromString(content)
        if "" not in versions(proto.opset_import):  # FlexAttention's body leaves it out
            proto.opset_import.add(domain="", version=defs.onnx_opset_version())
        body = Function(proto, self)
        for name, attribute in schema.attributes.items():
            if attribute.default_value.type:
                body.defaults[name] = attribute.default_value
        return body


def _content_of_body(
    schema: defs.OpSchema, node: Node, inputs: Sequence[Any], attributes: Attributes
) -> bytes:
    """The body of an operator as a serialized FunctionProto; empty where it has none."""
    version = _latest(schema.function_opset_versions, node.version)
    if version:
        return bytes(schema.get_function_with_opset_version(version))
    version = _latest(schema.context_dependent_function_opset_versions, node.version)
    if not version:
        return b""
    types = [type_of(value).SerializeToString() for value in inputs]
    content = node.resolved(attributes).SerializeToString()
    try:
        return bytes(
            schema.get_context_dependent_function_with_opset_version(version, content, types)
        )
    except Exception as error:  # of onnx's C++, which refuses nodes by several types
        raise OnnxError(f"onnx makes no body of it for such inputs: {error}") from error


def _latest(versions: Sequence[int], bound: int) -> int:
    """The last of the versions that bodies are written in, up to `bound`; 0 where there is none."""
    return max([version for version in versions if version <= bound], default=0)


class Function:
    """A function's body, to be called with attributes."""

    def __init__(self, proto: onnx.FunctionProto, library: Library) -> None:
        graph = onnx.GraphProto()
        graph.node.extend(proto.node)
        graph.input.extend([onnx.ValueInfoProto(name=name) for name in proto.input])
        graph.output.extend([onnx.ValueInfoProto(name=name) for name in proto.output])
        self._graph = Graph(graph, library, versions(proto.opset_import))
        self._library = library
        self.defaults = {attribute.name: attribute for attribute in proto.attribute_proto}

    def __call__(
        self, inputs: Sequence[Any], attributes: Attributes, budget: Budget
    ) -> list[Any]:
        if len(inputs) > len(self._graph.inputs):
            raise OnnxError(f"{len(inputs)} values for {len(self._graph.inputs)} inputs")
        defaults = {
            name: decoded(attribute, self._library.storage)
            for name, attribute in self.defaults.items() if name not in attributes
        }  # fmt: skip
        absent = [None] * (len(self._graph.inputs) - len(inputs))
        values = dict(zip(self._graph.inputs, [*inputs, *absent], strict=True))
        scope = Scope(values, budget, None, {**defaults, **attributes})
        self._graph.compute(scope)
        # A body for one set of outputs leaves the others out.
        known = {**scope.constants, **scope.values}
        return [known.get(name) for name in self._graph.outputs]


@dataclass(frozen=True)
class Node:
    """A node of a graph. references: attributes whose values are those of the function around,
    which may call them otherwise. graphs: the attributes that are graphs."""

    proto: onnx.NodeProto
    index: int
    operator: str
    domain: str
    version: int
    attributes: Attributes
    references: Mapping[str, str]
    graphs: Mapping[str, Any]

    def __str__(self) -> str:
        name = f" {self.proto.name!r}" if self.proto.name else ""
        domain = f"{self.domain}." if self.domain else ""
        return f"node {self.index}{name}, {domain}{self.operator} of version {self.version}"

    def resolved(self, attributes: Attributes) -> onnx.NodeProto:
        """The node with the values of `attributes` in place of references to a function's."""
        proto = onnx.NodeProto()
        proto.CopyFrom(self.proto)
        del proto.attribute[:]
        for attribute in self.proto.attribute:
            if not attribute.ref_attr_name:
                proto.attribute.append(attribute)
            elif attribute.name in attributes:
                value = attributes[attribute.name]
                proto.attribute.append(onnx.helper.make_attribute(attribute.name, value))
        return proto

    def attributes_in(self, scope: Scope) -> dict[str, Any]:
        """The attributes' values; what the call of the function leaves out is absent here too."""
        values = dict(self.attributes)
        for name, referred in self.references.items():
            if referred in scope.attributes:
                values[name] = scope.attributes[referred]
        for name, graphs in self.graphs.items():
            if isinstance(graphs, Graph):
                values[name] = Subgraph(graphs, scope)
            else:
                values[name] = [Subgraph(graph, scope) for graph in graphs]
        return values


class Graph:
    """The nodes of a graph, and its constants, decoded once."""

    def __init__(
        self, proto: onnx.GraphProto, library: Library, imports: Mapping[str, int]
    ) -> None:
        self._library = library
        self._imports = imports
        self.inputs = [entry.name for entry in proto.input]
        self.outputs = [entry.name for entry in proto.output]
        self.output_types = [copied(entry.type) for entry in proto.output]
        self.initializers = {
            tensor.name: held(library.storage.array(tensor)) for tensor in proto.initializer
        }
        for sparse in proto.sparse_initializer:
            self.initializers[sparse.values.name] = held(dense_array(sparse, library.storage))
        nodes = [self._located_node(index, node) for index, node in enumerate(proto.node)]
        self._constants = dict(self.initializers)
        self._nodes = []
        for node in nodes:
            if node.operator == "Constant" and not node.references and node.proto.output:
                value = self._run_node(node, Scope({}, Budget()))[0]
                is_array = isinstance(value, np.ndarray)
                self._constants[node.proto.output[0]] = held(value) if is_array else value
            else:
                self._nodes.append(node)

    def run(self, scope: Scope) -> list[Any]:
        """The outputs; `scope` has the inputs, and gets the values of all nodes."""
        self.compute(scope)
        return [scope[name] for name in self.outputs]

    def compute(self, scope: Scope) -> None:
        """Give `scope`, which has the inputs, the values of all nodes."""
        scope.constants = self._constants
        for node in self._nodes:
            for name, value in zip(node.proto.output, self._run_node(node, scope), strict=False):
                if name:
                    scope.values[name] = value

    def _run_node(self, node: Node, scope: Scope) -> Sequence[Any]:
        inputs: list[Any] = []
        try:
            scope.budget.spend()
            inputs += [scope[name] if name else None for name in node.proto.input]
            outputs = self._outputs(node, inputs, scope)
            if len(outputs) < len(node.proto.output):
                raise OnnxError(f"it has {len(outputs)} outputs, not {len(node.proto.output)}")
            for value in outputs:
                check_size(value)
        except Exception as error:  # rows meet what hostile files ask for
            arguments = ", ".join([described(value) for value in inputs])
            raise _located(f"{node}, of ({arguments})", error) from error
        return outputs

    def _outputs(self, node: Node, inputs: Sequence[Any], scope: Scope) -> Sequence[Any]:
        """What a node's function, row or body computes: a function of the model's comes first."""
        attributes = node.attributes_in(scope)
        function = self._library.function(called(node.proto))
        if function is not None:
            return function(inputs, attributes, scope.budget)
        definition = definition_of(node.operator, node.version, node.domain)
        if definition is not None:
            definition.check_inputs(inputs)
            definition.check_references(attributes, list(node.references))
        row = find_row(node.operator, node.version, node.domain)
        if row is None:
            body = self._library.body_of(node, inputs, attributes)
            if body is None:
                raise OnnxError(without_row(node.operator, node.domain))
            return body(inputs, attributes, scope.budget)
        context = Context(
            node.version, node.operator, node.proto.name, len(node.proto.output),
            scope.__getitem__, scope.budget.spend,
        )  # fmt: skip
        try:
            inspect.signature(row).bind(context, *inputs, **attributes)
        except TypeError as error:
            raise OnnxError(f"{error} ({', '.join(attributes)})") from None
        value = row(context, *inputs, **attributes)
        return value if isinstance(value, tuple) else (value,)

    def _located_node(self, index: int, proto: onnx.NodeProto) -> Node:
        try:
            return self._node(index, proto)
        except Exception as error:  # files say anything
            raise _located(f"node {index}, {proto.op_type}", error) from error

    def _node(self, index: int, proto: onnx.NodeProto) -> Node:
        domain, operator, _ = called(proto)
        plain, references, graphs = dict[str, Any](), dict[str, str](), dict[str, Any]()
        for attribute in proto.attribute:
            if attribute.ref_attr_name:
                references[attribute.name] = attribute.ref_attr_name
            elif attribute.type == AttributeProto.GRAPH:
                graphs[attribute.name] = Graph(attribute.g, self._library, self._imports)
            elif attribute.type == AttributeProto.GRAPHS:
                graphs[attribute.name] = [
                    Graph(graph, self._library, self._imports) for graph in attribute.graphs
                ]
            else:
                plain[attribute.name] = decoded(attribute, self._library.storage)
        version = self._imports.get(domain, 0)
        if self._library.function(called(proto)) is None:
            if not version:
                raise OnnxError(f"the model imports no operators of {domain!r}")
            definition = definition_of(operator, version, domain)
            if definition is not None:
                definition.check_attributes(proto)
        own = detached(proto, find_row(operator, version, domain) is None)
        return Node(own, index, operator, domain, version, plain, references, graphs)


def _located(place: str, error: Exception) -> OnnxError:
    """`error` with the node that it is of. An error that no model should cause is a RowError."""
    if isinstance(error, OnnxError) and error.is_located:
        return error
    reason = message_of(error)
    located: OnnxError
    if isinstance(error, OnnxError):
        located = OnnxError(f"{place}: {reason}")
    elif _is_of_a_model(error):
        located = OnnxError(f"{place}: {type(error).__name__}: {reason}")
    else:
        located = RowError(
            f"{place}: {type(error).__name__}: {reason}; this is a defect of lamina, please "
            "report it with the model"
        )
    located.is_located = True
    return located


def _is_of_a_model(error: Exception) -> bool:
    """Whether a model's numbers can be the cause."""
    if isinstance(error, LaminaError):
        return not isinstance(error, (VerifyError, CompileError, MissingNameError))
    return isinstance(error, _OF_A_MODEL)


def decoded(attribute: AttributeProto, storage: Storage) -> Any:
    """An attribute's value: a number, a string, an array, a type, or a list of them."""
    kind = attribute.type
    if kind == AttributeProto.STRING:
        return attribute.s.decode("utf-8", "replace")
    if kind == AttributeProto.STRINGS:
        return [text.decode("utf-8", "replace") for text in attribute.strings]
    if kind == AttributeProto.TENSOR:
        return storage.array(attribute.t)
    if kind == AttributeProto.TENSORS:
        return [storage.array(tensor) for tensor in attribute.tensors]
    if kind == AttributeProto.SPARSE_TENSOR:
        return dense_array(attribute.sparse_tensor, storage)
    if kind in (AttributeProto.FLOATS, AttributeProto.INTS):
        return list(attribute.floats if kind == AttributeProto.FLOATS else attribute.ints)
    if kind not in (AttributeProto.FLOAT, AttributeProto.INT, AttributeProto.TYPE_PROTO):
        raise OnnxError(f"attribute {attribute.name!r} of type {kind}")
    return onnx.helper.get_attribute_value(attribute)


def dense_array(sparse: onnx.SparseTensorProto, storage: Storage) -> np.ndarray[Any, Any]:
    """A sparse tensor with its zeros. Raises OnnxError for places outside of its sizes."""
    values, places = storage.array(sparse.values), storage.array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    try:
        if places.ndim == 1:
            dense.reshape(-1)[places] = values
        else:
            dense[tuple(places.T)] = values
    except (IndexError, ValueError) as error:
        raise OnnxError(f"sparse tensor {sparse.values.name!r}: {error}") from error
    return dense
