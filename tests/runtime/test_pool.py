"""The thread pool: every item once, whatever the sizes, the callers and the forks."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamina.core.options import Options
from lamina.runtime import cpu
from lamina.runtime.buffer import Buffer
from lamina.runtime.cpu import CpuProgram

from .sources import ADD_INDEX, HEADER, NESTED, TIMED, UNEVEN, WHO, numbers


def zeros(count: int) -> tuple[Buffer, np.ndarray]:
    buffer = Buffer(8 * count)
    values = np.frombuffer(buffer.view(), np.int64)
    values[:] = 0
    return buffer, values


def check_sum(program: CpuProgram, count: int) -> None:
    buffer, values = zeros(count + 3)
    program.run([buffer, numbers(count)])
    expected = np.zeros(count + 3, np.int64)
    expected[:count] = np.arange(1, count + 1)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_every_item_runs_once(options: Options, threads: int) -> None:
    chosen = Options(cache_dir=options.cache_dir, threads=threads)
    program = CpuProgram(ADD_INDEX, chosen)
    for count in [0, 1, 2, 3, 7, 63, 64, 65, 127, 128, 129, 1000, 4097, 100_003]:
        check_sum(program, count)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(count=st.integers(0, 20_000), threads=st.integers(1, 6))
def test_any_size_and_thread_count(options: Options, count: int, threads: int) -> None:
    chosen = Options(cache_dir=options.cache_dir, threads=threads)
    check_sum(CpuProgram(ADD_INDEX, chosen), count)


def test_negative_count_runs_nothing(options: Options) -> None:
    buffer, values = zeros(4)
    CpuProgram(ADD_INDEX, options).run([buffer, numbers(-5)])
    assert not values.any()


def test_uneven_work_gives_the_serial_result(options: Options) -> None:
    count = 600
    parallel, first = zeros(count)
    serial, second = zeros(count)
    CpuProgram(UNEVEN, options).run([parallel, numbers(count)])
    alone = Options(cache_dir=options.cache_dir, threads=1)
    CpuProgram(UNEVEN, alone).run([serial, numbers(count)])
    assert second.any()
    np.testing.assert_array_equal(first, second)


def test_nested_loops(options: Options) -> None:
    buffer, values = zeros(40 * 25)
    CpuProgram(NESTED, options).run([buffer, numbers(40, 25)])
    expected = np.arange(40)[:, None] * 1000 + np.arange(25)
    np.testing.assert_array_equal(values.reshape(40, 25), expected)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_as_many_threads_as_asked_for(options: Options, threads: int) -> None:
    chosen = Options(cache_dir=options.cache_dir, threads=threads)
    buffer, who = zeros(64)
    CpuProgram(WHO, chosen).run([buffer, numbers(64)])
    assert who.all()
    assert 1 <= len(set(who.tolist())) <= threads
    if threads > 1:
        assert len(set(who.tolist())) > 1


def test_parked_workers_wake_up(options: Options) -> None:
    program = CpuProgram(WHO, options)
    for _ in range(3):
        buffer, who = zeros(64)
        program.run([buffer, numbers(64)])
        assert len(set(who.tolist())) == 2
        time.sleep(0.05)  # five times as long as a worker spins


def test_several_python_threads(options: Options) -> None:
    program = CpuProgram(ADD_INDEX, options)

    def work(offset: int) -> None:
        for count in range(offset, offset + 300):
            check_sum(program, count)

    with ThreadPoolExecutor(3) as executor:
        for result in [executor.submit(work, start) for start in (1, 500, 3000)]:
            result.result(60)


def exit_status_of(child: int, seconds: float) -> int:
    """The status of a child process, which is killed when it takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_makes_its_own_workers(options: Options) -> None:
    program = CpuProgram(WHO, options)
    buffer, who = zeros(64)
    program.run([buffer, numbers(64)])
    assert len(set(who.tolist())) == 2
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # "fork in a threaded process"
            child = os.fork()
        if not child:
            who[:] = 0
            program.run([buffer, numbers(64)])
            os._exit(0 if who.all() and len(set(who.tolist())) == 2 else 1)
        assert exit_status_of(child, 30) == 0
        who[:] = 0
        program.run([buffer, numbers(64)])
        assert who.all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_fork_while_another_thread_is_in_a_loop(options: Options) -> None:
    program = CpuProgram(WHO, options)
    stop = threading.Event()

    def work() -> None:
        mine, _ = zeros(20)
        while not stop.is_set():
            program.run([mine, numbers(20)])

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(5):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if not child:
                buffer, who = zeros(16)
                program.run([buffer, numbers(16)])
                os._exit(0 if who.all() else 1)
            assert exit_status_of(child, 30) == 0
    finally:
        stop.set()
        thread.join(30)


