"""Compiled graphs on disk, so that the next process neither traces nor compiles them.

AOTAutograd keeps its results in a cache of PyTorch's (the folder ``aotautograd`` of
``TORCHINDUCTOR_CACHE_DIR``): how inputs and results alias, and what its compilers made. Its key is
Dynamo's graph with the shapes and strides of the inputs, and all settings of PyTorch's compilers.
Here lamina's part is added to both: the files of lamina, its options and the devices to the key,
and to the entries the text of a call with the programs that it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
from torch import fx
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor import codecache
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch._inductor.output_code import OutputCode

from lamina import stored
from lamina.core.options import current
from lamina.core.text import Text
from lamina.interop.torch.compiled import Compiled, Fallback
from lamina.interop.torch.direct import run_of
from lamina.interop.torch.plan import tensors_in
from lamina.interop.torch.runners import Interpreted
from lamina.runtime.cache import digest
from lamina.runtime.devices import target_of
from lamina.runtime.profile import passes, runs

# PyTorch's cache key includes passes and settings of Inductor's code generators, and imports them
# all to read these: 0.8 s in each process. It also has a digest of all files of Triton, which takes
# 0.3 s, beside the name of the GPU. lamina's entries have no code of theirs, and a part of the key
# with the facts of the GPU (`key_of`), so the key does without.
_NO_CODE_GENERATORS: dict[str, Any] = {
    "init_backend_registration": lambda: None,
    "custom_backend_passes": {},
    "custom_backend_codegen_configs": {},
}
_NO_SYSTEM: dict[str, Any] = {"get_system": staticmethod(dict)}


class _Operation:
    """An overload by its name, as PyTorch's own objects are not written to files."""

    def __init__(self, overload: torch._ops.OpOverload) -> None:
        self._path = (overload.namespace, overload._opname, overload._overloadname)

    def found(self) -> Any:
        value: Any = torch.ops
        for name in self._path:
            value = getattr(value, name)
        return value


class CachedGraph(OutputCode):  # type: ignore[misc]
    """A compiled graph, or what a file has of one."""

    def __init__(self, compiled: Compiled) -> None:
        # The arguments come as one list, which a call empties. Wrappers copy what an object has.
        self._boxed_call = True
        self._text = compiled.steps.text if compiled.steps is not None else None
        self._run: Callable[[list[Any]], Sequence[Any]] = (
            compiled.steps.run if compiled.steps is not None else compiled.__call__
        )

    def __call__(self, inputs: Any) -> Any:
        return self._run(inputs)

    def prepare_for_serialization(self) -> None:
        """Leave what a file can hold; PyTorch calls it on a copy. Raises BypassAOTAutogradCache,
        which PyTorch expects, where that does not do."""
        if self._text is None:
            raise BypassAOTAutogradCache("sizes of the graph are symbols")
        names = {name: _writable(value) for name, value in self._text.names.items()}
        self._text = Text(self._text.lines, names)
        del self._run

    def post_compile(self, *_: Any) -> None:
        """Make what a file had run."""
        assert self._text is not None
        names = {
            name: value.found() if isinstance(value, _Operation) else value
            for name, value in self._text.names.items()
        }
        self._run = run_of(Text(self._text.lines, names))

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Nothing here is Triton's."""


def _writable(value: Any) -> Any:
    """An object that the text of a call names, as a file can hold it."""
    if isinstance(value, torch._ops.OpOverload):
        return _Operation(value)
    if isinstance(value, (Interpreted, torch._ops.OperatorBase)):
        raise BypassAOTAutogradCache(f"{type(value).__name__} is not written to files")
    return value


class _Partitioner(CustomPartitionerFn):  # type: ignore[misc]
    """What PyTorch has a place for in its key: a partitioner of one's own, with a digest."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, gm: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any) -> Any:
        return min_cut_rematerialization_partition(gm, joint_inputs, **kwargs)

    def uuid(self) -> str:
        return self._key


def can_keep(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Whether a file may hold what a graph of Dynamo's is compiled to: for CPUs and NVIDIA's GPUs,
    of fixed sizes, without tensors of its own, as the key does not have their values, and where
    nobody wants to see the compiler at work."""
    options = current()
    is_watched = options.debug or options.check or options.search or passes or runs
    if is_watched or options.device == "interp":
        return False
    own = [*vars(graph).values(), *graph.parameters(), *graph.buffers()]
    has_tensors = any(isinstance(value, torch.Tensor) for value in own)
    return not has_tensors and all(map(_is_fixed, example_inputs))


def _is_fixed(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        sizes = (*value.shape, *value.stride())
        has_programs = value.is_cpu or value.is_cuda
        return has_programs and all(isinstance(size, int) for size in sizes)
    return isinstance(value, (int, float, bool))


def compilers(mode: Fallback) -> dict[str, Any]:
    """The compilers of AOTAutograd, whose results its cache keeps."""

    def compile_graph(module: fx.GraphModule, inputs: Sequence[Any]) -> CachedGraph:
        return CachedGraph(Compiled(module, mode))

    names = ("fw_compiler", "bw_compiler", "inference_compiler")  # one each: it changes them
    return {name: SerializableAOTDispatchCompiler(CachedGraph, compile_graph) for name in names}


def key_of(graph: fx.GraphModule, mode: Fallback) -> str:
    """lamina's part of the key of a graph of Dynamo's: what decides its programs, for the CPU and
    for each GPU that has a tensor of the graph."""
    devices = {"cpu"}
    for node in graph.graph.nodes:
        for tensor in tensors_in(node.meta.get("example_value")):
            if tensor.is_cuda:
                devices.add(str(tensor.device))
    parts = [stored.compiler(), mode.value]
    for device in sorted(devices):
        options = replace(current(), device=device)
        parts += [repr(options), target_of(options).facts]
    return digest(*parts)


@contextmanager
def keeping(key: str) -> Iterator[None]:
    """Within, AOTAutograd uses its cache, with `key` as lamina's part of the key. It compiles the
    backward graph at once, not at the first call, as entries hold both."""
    with (
        torch._functorch.config.patch(
            bundled_autograd_cache=True, force_non_lazy_backward_lowering=True
        ),
        torch._inductor.config.patch(custom_partitioner_fn=_Partitioner(key)),
        # `create`: a release whose key does not read one of these has no such name to replace.
        patch.multiple(codecache, **_NO_CODE_GENERATORS, create=True),
        patch.multiple(codecache.CacheBase, **_NO_SYSTEM, create=True),
    ):
        yield
