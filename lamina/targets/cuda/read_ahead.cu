/* Asks for an array of `size` bytes, a multiple of 16, to be in the second-level cache; each thread
   for 4 KiB of it. Nothing waits until it is there. */
INLINE void read_ahead(const char *array, u64 size) {
    const u64 piece = 4096, start = piece * (BLOCK * blockDim.x + THREAD);
    if (start >= size) return;
    const u32 bytes = size - start < piece ? size - start : piece;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
                 :: "l"(__cvta_generic_to_global(array + start)), "r"(bytes) : "memory");
}
