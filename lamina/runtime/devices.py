"""The facts of a device, asked of its driver or compiler."""

from lamina.core.options import GPU_KINDS, Options
from lamina.core.rates import GPUS, Rates
from lamina.core.target import METAL, Target, cpu_target, cuda_target
from lamina.errors import ArgumentError
from lamina.runtime import compiler, cuda
from lamina.runtime.calibrate import cpu_rates
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


def rates_of(options: Options) -> Rates:
    """How fast the device of `options` is: a CPU as measured, once on each machine, a GPU as a row
    of `lamina/core/rates.py` says. Raises ArgumentError for a GPU without a row,
    CompilerNotFoundError for a CPU without a C compiler, and CompileError, or OSError as the
    library is loaded, where that cannot build the measuring program."""
    if options.kind not in GPU_KINDS:
        return cpu_rates(options)
    arch = target_of(options).arch
    if arch not in GPUS:
        known = ", ".join(GPUS)
        raise ArgumentError(
            f"cost: nobody has measured how fast {arch or options.device} is; of GPUs there are "
            f"the rates of {known}"
        )
    return GPUS[arch]
