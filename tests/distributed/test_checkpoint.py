"""Checkpoints: parts of tensors go into other parts; a killed save leaves the last one whole."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamina import Tensor, distributed, nn
from lamina.distributed import checkpoint, setup
from lamina.distributed.mesh import Axis
from lamina.errors import ArgumentError, FormatError
from tests.distributed.launching import launch


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_joined", [setup._Process(0, 1)])


def linear(seed: int) -> nn.Linear:
    layer = nn.Linear(6, 12)
    generator = np.random.default_rng(seed)
    layer.weight.assign(Tensor(generator.normal(size=(12, 6)).astype(np.float32)))
    layer.bias.assign(Tensor(generator.normal(size=12).astype(np.float32)))
    return layer


def save_of_each(folder: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """A checkpoint as `count` processes write it, each in its turn here: of a column parallel
    layer in three pieces, and one that is sharded. The whole weights."""
    monkeypatch.setattr(checkpoint, "_wait_for_all", lambda: None)
    column, sharded = linear(1), linear(2)
    whole = [layer.weight.numpy().copy() for layer in (column, sharded)]
    over = Axis("all", count, 1)
    target = folder / "save-1"
    target.mkdir()
    written = []
    for rank in range(count):
        monkeypatch.setattr(setup, "_joined", [setup._Process(rank, count)])
        parts = [distributed.ColumnParallel(linear(1), over, 3)]
        parts.append(distributed.FullySharded(linear(2), over))
        written.append(checkpoint._entries(parts, None))
        checkpoint._write_pieces(target, written[-1])
    for rank in range(count):
        monkeypatch.setattr(setup, "_joined", [setup._Process(rank, count)])
        checkpoint._write_tensors(target, written[rank])
    checkpoint._write_index(folder, target, None, {"a": "text"})
    return whole


def annotated(seed: int, count: int) -> nn.Linear:
    """A layer whose weight is cut along its inputs, and its bias not."""
    layer = linear(seed)
    layer.weight = distributed.shard(layer.weight, distributed.Mesh(model=count), (None, "model"))
    return layer


def test_parts_of_annotated_tensors_and_of_their_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes save, one loads."""
    monkeypatch.setattr(checkpoint, "_wait_for_all", lambda: None)
    target = tmp_path / "save-1"
    target.mkdir()
    moments = np.random.default_rng(3).normal(size=(12, 6)).astype(np.float32)
    written = []
    for rank in range(2):
        monkeypatch.setattr(setup, "_joined", [setup._Process(rank, 2)])
        layer = annotated(1, 2)
        optimizer = nn.optim.SGD(nn.parameters(layer), lr=0.1, momentum=0.9)
        optimizer.state["momentum"][0].assign(Tensor(np.split(moments, 2, 1)[rank]))
        written.append(checkpoint._entries(layer, optimizer))
        checkpoint._write_pieces(target, written[-1])
    for rank in range(2):
        monkeypatch.setattr(setup, "_joined", [setup._Process(rank, 2)])
        checkpoint._write_tensors(target, written[rank])
    checkpoint._write_index(tmp_path, target, optimizer, {})
    monkeypatch.setattr(setup, "_joined", [setup._Process(0, 1)])
    layer = linear(8)
    optimizer = nn.optim.SGD(nn.parameters(layer), lr=0.1, momentum=0.9)
    distributed.load_checkpoint(tmp_path, layer, optimizer)
    np.testing.assert_array_equal(layer.weight.numpy(), linear(1).weight.numpy())
    np.testing.assert_array_equal(optimizer.state["momentum"][0].numpy(), moments)
    monkeypatch.setattr(setup, "_joined", [setup._Process(1, 2)])
    other = annotated(9, 2)
    distributed.load_checkpoint(tmp_path, other)
    own = distributed.part(other.weight).numpy()
    np.testing.assert_array_equal(own, linear(1).weight.numpy()[:, 3:])


