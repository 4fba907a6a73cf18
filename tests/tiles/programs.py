"""Tile programs by hand, for the tests of the dialect."""

from __future__ import annotations

# Two warpgroups multiply 128 rows by 64 columns, and a warp fills the buffers. 3 blocks
# have 2 x 2 tiles of ragged results, of ragged steps.
BY_ENGINE = """
tiles by_engine
parameter p0: bf16[20000]
parameter p1: bf16[8000]
parameter p2: bf16[20000] written
alloc left: shared bf16[2][row 128, k 64] swizzle(3, 4, 3)
alloc right: shared bf16[2][k 64, column 64] swizzle(3, 4, 3)
alloc lines: shared bf16[1][row 128, column 64] swizzle(3, 4, 3)
alloc sums: registers f32[1][row 128, column 64] linear
role producer: warps=1
  for tile in whole tiles=4 steps=2 blocks=3 share=4 over a 2, b 2
    for step over line 2
      fill left <- p0[0 | 100: 128*a < 200 | 1: 64*line < 100] by tma
      fill right <- p1[0 | 80: 64*line < 100 | 1: 64*b < 80] by tma
role consumers: warps=8
  for tile in whole tiles=4 steps=2 blocks=3 share=4 over a 2, b 2
    set sums <- 0.0
    for step over line 2
      mma sums += left * right by wgmma running=1
    epilogue
      map v0: bf16 = cast sums
      store p2[0 | 80: 128*a < 200 | 1: 64*b < 80] <- v0 through lines
"""

# The same, and the threads that multiply fill the left buffer themselves.
LEFT = "fill left <- p0[0 | 100: 128*a < 200 | 1: 64*line < 100] by "
BY_THREADS = (
    BY_ENGINE.replace("by_engine", "by_threads")
    .replace("role producer: warps=1", "role producer: inside consumers")
    .replace(f"{LEFT}tma", f"{LEFT}threads")
)

# The same again, and no view says what is read and stored: the left factor is computed.
COMPUTED = BY_THREADS.replace(
    "fill left <- p0[0 | 100: 128*a < 200 | 1: 64*line < 100] by threads",
    "fill left <- elements over 128*a: i 20, m 10 | 64*line: k 100 by threads\n"
    "        gather v0: bf16 = p0[1000*i + 100*m + 1*k]\n"
    "        map v1: f32 = cast v0\n"
    "        map v2: f32 = mul v1 1.0\n"
    "        map v3: bf16 = cast v2",
)
COMPUTED = COMPUTED.replace("epilogue", "epilogue over 128*a: r 200 | 64*b: c 80")
COMPUTED = COMPUTED.replace(
    "store p2[0 | 80: 128*a < 200 | 1: 64*b < 80]",
    "position v1 = 1*c\n      map v2: bool = lt v1 80\n      store p2[80*r + 1*v1] if v2",
)

# Float32 by fused multiply-adds, of tiles that both lie along steps.
BY_FMA = """
tiles by_fma
parameter p0: f32[20000]
parameter p1: f32[8000]
parameter p2: f32[20000] written
alloc left: shared f32[2][row 128, k 32] swizzle(3, 4, 3)
alloc right: shared f32[2][column 64, k 32] swizzle(3, 4, 3)
alloc sums: registers f32[1][row 128, column 64] linear
role producer: inside consumers
  for tile in whole tiles=4 steps=4 blocks=3 share=8 over a 2, b 2
    for step over line 4
      fill left <- p0[0 | 100: 128*a < 200 | 1: 32*line < 100] by threads
      fill right <- p1[0 | 1: 64*b < 80 | 80: 32*line < 100] by tma
role consumers: warps=8
  for tile in whole tiles=4 steps=4 blocks=3 share=8 over a 2, b 2
    set sums <- 0.0
    for step over line 4
      transpose left by 8
      transpose right by 16
      mma sums += left * right by fma
    epilogue
      store p2[0 | 80: 128*a < 200 | 1: 64*b < 80] <- sums
"""
