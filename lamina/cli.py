"""The command ``lamina``: a demonstration, and what is worth knowing about this installation."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lamina.errors import LaminaError

if TYPE_CHECKING:
    from rich.console import Console

    from lamina.models.digits import DigitsNet
    from lamina.runtime.profile import KernelRecord

FAILED, INTERRUPTED = 1, 130  # 2 is argparse's, for a wrong command line
_SHADES = {True: " ░▒▓█", False: " .:*#"}  # for terminals with and without Unicode
_SHOWN = 4  # images
_TABLE_ROWS = 12


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED
    except (LaminaError, OSError, ValueError) as error:
        # The line of the user's program, which errors end with, would be our own.
        print(f"lamina: error: {str(error).partition(chr(10) + '  at ')[0]}", file=sys.stderr)
        return FAILED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lamina",
        description="A deep learning compiler in thin layers.",
        epilog="LAMINA_DEBUG=1 prints a line for every kernel that runs, 4 its source. "
        "LAMINA_DEVICE=interp uses the reference interpreter.",
    )
    parser.add_argument("--version", action="version", version=f"lamina {_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo = _command(commands, "demo", _demo, "train a small network on handwritten digits")
    default = " (default: %(default)s)"
    epochs, seed = "passes over the training images", "of the initial weights and the order"
    output = "where to save the model (default: the user's data folder)"
    demo.add_argument("--epochs", type=_count, default=15, metavar="N", help=epochs + default)
    demo.add_argument("--seed", type=int, default=0, metavar="N", help=seed + default)
    demo.add_argument("--output", type=Path, metavar="FILE", help=output)
    _command(commands, "passes", _passes, "list the passes of the compiler, in order")
    _command(commands, "ops", _ops, "list the operations of the compiler's programs")
    _command(commands, "doctor", _doctor, "look for what lamina needs on this machine")
    return parser


def _command(commands: Any, name: str, run: Any, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=what, description=f"{what[0].upper()}{what[1:]}."
    )
    parser.set_defaults(run=run)
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def _version() -> str:
    from lamina import __version__

    return __version__


def _console() -> Console:
    from rich.console import Console

    # Away from a terminal, lines are for files and other programs: never wrap them.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


# lamina passes, lamina ops, lamina doctor.


def _passes(options: argparse.Namespace) -> int:
    from rich.table import Table

    from lamina.pipeline import PASSES

    table = Table("", "pass", "reads", "writes", "function")
    for number, one in enumerate(PASSES, 1):
        where = f"{one.function.__module__}.{one.function.__qualname__}"
        table.add_row(str(number), one.name, one.reads, one.writes, where)
    _console().print(table)
    return 0


def _ops(options: argparse.Namespace) -> int:
    from lamina.explain.ops import ops_markdown

    text = ops_markdown()
    if sys.stdout.isatty():
        from rich.markdown import Markdown

        _console().print(Markdown(text))
    else:
        print(text)
    return 0


def _doctor(options: argparse.Namespace) -> int:
    """The status is 1 when nothing can compile here."""
    from rich.table import Table

    from lamina.runtime import doctor

    rows = doctor()
    table = Table("item", "", "finding", "remedy")
    for item, finding, fine, remedy in rows:
        table.add_row(item, "[green]ok[/]" if fine else "[yellow]--[/]", finding, remedy)
    _console().print(table)
    compiles = any(fine for item, _, fine, _ in rows if item == "compiler")
    return 0 if compiles else FAILED


# lamina demo.


def _demo(options: argparse.Namespace) -> int:
    import time

    from lamina import datasets, nn
    from lamina.io import safetensors
    from lamina.models.digits import predictions

    console = _console()
    output = options.output or _default_output()
    _check_writable(output)
    data = datasets.digits()
    console.print(
        f"{data.train_images.shape[0]} handwritten digits of 8 x 8 pixels to learn from, "
        f"{data.test_images.shape[0]} for the test"
    )
    started = time.perf_counter()
    model, records = _trained(console, data, options.epochs, options.seed)
    seconds = time.perf_counter() - started
    found = predictions(model, data.test_images).numpy()
    labels = data.test_labels.numpy()
    console.print(_kernel_table(records))
    _show_digits(console, data.test_images.numpy(), labels, found)
    safetensors.save(output, nn.state_dict(model), {"format": "pt"})
    console.print(f"trained in {seconds:.1f} s, compilation included")
    console.print(f"test accuracy: [bold]{(found == labels).mean():.2%}[/]")
    console.print(f"saved the model to {output}", soft_wrap=True)
    return 0


def _default_output() -> Path:
    import platformdirs

    folder = Path(platformdirs.user_data_dir("lamina"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "digits.safetensors"


def _check_writable(output: Path) -> None:
    """Raise before the training, not after it."""
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a folder; --output needs a file")
    if not os.access(output.parent, os.W_OK):
        raise PermissionError(f"{output.parent} is not a folder that can be written to")


def _trained(
    console: Console, data: Any, epochs: int, seed: int
) -> tuple[DigitsNet, list[KernelRecord]]:
    """Train with a progress bar on a terminal, or with a line an epoch."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    from lamina.models.digits import steps_of, train
    from lamina.pipeline import profile

    steps = steps_of(data, epochs)
    recent: list[tuple[float, float]] = []
    figures = "loss {task.fields[loss]:.3f}  accuracy {task.fields[accuracy]:.1%}"
    columns = ("training", BarColumn(), MofNCompleteColumn(), figures, TimeElapsedColumn())
    with (
        profile() as records,
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
    ):
        task = bar.add_task("", total=steps, loss=float("nan"), accuracy=0.0)

        def report(step: int, loss: float, accuracy: float) -> None:
            recent.append((loss, accuracy))
            del recent[: -steps // epochs]
            losses, rates = zip(*recent, strict=True)
            mean, rate = sum(losses) / len(losses), sum(rates) / len(rates)
            bar.update(task, completed=step, loss=mean, accuracy=rate)
            if not console.is_terminal and step * epochs % steps == 0:
                print(f"epoch {step * epochs // steps:2} of {epochs}: loss {mean:.3f}, "
                      f"accuracy {rate:.1%}", flush=True)  # fmt: skip

        model = train(data, epochs, seed, report)
    return model, records


def _kernel_table(records: Iterable[KernelRecord]) -> Any:
    """A row for each of the most expensive kernels, and one for the others."""
    from rich.table import Table

    kernels: dict[str, list[KernelRecord]] = {}
    for record in records:
        kernels.setdefault(record.name, []).append(record)
    table = Table(title="kernels of the training")
    table.add_column("name")
    for title in ("runs", "ms", "GB/s", "GFLOP/s"):
        table.add_column(title, justify="right")
    rows = [(sum(one.seconds for one in runs), name, runs) for name, runs in kernels.items()]
    rows.sort(reverse=True, key=lambda row: row[:2])
    others = [one for _, _, runs in rows[_TABLE_ROWS:] for one in runs]
    if others:
        name = f"{len(rows) - _TABLE_ROWS} others"
        rows[_TABLE_ROWS:] = [(sum(one.seconds for one in others), name, others)]
    for seconds, name, runs in rows:
        rate = 1e-9 / max(seconds, 1e-9)
        table.add_row(
            name,
            str(len(runs)),
            f"{seconds * 1e3:.1f}",
            f"{sum(one.bytes for one in runs) * rate:.1f}",
            f"{sum(one.flops for one in runs) * rate:.1f}",
        )
    return table


def _show_digits(console: Console, images: Any, labels: Any, found: Any) -> None:
    """A few test images side by side, wrong answers first."""
    shades = _SHADES["utf" in (console.encoding or "").lower()]
    order = sorted(range(len(labels)), key=lambda at: found[at] == labels[at])[:_SHOWN]
    titles = [f"{found[at]}" if found[at] == labels[at] else f"{found[at]}, is {labels[at]}"
              for at in order]  # fmt: skip
    console.print("\nthe network's answers, mistakes first")
    console.print("  ".join(f"{title:<16}" for title in titles).rstrip())
    for row in range(images.shape[2]):
        parts = [
            "".join(shades[round(float(pixel) * (len(shades) - 1))] * 2
                    for pixel in images[at, 0, row])
            for at in order
        ]  # fmt: skip
        console.print("  ".join(parts), markup=False)
    console.print()
