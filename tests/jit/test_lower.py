"""Functions at every stage of the compiler, for devices that are not there."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import lamina as lm
from lamina import nn
from lamina.core.options import using
from lamina.errors import (
    ArgumentError,
    CompileError,
    CompilerNotFoundError,
    ShapeError,
    UnknownDeviceError,
)
from lamina.ir.parse import parse
from lamina.ir.text import to_text

STAGES = [
    "graph", "simplify", "suit_device", "layout", "fuse", "schedule", "legalize", "tiles",
    "print",
]  # fmt: skip


def classify(x: lm.Tensor, w: lm.Tensor) -> lm.Tensor:
    return lm.softmax(x @ w)


SPECS = lm.TensorSpec((32, 64)), lm.TensorSpec((64, 10))


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "metal"])
def test_every_stage_is_text(device: str) -> None:
    lowered = lm.jit(classify).lower(*SPECS, device=device)
    assert list(lowered.stages) == STAGES
    assert to_text(parse(lowered.stages["graph"])) == lowered.stages["graph"]
    assert f"device={device} : f32[32,64]" in lowered.stages["graph"]
    assert lowered.stages["fuse"].startswith("kernel ")
    for kernel in lowered.kernels:
        assert kernel.name in kernel.source
        comment, end, text = kernel.source.partition("*/\n")
        assert text in lowered.source
        assert comment + end not in lowered.source
        assert f"[{kernel.name}]" in lowered.stages["schedule"]
    assert lowered.scratch_bytes % 4 == 0


def test_arrays_stand_for_their_shapes() -> None:
    x, w = np.ones((32, 64), np.float32), lm.ones((64, 10))
    assert lm.jit(classify).lower(x, w).source == lm.jit(classify).lower(*SPECS).source


def test_a_schedule_replays_from_its_text() -> None:
    lowered = lm.jit(classify).lower(*SPECS)
    moves = "\n".join(f"[{kernel.name}]\n{kernel.schedule}" for kernel in lowered.kernels)
    with using(schedule=moves.replace("(no move)", "")):
        again = lm.jit(classify).lower(*SPECS)
    assert again.source == lowered.source


def test_assignments_and_captured_parameters() -> None:
    layer = nn.Linear(8, 4)
    optimizer = nn.optim.SGD(nn.parameters(layer), lr=0.1)

    def step(x: lm.Tensor) -> lm.Tensor:
        loss = (layer(x) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    before = layer.weight.numpy().copy()
    lowered = lm.jit(step).lower(lm.TensorSpec((5, 8)), device="cuda:0")
    assigned = {line.partition(" : ")[2] for line in lowered.stages["graph"].splitlines()
                if " = assign " in line}  # fmt: skip
    assert {"f32[4,8]", "f32[4]"} <= assigned
    np.testing.assert_array_equal(layer.weight.numpy(), before)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_specs_are_where_new_tensors_are(device: str) -> None:
    with using(device="interp"):
        layer = nn.Linear(8, 4)
        lowered = lm.jit(layer).lower(lm.TensorSpec((5, 8)), device=device)
    assert layer.weight.device == "interp"
    inputs = [line for line in lowered.stages["graph"].splitlines() if " = buffer " in line]
    assert len(inputs) == 3
    assert all(f"device={device} " in line for line in inputs)


def test_nothing_need_be_where_a_function_is_lowered_for() -> None:
    def draws() -> lm.Tensor:
        return lm.zeros((3,)) + lm.random.normal((3,))

    assert "device=cuda:7" in lm.jit(draws).lower(device="cuda:7").stages["graph"]


def test_the_cpu_compiles() -> None:
    (library,) = lm.jit(classify).lower(*SPECS, device="cpu").compile().values()
    assert len(library) > 1000


def test_cuda_compiles_without_a_gpu() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    lowered = lm.jit(classify).lower(*SPECS, device="cuda:0", arch="sm_90a")
    cubins = lowered.compile()
    assert set(cubins) == {kernel.name for kernel in lowered.kernels}
    assert all(cubin[:4] == b"\x7fELF" for cubin in cubins.values())


@pytest.mark.parametrize("dtype", [lm.bfloat16, lm.float16], ids=str)
@pytest.mark.parametrize("steps", ["attention", "product"])
def test_cuda_compiles_for_gpus_before_sm_80(dtype: lm.DType, steps: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    specs = [lm.TensorSpec((1, 4, 256, 64), dtype)] * 3
    function = lm.jit(lm.scaled_dot_product_attention)
    if steps == "product":
        specs, function = [lm.TensorSpec((256, 256), dtype)] * 2, lm.jit(lm.matmul)
    lowered = function.lower(*specs, device="cuda:0", arch="sm_75")
    assert "256x64" not in "".join(kernel.schedule for kernel in lowered.kernels)
    assert all(cubin[:4] == b"\x7fELF" for cubin in lowered.compile().values())
    with pytest.raises(CompileError, match=r"for sm_10: .* sm_80, .*install nvidia-cuda-nvrtc"):
        function.lower(*specs, device="cuda:0", arch="sm_10").compile()


def test_an_architecture_has_a_name_of_nvidias() -> None:
    with pytest.raises(ArgumentError, match=r"arch 'turing': .* named like sm_80"):
        lm.jit(classify).lower(*SPECS, device="cuda:0", arch="turing")


def test_cuda_without_nvidias_packages_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    lowered = lm.jit(classify).lower(*SPECS, device="cuda:0", arch="sm_90a")
    with pytest.raises(CompilerNotFoundError) as caught:
        lowered.compile()
    assert caught.value.remedy == "pip install cuda-bindings nvidia-cuda-nvrtc"


def test_metal_needs_a_mac() -> None:
    with pytest.raises(CompilerNotFoundError, match="run on a Mac"):
        lm.jit(classify).lower(*SPECS, device="metal").compile()


def test_stages_are_those_of_the_function_alone() -> None:
    """Another thread computes at the same time."""
    stop = threading.Event()

    def compute() -> None:
        size = 2
        while not stop.is_set():
            (lm.ones((size, 3)) * 2.0 + float(size)).sum().item()
            size += 1

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        for _ in range(5):
            lowered = lm.jit(classify).lower(*SPECS, device="cuda:0")
            assert "f32[32,64]" in lowered.stages["simplify"]
            assert "p0: f32[2048]" in lowered.stages["fuse"]
    finally:
        stop.set()
        thread.join()


def test_mistakes() -> None:
    with pytest.raises(ShapeError, match="negative size"):
        lm.TensorSpec((-1, 2))
    with pytest.raises(ArgumentError, match="lower: the interpreter compiles nothing"):
        lm.jit(classify).lower(*SPECS, device="interp")
    with pytest.raises(UnknownDeviceError, match="xpu"):
        lm.jit(classify).lower(*SPECS, device="xpu:0")
    with pytest.raises(ShapeError, match="matmul"):
        lm.jit(classify).lower(SPECS[0], lm.TensorSpec((65, 10)))
