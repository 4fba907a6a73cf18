"""What the figures were measured on: commit, machine, versions."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

from lamina.core.options import current
from lamina.runtime import compiler
from lamina.runtime.buffer import heap_of
from lamina.runtime.cpu import usable_cores

ROOT = Path(__file__).resolve().parent.parent
STATISTICS = Path("/proc/stat")
BUSY = "busy at the start"


def commit() -> str:
    """The commit in short, and whether the compiler's files differ from it."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(ROOT), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", "lamina")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + (" + changes" if changed else "")


def cpu_model() -> str:
    """The processor's name, with the number that tells its generation."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in lines}
    name = fields.get("model name", platform.machine())
    if "cpu family" in fields:
        name += f" (family {fields['cpu family']}, model {fields.get('model', '?')})"
    return name


def version(package: str) -> str | None:
    """The installed version of `package`, or None."""
    if importlib.util.find_spec(package) is None:
        return None
    return importlib.metadata.version(package)


def peer_compiler(folder: Path) -> str | None:
    """A clang for tinygrad: the one on PATH, or the one inside the ziglang package."""
    found = shutil.which("clang")
    if found:
        return found
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        return None
    zig = Path(spec.submodule_search_locations[0]) / "zig"
    script = folder / "clang"
    script.write_text(f'#!/bin/sh\nexec "{zig}" clang "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return str(script)


def compiler_version(program: str | None) -> str:
    """The first line of ``--version``, without its address and folder."""
    if program is None:
        return "not installed"
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return answer.stdout.partition("\n")[0].partition(" (http")[0].strip()


def busy(seconds: float = 1.0) -> float:
    """The share of the processors' time that other programs take, looked at for so long. Where
    the system does not tell it, the load of the last minute."""

    def spent() -> tuple[int, int]:
        """Ticks since the start of the system: all, and those in which a processor did nothing."""
        # "cpu user nice system idle iowait irq softirq steal guest guest_nice"; guests are part of
        # the first two (Linux, proc_stat(5)).
        ticks = [int(text) for text in STATISTICS.read_text(encoding="utf-8").split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4]

    if not STATISTICS.exists():
        return min(os.getloadavg()[0] / usable_cores(), 1.0)
    everything, idle = spent()
    time.sleep(seconds)
    everything_then, idle_then = spent()
    return 1.0 - (idle_then - idle) / max(everything_then - everything, 1)


def facts(seed: int, clang: str | None) -> dict[str, str]:
    """The table at the top of a page of results."""
    tinygrad, torch = version("tinygrad"), version("torch")
    return {
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "CPU": cpu_model(),
        "cores": str(usable_cores()),
        "system": f"{platform.system()} {platform.machine()}",
        BUSY: f"{busy():.0%}",
        "Python": platform.python_version(),
        "C compiler of lamina": str(compiler.find(current())),
        "numpy": version("numpy") or "not installed",
        "torch": torch or "not installed",
        "jax": version("jax") or "not installed",
        "tinygrad": f"{tinygrad}, with {compiler_version(clang)}" if tinygrad else "not installed",
        "onnxruntime": version("onnxruntime") or "not installed",
        "seed": str(seed),
    }


def facts_of_gpu(device: str, seed: int) -> dict[str, str]:
    """The table at the top of a page of results of a GPU, beside PyTorch."""
    import torch

    return {
        "commit": commit(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "GPU": str(heap_of(device)),
        "cores": str(usable_cores()),
        "torch": torch.__version__,
        "CUDA of torch": str(torch.version.cuda),
        "triton": version("triton") or "not installed",
        "cuda-bindings": importlib.metadata.version("cuda-bindings"),
        "seed": str(seed),
    }
