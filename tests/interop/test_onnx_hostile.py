"""Models that break ONNX's rules, or ask for more than there is: errors that name the node."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from lamina.errors import OutOfMemoryError  # noqa: E402
from lamina.interop.onnx import OnnxError, graph, load, rows, values  # noqa: E402
from lamina.interop.onnx.errors import RowError  # noqa: E402

X = np.ones((2, 3), np.float32)


def model_of(*nodes: Any, opset: int = 21, functions: Any = (), initializers: Any = ()) -> Any:
    """A model of an input x, floats of any shape, and an output y."""
    whole = helper.make_graph(
        list(nodes), "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], list(initializers),
    )  # fmt: skip
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(whole, opset_imports=imports, functions=list(functions))


def refused(model: Any, match: str) -> OnnxError:
    """The error of loading a model, or of calling it with x."""
    with pytest.raises(OnnxError, match=match) as caught:
        load(model)(X)
    return caught.value


def test_attributes_have_the_types_of_the_definition() -> None:
    node = helper.make_node("Transpose", ["x"], ["y"], perm=1.5)
    refused(model_of(node), "node 0, Transpose: attribute 'perm' is of type FLOAT, not INTS")
    unknown = helper.make_node("Relu", ["x"], ["y"], slope=2)
    refused(model_of(unknown), "node 0, Relu: it has no attribute 'slope'")


def test_attributes_of_a_call_have_the_types_of_the_definition() -> None:
    inner = helper.make_node("Transpose", ["a"], ["b"])
    reference = inner.attribute.add()
    reference.name, reference.ref_attr_name = "perm", "order"
    function = helper.make_function(
        "own", "turned", ["a"], ["b"], [inner], [helper.make_opsetid("", 21)], ["order"]
    )
    call = helper.make_node("turned", ["x"], ["y"], domain="own", order=[1, 0])
    assert load(model_of(call, functions=[function]))(X).shape == (3, 2)
    wrong = helper.make_node("turned", ["x"], ["y"], domain="own", order="ab")
    match = "Transpose of version 21, .*attribute 'perm' of the call is not of type INTS"
    refused(model_of(wrong, functions=[function]), match)


def test_inputs_have_the_types_of_the_definition() -> None:
    sequence = helper.make_node("SequenceConstruct", ["x"], ["s"])
    refused(model_of(sequence, helper.make_node("Relu", ["s"], ["y"])), "'X' is a sequence")
    text = helper.make_tensor("t", TensorProto.STRING, [1], [b"text"])
    node = helper.make_node("Add", ["x", "t"], ["y"])
    refused(model_of(node, initializers=[text]), "node 0, Add .*'B' has elements of object")
    refused(model_of(helper.make_node("MatMul", ["x", ""], ["y"])), "'B' is absent")
    refused(model_of(helper.make_node("MatMul", ["x"], ["y"])), "1 inputs, not 2")
    refused(model_of(helper.make_node("Max", [], ["y"])), "0 inputs, not 1")
    refused(model_of(helper.make_node("Relu", ["x", "x"], ["y"])), "more than 1 inputs")


@pytest.mark.parametrize("opset", [0, -3, 2**40, 1000])
def test_versions_that_onnx_lacks_are_refused(opset: int) -> None:
    refused(model_of(helper.make_node("Relu", ["x"], ["y"]), opset=opset), "operators of ''")


def endless_loop(turns: int) -> Any:
    """A loop of `turns` turns of one node each."""
    kinds = [("i", TensorProto.INT64, []), ("go", TensorProto.BOOL, []),
             ("v", TensorProto.FLOAT, None)]  # fmt: skip
    body = helper.make_graph(
        [helper.make_node("Identity", ["v"], ["w"])], "body",
        [helper.make_tensor_value_info(*kind) for kind in kinds],
        [helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("w", TensorProto.FLOAT, None)],
    )  # fmt: skip
    count = helper.make_tensor("turns", TensorProto.INT64, [], [turns])
    node = helper.make_node("Loop", ["turns", "", "x"], ["y"], body=body)
    return model_of(node, initializers=[count])


def test_a_call_has_a_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(endless_loop(7))(X).tolist() == X.tolist()
    monkeypatch.setattr(graph, "MAX_STEPS", 100)
    refused(endless_loop(2**62), "Identity of version 21, .*more than 100 steps")


def test_recurrent_nets_take_a_step_for_each_of_theirs() -> None:
    sizes = helper.make_tensor("sizes", TensorProto.INT64, [3], [graph.MAX_STEPS + 1, 1, 3])
    weights = [numpy_helper.from_array(np.ones((1, n, 3), np.float32), name)
               for name, n in (("w", 3), ("r", 3))]  # fmt: skip
    row = helper.make_tensor("row", TensorProto.INT64, [1], [0])
    model = model_of(
        helper.make_node("Gather", ["x", "row"], ["one"]),
        helper.make_node("Expand", ["one", "sizes"], ["long"]),
        helper.make_node("RNN", ["long", "w", "r"], ["", "y"], hidden_size=3),
        initializers=[sizes, row, *weights],
    )
    refused(model, f"RNN of version 21, .*more than {graph.MAX_STEPS} steps")


def test_values_beyond_the_memory_are_refused() -> None:
    sizes = helper.make_tensor("sizes", TensorProto.INT64, [3], [2**30, 2, 3])
    refused(model_of(helper.make_node("Expand", ["x", "sizes"], ["y"]), initializers=[sizes]),
            "node 0, Expand .*more than the")  # fmt: skip


def test_tables_beyond_bounds_are_refused() -> None:
    scales = helper.make_tensor("scales", TensorProto.FLOAT, [2], [1.0, 1e12])
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    refused(model_of(node, initializers=[scales]), "node 0, Resize .*is beyond")


def test_a_defect_of_a_row_is_no_mistake_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(context: Any, x: Any) -> Any:
        return x.no_such_name

    rows.find_row("Relu", 21, "")
    monkeypatch.setitem(rows._ENTRIES, ("", "Relu"), [rows.Entry(1, broken)])
    error = refused(model_of(helper.make_node("Relu", ["x"], ["y"])), "defect of lamina")
    assert isinstance(error, RowError)
    assert isinstance(error.__cause__, AttributeError)


@pytest.mark.parametrize("error", [IndexError("place"), OutOfMemoryError("no room")])
def test_numbers_of_a_model_are_its_mistake(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(context: Any, x: Any) -> Any:
        raise error

    rows.find_row("Relu", 21, "")
    monkeypatch.setitem(rows._ENTRIES, ("", "Relu"), [rows.Entry(1, failing)])
    caught = refused(model_of(helper.make_node("Relu", ["x"], ["y"])), "node 0, Relu of version 21")
    assert not isinstance(caught, RowError)


def doubling(levels: int) -> Any:
    """Functions that each call the one before twice."""
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    functions = []
    for level in range(levels):
        name, domain = (f"f{level - 1}", "own") if level else ("Neg", "")
        calls = [helper.make_node(name, [a], [b], domain=domain) for a, b in ("ab", "bc")]
        functions.append(helper.make_function("own", f"f{level}", ["a"], ["c"], calls, imports))
    call = helper.make_node(f"f{levels - 1}", ["x"], ["y"], domain="own")
    return model_of(call, functions=functions)


def test_functions_that_double_are_refused_before_they_run() -> None:
    assert load(doubling(4))(X).tolist() == X.tolist()
    refused(doubling(25), "the model has more than")


def test_functions_that_call_one_another_in_a_circle_are_refused() -> None:
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function("own", name, ["a"], ["b"],
                             [helper.make_node(other, ["a"], ["b"], domain="own")], imports)
        for name, other in (("f", "g"), ("g", "f"))
    ]  # fmt: skip
    call = helper.make_node("f", ["x"], ["y"], domain="own")
    refused(model_of(call, functions=functions), "calls itself")


def external_model(folder: Path, location: str, offset: str = "0", length: str = "24") -> Path:
    """A file whose weights (2, 3) of float32 are said to be at `location`."""
    weights = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3])
    weights.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        weights.external_data.add(key=key, value=value)
    model = model_of(helper.make_node("Add", ["x", "w"], ["y"]), initializers=[weights])
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_stays_in_the_mapped_file(tmp_path: Path) -> None:
    floats = np.arange(16, dtype=np.float32)
    (tmp_path / "weights").write_bytes(floats.tobytes())
    model = load(external_model(tmp_path, "weights", offset="16"))
    assert model(X).tolist() == (X + floats[4:10].reshape(2, 3)).tolist()
    # A private map: what it has not read yet, it reads when it is used.
    (tmp_path / "weights").write_bytes((floats * 2).tobytes())
    assert model["w"].tolist() == (floats[4:10] * 2).reshape(2, 3).tolist()


def test_external_data_that_is_not_aligned_is_copied(tmp_path: Path) -> None:
    floats = np.arange(6, dtype=np.float32)
    (tmp_path / "weights").write_bytes(b"x" + floats.tobytes())
    model = load(external_model(tmp_path, "weights", offset="1"))
    assert model(X).tolist() == (X + floats.reshape(2, 3)).tolist()


@pytest.mark.parametrize(
    ("offset", "length", "match"),
    [("44", "24", "lies at bytes 44 to 68"), ("0", "20", "has 24 bytes"), ("-8", "24", "offset"),
     ("0", "1e9", "length"), (str(2**63), "24", "lies at bytes"), ("0x10", "24", "offset")],
)  # fmt: skip
def test_wrong_places_of_external_data_are_refused(
    tmp_path: Path, offset: str, length: str, match: str
) -> None:
    (tmp_path / "weights").write_bytes(bytes(64))
    with pytest.raises(OnnxError, match=f"'w'.*{match}|{match}.*'w'"):
        load(external_model(tmp_path, "weights", offset, length))


def test_external_data_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(bytes(64))
    (folder / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")
    for location in ("../secret", str(tmp_path / "secret"), "link", "sub/../../secret"):
        with pytest.raises(OnnxError, match=r"'w'.*folder"):
            load(external_model(folder, location))
    for location in ("pipe", ".", "missing", "a\0b"):
        with pytest.raises(OnnxError, match="'w'"):
            load(external_model(folder, location))


def test_a_cache_of_links_to_files_of_one_folder_is_read(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    external_model(snapshot, "weights").rename(blobs / "0123")
    (blobs / "4567").write_bytes(np.ones(6, np.float32).tobytes())
    (snapshot / "model.onnx").symlink_to("../../blobs/0123")
    (snapshot / "weights").symlink_to("../../blobs/4567")
    assert load(snapshot / "model.onnx")(X).tolist() == (X + 1).tolist()


def test_the_largest_value_is_the_memory_of_the_machine() -> None:
    assert 2**26 < values.LARGEST_VALUE < 2**50


def test_a_file_without_a_graph_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.onnx").write_bytes(b"")
    with pytest.raises(OnnxError, match=r"cut\.onnx is no model of ONNX: there is no graph in 0"):
        load(tmp_path / "cut.onnx")
