"""The command ``lamina``: a demonstration, and what is worth knowing about this installation."""

from __future__ import annotations

import argparse
import gc
import os
import platform
import runpy
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lamina import __version__
from lamina.cli_models import add_models, parse_count, parse_seed
from lamina.core.options import Options, current
from lamina.errors import (
    ArgumentError,
    LaminaError,
    UnknownDeviceError,
    message_of,
)
from lamina.runtime.buffer import KINDS, heap_of
from lamina.runtime.compiler import REMEDY, Compiler, survey
from lamina.runtime.cpu import disk_cache, usable_cores

if TYPE_CHECKING:
    from rich.console import Console

    from lamina.explain.report import KernelRecord
    from lamina.interop.onnx import Model

EXAMPLE = """\
import lamina as lm

x = lm.asarray([[0.0, 1.0, 2.0], [3.0, 3.0, 3.0]])
lm.softmax(x, axis=1).numpy()
"""
FAILED, INTERRUPTED = 1, 130  # 2 is argparse's, for a wrong command line
_SHADES, _SHOWN = " .:*#", 4  # of images, and how many
_TABLE_ROWS = 12
# Objects that are made between two runs of Python's cycle collector, which visits the young ones.
# A graph of 10,000 nodes and a vocabulary of 50,000 texts live on: with Python's 700, collections
# were a tenth of the time to a model's first token.
_OBJECTS_PER_COLLECTION = 100_000


