"""NVIDIA GPUs through the driver and NVRTC: memory, copies, cubins and launches.

Everything on one device is in the order of one stream, so a block that is freed serves the next
buffer at once, and a result is there when a copy to the host has ended. NVIDIA's own packages are
imported when a device is first used: that takes a while.
"""

import functools
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from typing import Any

from lamina.core.options import Options
from lamina.core.target import DEFAULT_CUDA, Target, cuda_engines
from lamina.errors import (
    DeviceError,
    OutOfMemoryError,
    UnknownDeviceError,
)
from lamina.runtime.buffer import NOTHING, Buffer, Heap, Launch, TensorMap, heap_of
from lamina.runtime.collectives import NOWHERE, Places, Window, engine_for, parts_of
from lamina.runtime.nvrtc import PACKAGES, build
from lamina.runtime.overlap import ExchangeStream, OrderedRun, awaited_at_once
from lamina.runtime.source import Source, symbol_of
from lamina.runtime.transfers import Transfers

_PINNED = 1 << 30  # bytes of host memory that are kept for copies
_REMEMBERED = 8  # kernels to name when one of them has failed
_BARRIERS = 1024  # bytes of shared memory that are left for barriers
_GRAPHS = 32  # of one program, each for buffers in other places
_DRIVER = "install NVIDIA's driver, and see that nvidia-smi lists a GPU"


@functools.cache
def names() -> list[str]:
    """The GPUs of this machine. Raises UnknownDeviceError, with what to do, when none can work."""
    try:
        from cuda.bindings import driver, nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError):  # of this, of what is not there itself
        raise UnknownDeviceError(
            "the packages are not installed", operation="cuda", remedy=PACKAGES
        ) from None
    try:
        (code,) = driver.cuInit(0)
    except RuntimeError:
        code = "it is not installed"
    if code:
        raise UnknownDeviceError(
            f"the driver does not work: {code!s}", operation="cuda", remedy=_DRIVER
        )
    return [f"cuda:{number}" for number in range(driver.cuDeviceGetCount()[1])]


@functools.cache
def target_of(device: str) -> Target:
    """The facts of a GPU, asked without making it ready; of one that this machine does not have,
    those of DEFAULT_CUDA."""
    try:
        available = names()
    except UnknownDeviceError:
        return DEFAULT_CUDA
    name = available[0] if device == "cuda" and available else device
    return _ask(available.index(name)) if name in available else DEFAULT_CUDA


