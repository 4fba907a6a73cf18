/* Results, stored by whole rows. A row has a line of 128 bytes, beside the buffers, or in them once all
   threads are done where no TMA fills them. Its 16-byte chunks are permuted by the number of the row,
   so that neither threads that write two neighbours nor threads that read a chunk meet in one bank. A
   warp fills its lines with the results of its sums, then writes these lines to memory, in chunks C of
   as many bytes as all rows are aligned to, and goes on with the next 128 bytes of each row. */

template <class T> INLINE int in_lines(int row, int place) {
    return row * 128 + (place ^ row * (int)sizeof(T) / 2 % 8 << 4);
}
/* A compiler may take a plain store of 16 bytes apart, and none of a number. */
INLINE void store_chunk(void *to, uint4 chunk) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :: "l"(__cvta_generic_to_global(to)), "r"(chunk.x), "r"(chunk.y), "r"(chunk.z),
                    "r"(chunk.w) : "memory");
}
template <class C> INLINE void store_chunk(void *to, C chunk) { *(C *)to = chunk; }

/* Fills the lines of a warp, at `warp_lines`, with `values`, of which the first is at byte `place` of a row. */
template <class T, int count> INLINE void fill_lines(u8 *warp_lines, int place, const T (&values)[count]) {
    struct __align__(2 * sizeof(T)) Pair { T first, second; };
    const int lane = threadIdx.x % 32;
#if HAS_TMA
    if constexpr (sizeof(T) == 2 && count == 8) {
        const u32 to = shared_address(warp_lines) + in_lines<T>(lane % 16, place + lane / 16 * 16);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                     :: "r"(to), "r"((u16)values[0] | values[1] << 16),
                        "r"((u16)values[2] | values[3] << 16), "r"((u16)values[4] | values[5] << 16),
                        "r"((u16)values[6] | values[7] << 16) : "memory");
        return;
    }
#endif
    _Pragma("unroll") for (int i = 0; i < count; i += 2)
        *(Pair *)(warp_lines + in_lines<T>(i / 2 % 2 * 8 + lane / 4,
                                           place + (i / 4 * 8 + lane % 4 * 2) * (int)sizeof(T)))
            = Pair{values[i], values[i + 1]};
}

/* Stores the results of the sums from number `at` on; rows are `pitch` elements apart. Nothing is
   written beyond `rows` and `columns`. */
template <class C, class T, int count>
INLINE void store_results(T *to, i64 pitch, i64 rows, i64 columns, u8 *lines, int at,
                          const T (&values)[count]) {
    constexpr int width = 128 / sizeof(T), row_chunks = 128 / sizeof(C), lanes = width / row_chunks;
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
    u8 *warp_lines = lines + warp_row * 128;
    fill_lines(warp_lines, at / 4 * 8 % width * (int)sizeof(T), values);
    if ((at + count) % (width / 2)) return;
    __syncwarp();
    const int row = lane / row_chunks, column = lane % row_chunks * lanes, first = at / (width / 2) * width;
    const int last = min(rows, (i64)1024) - warp_row - row, end = min(columns, (i64)1024) - column;
    T *start = to + (warp_row + row) * pitch + column;
    _Pragma("unroll") for (int some = 0; some < 16 * row_chunks; some += 128) {
        C chunks[4];
        const auto each = [&](auto move) {
            _Pragma("unroll") for (int at = some; at < some + 128; at += 32)
                move(chunks[at / 32 % 4], at / row_chunks, at % row_chunks * lanes);
        };
        each([&](C &chunk, int i, int j) {
            chunk = *(C *)(warp_lines + in_lines<T>(row + i, (column + j) * (int)sizeof(T)));
        });
        each([&](C chunk, int i, int j) {
            if (i < last && first + j < end) store_chunk(start + i * pitch + first + j, chunk);
        });
    }
    __syncwarp();
}
#define ROWS(name, offset, C, ...) \
    const auto name = [&](int at, auto... few) { \
        store_results<C>(__VA_ARGS__, shared + offset, at, {few...}); \
    }