@dataclass(frozen=True)
class Row:
    """What `doctor` finds of one item; remedy: a command that mends it, or ""."""

    item: str
    finding: str
    is_fine: bool = True
    remedy: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    if sys.stdout is None:  # the shell closed it: `lamina demo >&-`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (until the end)
    gc.set_threshold(_OBJECTS_PER_COLLECTION)
    try:
        options = _parser().parse_args(arguments)
        status: int = options.run(options) or 0
        _flush()
        return status
    except SystemExit:  # argparse's, which has printed help or a complaint
        _flush()
        raise
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # what is printed as it is computed ends where nobody reads
        _discard_output()
        return 0
    except (LaminaError, OSError, ValueError) as error:
        # The line of the user's program, which errors end with, would be our own.
        print(f"lamina: error: {message_of(error)}", file=sys.stderr)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lamina",
        description="A deep learning compiler in thin layers.",
        epilog="LAMINA_DEBUG=1 prints a line for every kernel that runs, 4 its source. "
        "LAMINA_DEVICE=interp uses the reference interpreter.",
    )
    parser.add_argument("--version", action="version", version=f"lamina {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, run: Any, what: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=what, description=f"{what.capitalize()}.")
        added.set_defaults(run=run)
        return added

    demo = command("demo", _demo, "train a small network on handwritten digits")
    epochs = "passes over the training images (default: %(default)s)"
    demo.add_argument("--epochs", type=parse_count, default=15, help=epochs)
    demo.add_argument("--seed", type=parse_seed, default=0, help="of the weights and the order")
    demo.add_argument("--output", type=Path, help="the model's file, in the user's data by default")
    command("passes", _passes, "list the passes of the compiler, in order")
    explain = command("explain", _explain, "show what each pass makes of a program")
    explain.add_argument("program", type=Path, nargs="?", help="a Python file; a softmax if none")
    explain.add_argument("--source", action="store_true", help="print the generated source as well")
    explain.add_argument("--memory", action="store_true", help="print which arrays take the memory "
                         "of each part where it needs most, and nothing else")  # fmt: skip
    run = command("run", _run, "run a model of ONNX")
    run.add_argument("model", type=Path, help="a file; inputs without a value are drawn")
    named = "a value: the name of an input, and a file of NumPy's; can be repeated"
    run.add_argument("--input", type=_named_file, action="append", default=[], dest="inputs",
                     metavar="x=FILE.npy", help=named)  # fmt: skip
    run.add_argument("--seed", type=parse_seed, default=0, help="of the inputs that are drawn")
    run.add_argument("--profile", action="store_true", help="print the time of each kernel")
    run.add_argument("--check", action="store_true", help="compare with onnxruntime where it is "
                     "installed, otherwise with onnx's reference evaluator")  # fmt: skip
    launch = command("launch", _launch, "start a script in several processes")
    launch.add_argument("-n", type=parse_count, default=2, dest="count",
                        help="processes (default: 2)")  # fmt: skip
    launch.add_argument("--device", default="cpu", help="of each: cpu (the default), interp, cuda")
    launch.add_argument("-m", action="store_true", dest="is_module",
                        help="run a module in place of a file: -m lamina generate MODEL PROMPT")
    launch.add_argument("script", help="a Python file; see lamina.distributed")
    launch.add_argument("arguments", nargs=argparse.REMAINDER, help="those of the script")
    command("doctor", _doctor, "look for what lamina needs on this machine")
    add_models(command)
    return parser


def _launch(options: argparse.Namespace) -> int:
    from lamina.distributed.launch import launch

    program = [options.script, *options.arguments]
    return launch(options.count, options.device, ["-m", *program] if options.is_module else program)


def _named_file(text: str) -> tuple[str, Path]:
    name, equals, path = text.partition("=")
    if not name or not equals or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE.npy")
    return name, Path(path)


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()


def _discard_output() -> None:
    """Go on without a reader: one such as `head` has seen enough. The work is to be done all the
    same, so this is no failure."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _console() -> Console:
    from rich.console import Console

    class PatientConsole(Console):
        def on_broken_pipe(self) -> None:
            _discard_output()

    # Away from a terminal, lines are for files and other programs: never wrap them.
    return PatientConsole(highlight=False, width=None if sys.stdout.isatty() else 1000)


def _print_table(titles: Sequence[Any], rows: Iterable[Sequence[str]], **settings: Any) -> None:
    from rich.table import Table

    table = Table(*titles, **settings)
    for row in rows:
        table.add_row(*row)
    _console().print(table)


def _passes(options: argparse.Namespace) -> None:
    from lamina.pipeline import LOAD, PASSES

    rows, reads = list[tuple[str, ...]](), "tensors"
    for number, compiler_pass in enumerate((*PASSES, LOAD), 1):
        rows.append((
            str(number), compiler_pass.name, reads, compiler_pass.writes, compiler_pass.does
        ))  # fmt: skip
        rows += [
            ("", f"  {subpass.name}", "", "", subpass.line) for subpass in compiler_pass.subpasses
        ]
        reads = compiler_pass.writes
    _print_table(("", "pass", "reads", "writes", "what it does"), rows)


def _explain(options: argparse.Namespace) -> None:
    """Run a program, and print what each pass makes of each part of it that is compiled."""
    from lamina.explain.memory import memory_lines
    from lamina.explain.origins import ORIGINS
    from lamina.explain.report import pass_lines
    from lamina.pipeline import text_of
    from lamina.runtime.profile import passes

    with passes() as records, ORIGINS.noted():
        if options.program is None:
            exec(compile(EXAMPLE, "example.py", "exec"), {})
        else:
            runpy.run_path(str(options.program), run_name="__main__")
    if options.program is None:
        print(EXAMPLE)
    for record in records:
        is_source = record.pass_.writes == "source"
        if not options.memory:
            lines = pass_lines(record, text_of, options.source and is_source)
        else:
            lines = memory_lines(record.after) if is_source else iter(())
        for line in lines:
            print(line)


def _run(options: argparse.Namespace) -> int:
    """The status is 1 where results differ from another runtime's."""
    from lamina.explain.report import profile
    from lamina.interop.onnx import load
    from lamina.interop.onnx.check import on_host

    model = load(options.model)
    arguments = _arguments(model, options.inputs, options.seed)
    started = time.perf_counter()
    outputs = _outputs(model, arguments)
    first = time.perf_counter() - started
    with profile() as records:
        started = time.perf_counter()
        _outputs(model, arguments)
        second = time.perf_counter() - started
    for name, value in zip(model.outputs, outputs, strict=True):
        print(f"{name}: {_summary(on_host(value))}")
    print(f"first call {first:.3f} s, compilation included; second call {second:.3f} s")
    if options.profile:
        _print_kernels(records, "kernels of the second call")
    return _compared(options.model, model, arguments, outputs) if options.check else 0


def _arguments(model: Model, files: Sequence[tuple[str, Path]], seed: int) -> dict[str, Any]:
    """The values of files, and drawn ones for the other inputs that need some."""
    import numpy as np

    from lamina.interop.onnx.check import drawn

    arguments = dict[str, Any]()
    for name, path in files:
        if name not in model.types:
            raise ArgumentError(f"no input {name!r}; inputs are {', '.join(model.types)}")
        try:
            value = np.load(path)
        except (EOFError, ValueError) as error:
            raise ArgumentError(f"{path} is no array of NumPy's: {error}") from error
        if not isinstance(value, np.ndarray):
            raise ArgumentError(f"{path} has several arrays: save each in a file of its own")
        arguments[name] = value
    generator = np.random.default_rng(seed)
    for name in model.inputs:
        if name not in arguments:
            arguments[name] = drawn(name, model.types[name], generator)
    return arguments


def _outputs(model: Model, arguments: dict[str, Any]) -> list[Any]:
    """The results of a call, computed."""
    from lamina.interop.onnx.check import on_host

    results = model(**arguments)
    return [on_host(result) for result in (results if isinstance(results, tuple) else (results,))]


def _summary(value: Any) -> str:
    """A value's dtype, shape and range."""
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    if value is None:
        return "nothing"
    text = f"{value.dtype} {tuple(value.shape)}"
    if value.dtype.kind not in "fiu" or not value.size:
        return text
    return f"{text}, from {value.min():.6g} to {value.max():.6g}, mean {value.mean():.6g}"


def _compared(
    path: Path, model: Model, arguments: dict[str, Any], outputs: Sequence[Any]
) -> int:
    from lamina.interop.onnx.check import compare, peer_of

    peer = peer_of(path, arguments)
    status = 0
    for name, value, expected in zip(model.outputs, outputs, peer.outputs, strict=True):
        found = compare(value, expected)
        verdict = "agrees" if found.agrees else "DIFFERS"
        print(f"{name} {verdict} with {peer.name}: largest difference {found.difference:.2g}, "
              f"allowed {found.tolerance:.2g}")  # fmt: skip
        status = status if found.agrees else FAILED
    return status


def _doctor(options: argparse.Namespace) -> int:
    """The status is 1 when nothing can compile here."""
    from rich.markup import escape  # the remedies have brackets of their own

    rows = doctor()
    marks = {True: "[green]ok[/]", False: "[yellow]--[/]"}
    table = [
        (row.item, marks[row.is_fine], escape(row.finding), escape(row.remedy)) for row in rows
    ]
    _print_table(("item", "", "finding", "remedy"), table)
    can_compile = any(row.is_fine for row in rows if row.item == "compiler")
    return 0 if can_compile else FAILED


def doctor(options: Options | None = None) -> list[Row]:
    """What lamina finds on this machine."""
    from importlib.metadata import version

    options = options or current()
    threads = f"{options.threads or usable_cores()} on {usable_cores()} usable cores"
    return [
        *_compiler_rows(options),
        _cache_row(options),
        Row("threads", threads),
        Row("python", platform.python_version()),
        *(Row(name, version(name)) for name in ("numpy", "ml_dtypes")),
        *map(_kind_row, KINDS),
    ]


def _compiler_rows(options: Options) -> list[Row]:
    """The compilers that work, the one in use first; or each candidate with its reason."""
    results = list(survey(options.cc))
    compilers = [result for _, result in results if isinstance(result, Compiler)]
    if compilers:
        return [Row("compiler", f"{compiler} at {compiler.path}") for compiler in compilers]
    return [Row("compiler", f"{name}: {reason}", False, REMEDY) for name, reason in results]


def _cache_row(options: Options) -> Row:
    cache = disk_cache(options)
    size = f"{sum(file.stat().st_size for file in cache.folder.iterdir()) / 1e6:.1f} MB"
    if cache.folder == cache.wanted and os.access(cache.wanted, os.W_OK):
        return Row("cache", f"{cache.wanted}, {size}, writable")
    finding = f"{cache.wanted} cannot be used; this process keeps {size} in {cache.folder}"
    return Row("cache", finding, False, "export LAMINA_CACHE_DIR=/a/folder/of/your/own")


def _kind_row(kind: str) -> Row:
    try:
        devices = [str(heap_of(name)) for name in KINDS[kind].names()]
    except UnknownDeviceError as error:
        return Row(kind, error.problem, False, error.remedy)
    return Row(kind, "; ".join(devices) or "the driver finds none", bool(devices))


def _demo(options: argparse.Namespace) -> None:
    """Train with a line an epoch, and on a terminal with a progress bar below."""
    from rich.progress import track

    from lamina import datasets, nn
    from lamina.explain.report import profile
    from lamina.io import safetensors
    from lamina.models.digits import train

    console = _console()
    output = _writable(options.output)
    data = datasets.digits()
    count, tests = len(data.train_images), len(data.test_images)
    console.print(f"{count} handwritten digits of 8 x 8 pixels to learn from, {tests} for the test")
    started, epochs = time.perf_counter(), options.epochs
    training = track(train(data, epochs, options.seed), "training", epochs, console=console,
                     disable=not console.is_terminal)  # fmt: skip
    with profile() as records:
        for epoch, state in enumerate(training, 1):
            model, loss, accuracy = state
            console.print(f"epoch {epoch:2} of {epochs}: loss {loss:.3f}, accuracy {accuracy:.1%}")
    seconds = time.perf_counter() - started
    safetensors.save(output, nn.state_dict(model), {"format": "pt"})
    answers = model(data.test_images).numpy().argmax(1)
    labels = data.test_labels.numpy()
    _print_kernels(records, "kernels of the training")
    _print_digits(data.test_images.numpy(), labels, answers)
    console.print(f"trained in {seconds:.1f} s, compilation included")
    console.print(f"test accuracy: [bold]{(answers == labels).mean():.2%}[/]")
    console.print(f"saved the model to {output}", soft_wrap=True, markup=False)


def _writable(output: Path | None) -> Path:
    """Where to save the model; raises before the training, not after it."""
    if output is None:
        import platformdirs

        return platformdirs.user_data_path("lamina", ensure_exists=True) / "digits.safetensors"
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder; --output needs a file")
    if not os.access(output.parent, os.W_OK):
        raise PermissionError(f"{output.parent} is not a folder that can be written to")
    return output


def _print_kernels(records: Iterable[KernelRecord], heading: str) -> None:
    """A row for each of the most expensive kernels, and one for the others."""
    import numpy as np
    from rich.table import Column

    totals: dict[str, Any] = defaultdict(lambda: np.zeros(4))
    for record in records:
        totals[record.name] += 1, record.seconds, record.bytes, record.flops
    table = sorted(totals.items(), key=lambda row: -row[1][1])
    if others := table[_TABLE_ROWS:]:
        table[_TABLE_ROWS:] = [(f"{len(others)} others", sum(total for _, total in others))]
    rows = [
        (name, f"{runs:.0f}", f"{seconds * 1e3:.1f}",
         *(f"{total * 1e-9 / max(seconds, 1e-9):.1f}" for total in work))
        for name, (runs, seconds, *work) in table
    ]  # fmt: skip
    titles = (Column(title, justify="right") for title in ("runs", "ms", "GB/s", "GFLOP/s"))
    _print_table(("name", *titles), rows, title=heading)


def _print_digits(images: Any, labels: Any, answers: Any) -> None:
    """A few test images side by side, wrong answers first."""
    order = (answers == labels).argsort(kind="stable")[:_SHOWN]
    titles = []
    for at in order:
        is_right = answers[at] == labels[at]
        titles.append(f"{answers[at]}" if is_right else f"{answers[at]}, is {labels[at]}")
    levels = (images[order, 0] * (len(_SHADES) - 1)).round().astype(int)
    pictures = [
        "\n".join("".join(_SHADES[level] * 2 for level in row) for row in image) for image in levels
    ]
    _print_table(titles, [pictures], title="the network's answers, mistakes first", box=None)
