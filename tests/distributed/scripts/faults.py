"""Rank 1 does something wrong while rank 0 waits for it in an all_reduce, or before that."""

import os
import signal
import sys
import time

import numpy as np

if sys.argv[1] == "raises at first" and os.environ["PMI_RANK"] == "1":
    raise ValueError("a mistake in an import")
from lamina import Tensor, distributed
from lamina.runtime import peers

peers.GRACE_SECONDS = 1.0  # that rank 1 sleeps on
fault = sys.argv[1]
distributed.init(timeout=3.0 if fault == "hangs" else 60.0)
rank = distributed.rank()
print(f"process {os.getpid()}", flush=True)
x = Tensor(np.ones(4, np.float32))
distributed.all_reduce(x).numpy()
if rank == 1:
    if fault == "raises":
        raise ValueError("a mistake in the data")
    if fault == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "ends":
        sys.exit(4)
    if fault == "hangs":
        time.sleep(60)
    if fault == "differs":
        distributed.all_gather(x).numpy()
if fault == "uneven":
    mesh = distributed.Mesh(data=2)
    distributed.of_part(Tensor(np.ones((3 - rank, 5), np.float32)), mesh, ("data", None))
distributed.all_reduce(x * 2.0).numpy()