def _ask(number: int) -> Target:
    """The facts of a GPU of this machine."""
    from cuda.bindings import driver

    _, handle = driver.cuDeviceGet(number)

    def fact(name: str) -> int:
        attribute = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        code, value = driver.cuDeviceGetAttribute(attribute, handle)
        if code:
            raise DeviceError(f"cuda:{number}: cuDeviceGetAttribute: {name}: {code.name}")
        return int(value)

    major, minor = fact("COMPUTE_CAPABILITY_MAJOR"), fact("COMPUTE_CAPABILITY_MINOR")
    arch = f"sm_{major}{minor}{'a' if major >= 9 else ''}"
    return replace(
        DEFAULT_CUDA,
        arch=arch,
        multiprocessors=fact("MULTIPROCESSOR_COUNT"),
        warp=fact("WARP_SIZE"),
        shared_bytes=fact("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        l2_bytes=fact("L2_CACHE_SIZE"),
        engines=cuda_engines(arch),
    )


class Device(Heap):
    """One GPU: its context, its stream and its memory."""

    visible, cached = False, 0  # nothing is kept before there is a heap
    # What waits for this GPU where other processes may have to do something first: it calls a
    # function until that says that work is done, all that was launched or a part of it. See
    # `lamina/runtime/nccl.py`.
    guard: Callable[[Callable[[], bool], bool], None] | None = None

    def __init__(self, number: int) -> None:
        from cuda.bindings import driver

        self.driver, self.name = driver, f"cuda:{number}"
        self.dlpack = (2, number)
        self.launched: deque[Launch] = deque(maxlen=_REMEMBERED)  # since the last wait
        # What programs that are gone had: a function of the driver, and what that lets go of.
        self.retired: deque[tuple[str, *tuple[Any, ...]]] = deque()
        self.transfers = Transfers(self)
        self.handle = self.call("cuDeviceGet", number)
        self.context = self.call("cuDevicePrimaryCtxRetain", self.handle)
        self.enter()
        apart = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self.stream, self.recorder = (self.call("cuStreamCreate", apart) for _ in range(2))
        self.lock = threading.Lock()  # graphs are for one thread at a time
        self.total = self.call("cuDeviceTotalMem", self.handle)
        self.target = target_of(self.name)
        self.arch = self.target.arch
        self.room = self.target.shared_bytes - _BARRIERS
        self.engine = "tma" in self.target.engines
        self.early = early = driver.CUlaunchAttribute()  # a kernel may begin while one ends
        early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        early.value.programmaticStreamSerializationAllowed = 1
        super().__init__(self.total // 2, self.name)
        self.staging = Heap(_PINNED, self.name)  # which a GPU reads and writes by itself
        self.staging.reserve = partial(self.reserve, function="cuMemAllocHost")
        self.staging.release = partial(self.release, function="cuMemFreeHost")

    def __str__(self) -> str:
        label = self.call("cuDeviceGetName", 256, self.handle).partition(b"\0")[0].decode()
        return f"{label}, {self.total / 2**30:.0f} GiB, {self.arch}"

    def call(self, function: str, *arguments: Any, about: object = "") -> Any:
        """The result of a function of the driver; raises DeviceError naming it, and `about`."""
        results = self.call_for_all(function, *arguments, about=about)
        return results[0] if results else None

    def call_for_all(self, function: str, *arguments: Any, about: object = "") -> Sequence[Any]:
        """All results of a function of the driver, and otherwise `call`."""
        code, *rest = getattr(self.driver, function)(*arguments)
        if not code:
            results: list[Any] = rest
            return results
        full = code is self.driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        if full and self.cached:  # what is kept may be what is missing
            self.empty()
            again: Sequence[Any] = self.call_for_all(function, *arguments, about=about)
            return again
        _, text = self.driver.cuGetErrorString(code)
        where = ": ".join(str(name) for name in (self.name, about, function) if name)
        what = f"{where}: {code.name}: {(text or b'').decode()}"
        if full:
            raise OutOfMemoryError(what)
        if self.launched:
            what += f"; one of the last may be to blame: {'; '.join(map(str, self.launched))}"
            what += "; with LAMINA_DEBUG=1 each run is waited for, and the line is its own"
        raise DeviceError(what)

    def enter(self) -> None:
        """Make this the device of the calling thread."""
        self.driver.cuCtxSetCurrent(self.context)

    def synchronize(self) -> None:
        self.enter()
        self._wait_for_others()
        unused = len(self.retired)  # now; what comes meanwhile may have been launched meanwhile
        self.call("cuStreamSynchronize", self.stream)
        self.launched.clear()
        self.transfers.forget()
        for _ in range(unused):
            with suppress(IndexError):  # another thread was quicker
                self.call(*self.retired.popleft())

    def _wait_for_others(self) -> None:
        """Wait for the collectives among the work of the stream. Raises RankError, as their engine
        does, where other processes do not do their part: then the stream is never idle again."""
        if self.guard is not None:
            self.guard(self._is_idle, True)

    def _is_idle(self) -> bool:
        """Whether the stream has done all its work; True as well where it failed, which the next
        call says."""
        code, *_ = self.driver.cuStreamQuery(self.stream)
        return code is not self.driver.CUresult.CUDA_ERROR_NOT_READY

    @functools.cached_property
    def exchange_stream(self) -> ExchangeStream:
        """That of collectives."""
        return ExchangeStream(self)

    def fill_with_zeros(self, pointer: int, nbytes: int, stream: int) -> None:
        """Fill memory when a stream, whose address is given, comes to it."""
        self.call("cuMemsetD8Async", pointer, 0, nbytes, self.driver.CUstream(stream))

    def lead(self, stream: int) -> None:
        """Let another stream of this GPU wait for everything that was launched here. `stream` is
        its address, 1 the legacy default stream and 2 that of the thread, as in DLPack."""
        self._wait(self.driver.CUstream(stream), self.stream)

    def follow(self, stream: int) -> None:
        """Let what is launched here from now on wait for another stream, told as in `lead`."""
        self._wait(self.stream, self.driver.CUstream(stream))

    def _wait(self, waiting: Any, first: Any) -> None:
        """Let one stream wait for what another one has to do until now. The host does not wait."""
        self.enter()
        untimed = self.driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        event = self.call("cuEventCreate", untimed)
        self.call("cuEventRecord", event, first)
        self.call("cuStreamWaitEvent", waiting, event, 0)
        self.call("cuEventDestroy", event)  # the driver keeps what a stream still waits for

    def reserve(self, size: int, function: str = "cuMemAlloc") -> int:
        self.enter()
        try:
            return int(self.call(function, size))
        except OutOfMemoryError:
            return 0

    def release(self, pointer: int, function: str = "cuMemFree") -> None:
        self.enter()
        self.call(function, pointer)

    def copy(self, source: Buffer, target: Buffer) -> None:
        for buffer in (source, target):
            if buffer.device != self.name:
                heap_of(buffer.device).synchronize()  # a peer's stream has an order of its own
        self.enter()
        self._wait_for_others()
        if size := source.nbytes:
            self.call("cuMemcpyAsync", target.pointer, source.pointer, size, self.stream)
        self.synchronize()

    def send(self, source: Buffer, target: Buffer) -> None:
        self.transfers.send(source, target)

    def fetch(self, source: Buffer) -> Callable[[], Buffer]:
        return self.transfers.fetch(source)


class CudaProgram:
    """The loaded kernels and the launches of a program. Raises CompileError when NVRTC refuses the
    source."""

    def __init__(self, source: Source, launches: Sequence[Launch], options: Options) -> None:
        self._modules: dict[str, Any] = {}  # by the name of the kernel
        self._graphs: dict[tuple[int, ...], Any] = {}  # by the places of buffers
        self._ran_elsewhere = self._is_recorded = False  # see `run_on`
        device = heap_of(options.device)
        assert isinstance(device, Device)
        self.device = device
        self.launches = [
            launch._replace(shared=min(launch.shared, device.room)) for launch in launches
        ]
        self._exchanges = source.exchanges
        self._parts = parts_of(source.exchanges)
        self._on_main = awaited_at_once(launches)
        self._places = _places_in_arena(launches)
        # The addresses that each collective is to have instead of its own, if any.
        self._staged: list[tuple[int, int] | None] = [None] * len(self._exchanges)
        device.enter()
        self._functions = self._loaded(build(source, device.arch, options))
        self._allow_shared_memory()
        self._last = self.launches[-_REMEMBERED:]
        names = ", ".join(map(str, self._last))
        self._about = f"a program of {len(launches)} kernels that ends with {names}"

    def _loaded(self, cubins: Mapping[str, bytes]) -> list[Any]:
        """The function of each launch; None for that of a collective."""
        device = self.device
        functions: dict[str, Any] = {}
        for name, cubin in cubins.items():
            about = f"kernel {name}"
            module = device.call("cuModuleLoadData", cubin, about=about)
            self._modules[name] = module
            symbol = symbol_of(name).encode()
            functions[name] = device.call("cuModuleGetFunction", module, symbol, about=about)
        return [
            None if launch.exchange >= 0 else functions[launch.name] for launch in self.launches
        ]

    def _allow_shared_memory(self) -> None:
        """Let each function have the shared memory of its launch: without, 48 KiB are the limit."""
        attributes = self.device.driver.CUfunction_attribute
        shared_bytes = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        for function, launch in zip(self._functions, self.launches, strict=True):
            if function is not None and launch.shared:
                self.device.call(
                    "cuFuncSetAttribute", function, shared_bytes, launch.shared, about=launch
                )

    def __del__(self) -> None:
        """Let go of the kernels when the device has next done all its work: a finaliser may run
        inside any call, and the last launch may not have ended."""
        graphs = [("cuGraphExecDestroy", graph) for graph in self._graphs.values() if graph]
        modules = [("cuModuleUnload", module) for module in self._modules.values()]
        if self._is_recorded:  # graphs of another library's launch the kernels
            return
        if self._ran_elsewhere and (graphs or modules):
            self.device.retired.append(("cuCtxSynchronize",))  # the wait is for one stream
        if graphs or modules:
            self.device.retired.extend(graphs + modules)

    def arena(self, nbytes: int) -> Buffer:
        """Memory for the scratch arrays of a run, `nbytes` bytes. Of a program with collectives it
        is a window, if there is one with arrays at its places; see `lamina.runtime.windows`."""
        window = self._agreed_window(nbytes)
        if window is not None:
            return window.buffer
        return Buffer(nbytes, self.device.name) if nbytes else NOTHING

    def _agreed_window(self, nbytes: int) -> Window | None:
        """The window that is the memory for scratch arrays. If there are only others, collectives
        run there all the same, as other processes take theirs to do: `_staged` says where."""
        self._staged = [None] * len(self._exchanges)
        for part in self._parts:
            numbers = [
                number for number, exchange in enumerate(self._exchanges) if part.has(exchange)
            ]
            is_alone = len(self._parts) == 1  # a window is of one group
            places = tuple(self._places[number] if is_alone else NOWHERE for number in numbers)
            engine = engine_for(self._exchanges[0], "cuda")
            window = engine.window(part, places, nbytes)
            if window is None:
                continue
            if window.places == places and nbytes <= window.buffer.nbytes:
                return window
            for place, number in enumerate(numbers):
                if window.holds(place):
                    self._staged[number] = window.addresses(place)
        return None

    def run(self, buffers: Sequence[Buffer], timed: int = 0) -> list[float]:
        """Launch the program; the seconds of each of its kernels where `timed` is their number."""
        job = self.job(buffers)
        if timed:
            self.device.enter()
            return self._timed(job)
        self.call(job)
        return []

    def job(self, buffers: Sequence[Buffer]) -> list[int]:
        """What `call` takes: the addresses of `buffers`."""
        return [buffer.pointer for buffer in buffers]

    def call(self, job: Sequence[int]) -> None:
        """Launch the program on buffers at these addresses."""
        self.device.enter()
        self._launch(tuple(job), self.device.stream)

    def run_on(self, stream: int, places: tuple[int, ...], is_captured: bool = False) -> None:
        """Launch the program on a stream of another library's, whose address is given, 0 for the
        legacy default stream: what it does next waits for the results. places: the addresses of the
        buffers, all multiples of 64. is_captured: the stream is recorded for a graph of that
        library's, into which each kernel goes. Its GPU is to be the calling thread's."""
        self._ran_elsewhere = True
        handle = self.device.driver.CUstream(stream)
        if is_captured:
            self._is_recorded = True
            list(self._launched(places, handle))
        else:
            self._launch(places, handle)

    def _launch(self, places: tuple[int, ...], stream: Any) -> None:
        device = self.device
        with device.lock:
            if graph := self._graphs.get(places) or self._graph(places):
                device.call("cuGraphLaunch", graph, stream, about=self._about)
            else:
                list(self._launched(places, stream))
        device.launched.extend(self._last)
        if self._exchanges:  # the GPU works meanwhile
            engine_for(self._exchanges[0], "cuda").compare(self._parts)

    def _launched(
        self, places: Sequence[int], stream: Any, *, overlaps: bool = True
    ) -> Iterator[Launch]:
        """Launch the kernels, each when it is asked for: it may begin while the one before ends.
        overlaps: collectives run beside kernels, where these do not need them."""
        apart = self.device.exchange_stream if self._exchanges and overlaps else None
        ordered = OrderedRun(self.device, stream, apart, self._on_main)
        is_early = self.device.engine  # a kernel may begin while what was launched before it ends
        for function, launch in zip(self._functions, self.launches, strict=True):
            addresses = [places[number] + offset for number, offset in launch.arguments]
            if launch.exchange >= 0:
                staged = self._staged[launch.exchange]
                operand, result = addresses
                ordered.begin(self._exchanges[launch.exchange], operand, result, staged)
            else:
                waits = ordered.wait_for(launch.after)
                is_early = is_early and not waits
                self._launch_kernel(function, launch, addresses, stream, is_early)
                is_early = self.device.engine
            yield launch
        ordered.end()

    def _launch_kernel(
        self, function: Any, launch: Launch, addresses: Sequence[int], stream: Any, is_early: bool
    ) -> None:
        """Launch a kernel on arrays at these addresses. The driver takes the address of each
        argument: of the 8 bytes of an address of an array, and of each tensor map."""
        maps = [
            _tensor_map(self.device, addresses[tensor_map.parameter], tensor_map)
            for tensor_map in launch.maps
        ]
        arguments = array("Q", addresses)
        first, count = arguments.buffer_info()
        pointers = array("Q", range(first, first + 8 * count, 8))
        pointers.extend(encoded.getPtr() for encoded in maps)
        config = self.device.driver.CUlaunchConfig()
        config.gridDimX = launch.blocks
        config.gridDimY = config.gridDimZ = 1
        config.blockDimX = launch.threads
        config.blockDimY = config.blockDimZ = 1
        config.sharedMemBytes = launch.shared
        config.hStream = stream
        config.attrs = [self.device.early]
        config.numAttrs = is_early  # 0 leaves the attribute out
        table, _ = pointers.buffer_info()
        self.device.call("cuLaunchKernelEx", config, function, table, 0, about=launch)

    def _timed(self, places: Sequence[int]) -> list[float]:
        call, stream = self.device.call, self.device.stream
        events = [call("cuEventCreate", 0) for _ in range(len(self.launches) + 1)]
        # Written while the host gets ahead: twice what the cache holds, so that nothing else stays.
        other = Buffer(2 * self.device.target.l2_bytes, self.device.name)
        call("cuMemsetD8Async", other.pointer, 0, other.nbytes, stream)
        if self._exchanges:
            engine_for(self._exchanges[0], "cuda").compare(self._parts)
        launched = self._launched(places, stream, overlaps=False)
        for event, _ in zip(events, chain([None], launched), strict=True):
            call("cuEventRecord", event, stream)
        self.device.synchronize()
        seconds = [1e-3 * call("cuEventElapsedTime", *pair) for pair in pairwise(events)]
        for event in events:
            call("cuEventDestroy", event)
        return seconds

    def _graph(self, places: tuple[int, ...]) -> Any:
        """All kernels as a graph, which is quicker to launch than one of them, if buffers came back
        to the same places: that makes it worth its while. The last few are kept.

        A program with collectives is always a graph: NCCL wants a collective to be recorded by all
        processes or by none, and each has buffers at places of its own."""
        call, driver = self.device.call, self.device.driver
        known = places in self._graphs or bool(self._exchanges)
        self._graphs[places] = None
        if len(self._graphs) > _GRAPHS and (old := self._graphs.pop(next(iter(self._graphs)))):
            call("cuGraphExecDestroy", old)
        if known:
            recorder, mode = self.device.recorder, driver.CUstreamCaptureMode
            call("cuStreamBeginCapture", recorder, mode.CU_STREAM_CAPTURE_MODE_RELAXED)
            try:
                list(self._launched(places, recorder))
            finally:  # of a launch that was refused as well, or nothing could be recorded again
                _, graph = driver.cuStreamEndCapture(recorder)
            self._graphs[places] = call("cuGraphInstantiate", graph, 0, about=self._about)
            call("cuGraphDestroy", graph)
        return self._graphs[places]


def _places_in_arena(launches: Sequence[Launch]) -> Places:
    """Where the arrays of each collective begin in the scratch memory, buffer 0."""
    places = []
    for launch in launches:
        if launch.exchange >= 0:
            (operand, result) = launch.arguments
            places.append((_offset_in_arena(*operand), _offset_in_arena(*result)))
    return tuple(places)


def _offset_in_arena(number: int, offset: int) -> int:
    return offset if number == 0 else -1


@functools.lru_cache(maxsize=4096)
def _tensor_map(device: Device, pointer: int, array: TensorMap) -> Any:
    """The driver's description of an array of the argument at `pointer`."""
    driver = device.driver
    if not device.engine:
        return driver.CUtensorMap()  # nothing reads it
    words = driver.cuuint32_t
    sizes = [driver.cuuint64_t(size) for size in array.sizes]
    strides = [driver.cuuint64_t(stride) for stride in array.strides]
    if array.corners:
        function = "cuTensorMapEncodeIm2col"
        low, high, steps = map(list, zip(*array.corners, strict=True))
        channels, pixels = array.box[:2]
        box = [low, high, words(channels), words(pixels)]
    else:
        function = "cuTensorMapEncodeTiled"
        steps = list(array.box[2:])
        box = [[words(size) for size in array.box]]
    return device.call(
        function,
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{array.element_kind}"),
        len(array.sizes), pointer + array.offset, sizes, strides, *box,
        [words(step) for step in (1, *steps, 1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )  # fmt: skip
