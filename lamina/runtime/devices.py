"""The facts of a device, asked of its driver or compiler."""

from lamina.core.options import Options
from lamina.core.target import METAL, Target, cpu_target, cuda_target
from lamina.runtime import compiler, cuda
from lamina.runtime.cpu import l2_bytes, usable_cores


def target_of(options: Options) -> Target:
    """The target that programs for the device of `options` are made for.

    A GPU that this machine does not have is a row of `lamina/core/target.py`. The interpreter's
    programs are the CPU's. Raises CompilerNotFoundError for a CPU without a C compiler.
    """
    if options.kind == "cuda":
        return cuda_target(options.arch) if options.arch else cuda.target_of(options.device)
    if options.kind == "metal":
        return METAL
    used = compiler.find(options)
    cores = options.threads or usable_cores()
    return cpu_target(used.vector_bytes, cores, used.engines, l2_bytes())