@pytest.mark.parametrize("saved", [1, 2, 4])
@pytest.mark.parametrize("loaded", [1, 2, 4])
def test_parts_are_read_by_another_number_of_processes(
    saved: int, loaded: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    column, sharded = save_of_each(tmp_path, saved, monkeypatch)
    pieces = column.reshape(3, loaded, -1, 6)
    padded = np.zeros(-(-72 // loaded) * loaded, np.float32)
    padded[:72] = sharded.reshape(-1)
    over = Axis("all", loaded, 1)
    for rank in range(loaded):
        monkeypatch.setattr(setup, "_joined", [setup._Process(rank, loaded)])
        parts = [distributed.ColumnParallel(linear(8), over, 3)]
        parts.append(distributed.FullySharded(linear(9), over))
        assert distributed.load_checkpoint(tmp_path, parts) == {"a": "text"}
        np.testing.assert_array_equal(parts[0].weight.numpy(), pieces[:, rank].reshape(-1, 6))
        own = np.split(padded, loaded)[rank]
        np.testing.assert_array_equal(parts[1].shards["weight"].numpy(), own)


@pytest.mark.usefixtures("alone")
def test_a_model_and_its_optimiser_come_back(tmp_path: Path) -> None:
    layer = linear(1)
    optimizer = nn.optim.Adam(nn.parameters(layer), lr=0.1)
    for _ in range(3):
        (layer(Tensor(np.ones((2, 6), np.float32))) ** 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    distributed.save_checkpoint(tmp_path, layer, optimizer, {"step": "2"})
    other = linear(2)
    fresh = nn.optim.Adam(nn.parameters(other), lr=0.1)
    assert distributed.load_checkpoint(tmp_path, other, fresh) == {"step": "2"}
    assert fresh.count == 3
    for old, new in ((layer, other), (optimizer.state, fresh.state)):
        pairs = zip(nn.state_dict(old).values(), nn.state_dict(new).values(), strict=True)
        for mine, its in pairs:
            np.testing.assert_array_equal(its.numpy(), mine.numpy())


@pytest.mark.usefixtures("alone")
def test_the_last_save_alone_stays(tmp_path: Path) -> None:
    layer = linear(1)
    for _ in range(3):
        distributed.save_checkpoint(tmp_path, layer)
    (tmp_path / "save-9").mkdir()  # of a save that was killed
    distributed.save_checkpoint(tmp_path, layer)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["index.json", "save-4"]


@pytest.mark.usefixtures("alone")
def test_what_is_no_save_stays(tmp_path: Path) -> None:
    layer = linear(1)
    (tmp_path / "save-log.txt").write_text("of the user's")
    (tmp_path / "save-of-monday").mkdir()
    for _ in range(2):
        distributed.save_checkpoint(tmp_path, layer)
    found = sorted(one.name for one in tmp_path.iterdir())
    assert found == ["index.json", "save-2", "save-log.txt", "save-of-monday"]


def write_by_turns(folder: Path, models: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A save of processes that have a model each."""
    target = folder / "save-1"
    target.mkdir()
    entries = [checkpoint._entries(model, None) for model in models]
    for write in (checkpoint._write_pieces, checkpoint._write_tensors):
        for rank, own in enumerate(entries):
            monkeypatch.setattr(setup, "_joined", [setup._Process(rank, len(models))])
            write(target, own)
    checkpoint._write_index(folder, target, None, {})


def test_stages_need_names_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [linear(1), linear(2)]
    (tmp_path / "equal").mkdir()
    with pytest.raises(ArgumentError, match=r"ranks 0 and 1 have other values of model\.0\.weight"):
        write_by_turns(tmp_path / "equal", [[stage] for stage in stages], monkeypatch)
    named = [{f"layer {number}": stage} for number, stage in enumerate(stages)]
    write_by_turns(tmp_path, named, monkeypatch)
    for number, stage in enumerate(stages):
        other = linear(3)
        distributed.load_checkpoint(tmp_path, {f"layer {number}": other})
        np.testing.assert_array_equal(other.weight.numpy(), stage.weight.numpy())


def test_running_statistics_of_processes_may_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms = [nn.BatchNorm1d(3) for _ in range(2)]
    for number, norm in enumerate(norms):
        norm(Tensor(np.random.default_rng(number).normal(size=(8, 3)).astype(np.float32)))
    write_by_turns(tmp_path, norms, monkeypatch)
    other = nn.BatchNorm1d(3)
    distributed.load_checkpoint(tmp_path, other)
    np.testing.assert_array_equal(other.running_mean.numpy(), norms[0].running_mean.numpy())


@pytest.mark.usefixtures("alone")
def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    distributed.save_checkpoint(tmp_path, linear(1))
    with pytest.raises(FormatError, match=r"weight is float32 \(12, 6\) there, float32 \(3, 6\)"):
        distributed.load_checkpoint(tmp_path, nn.Linear(6, 3))
    with pytest.raises(FormatError, match=r"the checkpoint has no model\.0\.weight"):
        distributed.load_checkpoint(tmp_path, [linear(1)])
    index = tmp_path / "index.json"
    content = json.loads(index.read_text())
    content["tensors"]["model.weight"]["boxes"] = []
    index.write_text(json.dumps(content))
    with pytest.raises(FormatError, match=r"of model\.weight 72 elements are missing"):
        distributed.load_checkpoint(tmp_path, linear(1))
    with pytest.raises(FileNotFoundError):
        distributed.load_checkpoint(tmp_path / "no_such", linear(1))
    optimizer = nn.optim.SGD(nn.parameters(linear(2)), lr=0.1, momentum=0.9)
    with pytest.raises(ArgumentError, match="is not in the model"):
        distributed.save_checkpoint(tmp_path, linear(1), optimizer)


def losses(output: str) -> dict[str, str]:
    return dict(re.findall(r"(step \d): (\d+\.\d+)", output))


FAULTS = ["tensors 1", "index 0"]
MORE_FAULTS = ["step 0", "step 1", "boxes 0", "boxes 1", "tensors 0", "end 0", "end 1"]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The losses of a run that nothing interrupts."""
    pytest.importorskip("mpi4py", reason="two processes need pip install mpi4py mpich")
    ran = launch("checkpoint.py", str(tmp_path_factory.mktemp("whole")), device="interp")
    assert ran.status == 0, ran.errors
    assert len(losses(ran.output)) == 6
    return losses(ran.output)


@pytest.mark.parametrize(
    "fault", [*FAULTS, *(pytest.param(one, marks=pytest.mark.exhaustive) for one in MORE_FAULTS)]
)
def test_a_killed_run_goes_on_from_the_last_checkpoint(
    fault: str, tmp_path: Path, whole_run: dict[str, str]
) -> None:
    """With the same losses, to the last printed digit."""
    killed = launch("checkpoint.py", str(tmp_path), *fault.split(), device="interp")
    assert killed.status != 0
    assert killed.seconds < 60
    again = launch("checkpoint.py", str(tmp_path), device="interp")
    assert again.status == 0, again.errors
    begun = re.search(r"goes on at (\d)", again.output)
    assert begun
    assert int(begun[1]) in (2, 3, 4)
    assert losses(killed.output) | losses(again.output) == whole_run
    for name, loss in losses(killed.output).items():
        assert whole_run[name] == loss


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("phase", ["training", "saving"])
def test_a_run_that_is_killed_at_a_random_moment_goes_on(
    phase: str, seed: int, tmp_path: Path, whole_run: dict[str, str]
) -> None:
    """With the same losses; the other process ends soon, and says who was killed."""
    victim = seed % 2
    fault = (phase, str(victim), str(seed))
    killed = launch("checkpoint.py", str(tmp_path), *fault, device="interp")
    ended = time.time()
    moment = re.search(r"killed at (\d+\.\d+)", killed.output)
    assert moment, killed.output
    seconds = ended - float(moment[1])
    assert seconds < 30
    assert killed.status != 0
    assert f"rank {victim} failed: its process ended" in killed.errors, killed.errors
    again = launch("checkpoint.py", str(tmp_path), device="interp")
    assert again.status == 0, again.errors
    assert losses(killed.output) | losses(again.output) == whole_run
    for name, loss in losses(killed.output).items():
        assert whole_run[name] == loss
    steps = len(losses(killed.output))
    print(f"{phase}, rank {victim}, after {steps} steps: all have ended {seconds:.1f} s later")


def test_one_process_goes_on_where_two_were(tmp_path: Path, whole_run: dict[str, str]) -> None:
    killed = launch("checkpoint.py", str(tmp_path), "step", "1", device="interp")
    assert killed.status != 0
    again = launch("checkpoint.py", str(tmp_path), device="interp", count=1)
    assert again.status == 0, again.errors
    assert re.search(r"goes on at [1-9]", again.output)
    found = losses(again.output)
    assert found
    for name, loss in found.items():
        np.testing.assert_allclose(float(loss), float(whole_run[name]), rtol=1e-4)