# The pool as a program: it runs itself with the parking of systems that have no futex.
CONDVAR = """
#define LAMINA_POOL_CONDVAR
{pool}
static void body(void *arg, long i) {{ ((int64_t *)arg)[i] += i + 1; }}
static void program(void **buffers, lamina_parallel_fn parallel, double *seconds) {{
    for (int round = 0; round < 4; round++) {{
        parallel(((int64_t *)buffers[1])[0], body, buffers[0]);
        struct timespec nap = {{0, 30000000}};
        nanosleep(&nap, 0);
    }}
}}
void lamina_run(void **buffers, lamina_parallel_fn parallel, double *seconds) {{
    int64_t job[] = {{(int64_t)program, 3, 4, 0, (int64_t)buffers[0], (int64_t)buffers[1]}};
    lamina_call((lamina_job *)job);
}}
"""


def test_parking_without_futex(options: Options) -> None:
    source = CONDVAR.format(pool=cpu.POOL.read_text())
    buffer, values = zeros(5000)
    CpuProgram(source, options).run([buffer, numbers(5000)])
    np.testing.assert_array_equal(values, 4 * np.arange(1, 5001))


def test_times_of_kernels(options: Options) -> None:
    program = CpuProgram(TIMED, options)
    buffers = [Buffer(0), numbers(3)]
    assert program.run(buffers, 3) == [0.0, 0.5, 1.0]
    assert program.run(buffers) == []


def test_integers_wrap_and_memory_changes_its_type(options: Options) -> None:
    source = (
        HEADER
        + """
static int32_t above(int32_t x) { return x + 1 > x; }
static int32_t store(int32_t *a, float *b) { *a = 1; *b = 2.0f; return *a; }
RUN {
    int32_t *out = buffers[0];
    out[1] = above((int32_t)NUMBERS[0]);
    out[2] = store(out, (float *)out);
}
"""
    )
    buffer = Buffer(16)
    CpuProgram(source, options).run([buffer, numbers(2**31 - 1)])
    values = np.frombuffer(buffer.view(), np.int32)
    assert values[1] == 0
    assert values[2] == np.float32(2.0).view(np.int32)


# A program whose parallel loop tells on which core each call was, of two threads with one each.
BOTH = (
    HEADER
    + """
#include <stdatomic.h>
int sched_getcpu(void);
static _Atomic long arrived;
static void both(void *arg, long i) {
    ((int64_t *)arg)[i] = sched_getcpu();
    atomic_fetch_add(&arrived, 1);
    while (atomic_load(&arrived) < 2) {}
}
RUN { arrived = 0; parallel(2, both, buffers[0]); }
"""
)


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or cpu.usable_cores() < 2,
    reason="threads are moved between cores on Linux, where there are two",
)
def test_a_worker_leaves_the_core_of_the_caller(options: Options) -> None:
    """The system may send a worker back at any time, so that not each round counts."""
    program = CpuProgram(BOTH, options)
    buffer, cores = zeros(2)
    program.run([buffer])  # which makes the worker, if there was none
    usable = os.sched_getaffinity(0)
    rounds, apart = 20, 0
    try:
        os.sched_setaffinity(0, {min(usable)})
        for _ in range(rounds):
            for thread in map(int, os.listdir("/proc/self/task")):
                if thread != threading.get_native_id():
                    send(thread, min(usable), usable)
            program.run([buffer])
            apart += bool(cores[0] != cores[1])
    finally:
        os.sched_setaffinity(0, usable)
    assert apart > rounds / 2


def send(thread: int, core: int, usable: set[int]) -> None:
    """Let a thread run on `core`, and then go where the system likes it on cores that are usable,
    unless the thread has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.sched_setaffinity(thread, {core})
        os.sched_setaffinity(thread, usable)
