"""What every test shares: hypothesis profiles, golden files, a cache of its own, verification."""

from __future__ import annotations

import difflib
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from lamina import pipeline, stored
from lamina.core import options
from lamina.runtime.profile import passes
from tests.schedule.machines import rates_of

_SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large)
settings.register_profile(
    "ci", derandomize=True, max_examples=40, deadline=None, suppress_health_check=_SLOW_IS_FINE
)
settings.register_profile(
    "thorough", max_examples=1000, deadline=None, suppress_health_check=_SLOW_IS_FINE
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

Golden = Callable[[Path, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-golden",
        action="store_true",
        help="rewrite golden files and generated pages instead of comparing with them",
    )


def pytest_collection_finish() -> None:
    """Keep the collector of garbage from what lives as long as the run: modules and tests, some
    400,000 objects, which it would go through again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """Keep the collector from what the tests of a file leave as well, such as programs in caches. A
    full collection, which tests of memory ask for again and again, took 0.7 s late in a run."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A disk cache that starts empty and is shared by the whole run, children included."""
    folder = tmp_path_factory.mktemp("lamina-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAMINA_CACHE_DIR", str(folder))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder / "inductor"))
        options.set_options(cache_dir=str(folder))  # of all threads
        yield folder


@pytest.fixture(autouse=True)
def own_programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test finds no program on disk that another test stored: the passes run in it, as they do
    alone. Compiled code is shared."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "_PACKAGE", request.node.nodeid)
        yield


@pytest.fixture(scope="session", autouse=True)
def rates() -> Iterator[None]:
    """Predictions are made for one machine; measuring this one takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "rates_of", rates_of)
        yield


@pytest.fixture(scope="session", autouse=True)
def verification() -> Iterator[None]:
    """The compiler verifies every program after every pass."""
    with pytest.MonkeyPatch.context() as patch:
        publish = passes.publish

        def verified(record: pipeline.PassRecord) -> None:
            pipeline.verify(record.pass_.writes, record.after)
            publish(record)

        patch.setattr(passes, "publish", verified)
        yield


@pytest.fixture
def on_cpu() -> Iterator[None]:
    """For tests of the CPU's own schedules, text and memory, whatever LAMINA_DEVICE is."""
    with options.using(device="cpu"):
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """``golden(path, text)`` fails unless the file holds `text`; --refresh-golden writes it."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--refresh-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if before != text:
            lines = difflib.unified_diff(
                before.splitlines(), text.splitlines(), str(path), "now", lineterm=""
            )
            pytest.fail("\n".join([*lines, "accept it with: pytest --refresh-golden"]))

    return check
