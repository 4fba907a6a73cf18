/* Products of tiles that the threads of a block share. A tile lies in lines of 128 bytes, whose
   16-byte chunks are permuted by the number of the line; 1024 bytes make a group of eight lines. A
   `turned` tile has its rows or columns, not its steps, along the lines, in panels of 64. */

INLINE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

/* The sums of a thread, and the rings of two factors: `depth` tiles of rows, then as many of
   columns, as far as blocks of this GPU may share memory, but for some to align it and for barriers. */
#if __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 1030
#define ROOM (226 << 10)
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
#define ROOM (162 << 10)
#elif __CUDA_ARCH__ >= 800
#define ROOM (98 << 10)
#else
#define ROOM (63 << 10)
#endif
#define RINGS(kind, most, rows, columns) \
    f32 sums[columns / 2] = {}; \
    constexpr int fit = ROOM / ((rows + columns) * 128), depth = fit < most ? fit : most; \
    extern __shared__ __align__(1024) u8 shared[]; \
    kind (*const left)[rows * 128 / sizeof(kind)] = (kind (*)[rows * 128 / sizeof(kind)])shared; \
    kind (*const right)[columns * 128 / sizeof(kind)] \
        = (kind (*)[columns * 128 / sizeof(kind)])(left + depth)

/* Fills a tile with elements that are computed, a chunk of 16 bytes at a time, from `row` and
   `step` on. Beyond `rows` and `steps`, where these are ends, nothing is read, and steps are zeros. */
template <int turned, int threads, i64 rows, i64 steps, class T, int size, class Element>
INLINE void fill_tile(T (&tile)[size], i64 row, i64 step, Element element) {
    constexpr int lanes = 16 / sizeof(T), width = 8 * lanes, height = size / width;
    constexpr int lines = turned ? width : height, chunks = (turned ? height : width) / lanes;
    _Pragma("unroll") for (int i = threadIdx.x; i < lines * chunks; i += threads) {
        const int line = i / chunks, chunk = i % chunks, first = chunk * lanes;
        union { T values[lanes]; uint4 all; } whole;
        _Pragma("unroll") for (int at = 0; at < lanes; at++) {
            const i64 r = row + (turned ? first + at : line);
            const i64 s = step + (turned ? line : first + at);
            const T value = element(rows ? min(r, rows - 1) : r, steps ? min(s, steps - 1) : s);
            whole.values[at] = steps && s >= steps ? 0 : value;
        }
        *(uint4 *)(tile + (chunk / 8 * lines + line) * width + (chunk % 8 ^ line % 8) * lanes) = whole.all;
    }
}
#define FILL_TILE(side, row, step, ...) \
    fill_tile<__VA_ARGS__>(side[slot], row, step, [&](const i64 row, const i64 step)
/* Makes what the threads have written fit to be read by tensor cores after a barrier. */
INLINE void publish() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Copies by the engine: a barrier counts the bytes that have come. */

struct __align__(64) Map { u64 words[16]; };
#define MAP(name) const __grid_constant__ Map name
INLINE void start_barriers(u64 *full, int count, int tiles) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < count; i++)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                         :: "r"(shared_address(full + i)), "r"(tiles) : "memory");
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    }
    __syncthreads();
}
#if __CUDA_ARCH__ < 900
#define HAS_ENGINE 0
INLINE void wait_for_engine(u64 *, u32) {}
template <int turned, bool pixels, class... Arguments> INLINE bool copy_tile(Arguments...) { return false; }
#else
#define HAS_ENGINE 1
INLINE void expect_bytes(u64 *full, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(shared_address(full)), "r"(bytes) : "memory");
}
INLINE void wait_for_engine(u64 *full, u32 parity) {
    u32 done;
    do asm volatile("{\n .reg .pred p;\n"
                    " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                    " selp.u32 %0, 1, 0, p;\n}"
                    : "=r"(done) : "r"(shared_address(full)), "r"(parity) : "memory");
    while (!done);
}
#define COPY_BOX(rank, places, ...) \
    asm volatile("cp.async.bulk.tensor." rank ".shared::cluster.global.mbarrier::complete_tx::bytes" \
                 " [%0], [%1, {" places "}], [%2];" \
                 :: "r"(shared_address(to)), "l"(map), "r"(shared_address(full)), __VA_ARGS__ \
                 : "memory")
INLINE void copy_box(void *to, const Map *map, u64 *full, int a, int b) {
    COPY_BOX("2d", "%3, %4", "r"(a), "r"(b));
}
INLINE void copy_box(void *to, const Map *map, u64 *full, int a, int b, int c) {
    COPY_BOX("3d", "%3, %4, %5", "r"(a), "r"(b), "r"(c));
}
INLINE void copy_box(void *to, const Map *map, u64 *full, int a, int b, int c, int d) {
    COPY_BOX("4d", "%3, %4, %5, %6", "r"(a), "r"(b), "r"(c), "r"(d));
}
INLINE void copy_box(void *to, const Map *map, u64 *full, int a, int b, int c, int d, int e) {
    COPY_BOX("5d", "%3, %4, %5, %6, %7", "r"(a), "r"(b), "r"(c), "r"(d), "r"(e));
}
/* Pixels of images of one to three axes: where the first one's window begins, and where in it. */
#define COPY_PIXELS(rank, places, offsets, ...) \
    asm volatile("cp.async.bulk.tensor." rank ".shared::cluster.global.im2col.mbarrier::complete_tx" \
                 "::bytes [%0], [%1, {" places "}], [%2], {" offsets "};" \
                 :: "r"(shared_address(to)), "l"(map), "r"(shared_address(full)), __VA_ARGS__ \
                 : "memory")
INLINE void copy_pixels(void *to, const Map *map, u64 *full, int a, int b, int c, u16 x) {
    COPY_PIXELS("3d", "%3, %4, %5", "%6", "r"(a), "r"(b), "r"(c), "h"(x));
}
INLINE void copy_pixels(void *to, const Map *map, u64 *full, int a, int b, int c, int d, u16 x, u16 y) {
    COPY_PIXELS("4d", "%3, %4, %5, %6", "%7, %8", "r"(a), "r"(b), "r"(c), "r"(d), "h"(x), "h"(y));
}
INLINE void copy_pixels(void *to, const Map *map, u64 *full, int a, int b, int c, int d, int e,
                        u16 x, u16 y, u16 z) {
    COPY_PIXELS("5d", "%3, %4, %5, %6, %7", "%8, %9, %10", "r"(a), "r"(b), "r"(c), "r"(d), "r"(e),
                "h"(x), "h"(y), "h"(z));
}
template <int turned, bool pixels, class T, int size, class... Places>
INLINE bool copy_tile(T (&tile)[size], const Map *map, u64 *full, int column, Places... places) {
    constexpr int width = 128 / sizeof(T), lines = turned ? width : size / width;
    if (threadIdx.x == 0) {
        expect_bytes(full, sizeof(tile));
        for (int i = 0; i < size / (lines * width); i++)
            if constexpr (pixels)
                copy_pixels(tile + i * lines * width, map, full, column + i * width, places...);
            else
                copy_box(tile + i * lines * width, map, full, column + i * width, places...);
    }
    return true;
}
#endif

#define COPY_TILE(side, turned, pixels, ...) \
    if (!copy_tile<turned, pixels>(side[slot], &side##_map, full + slot, __VA_ARGS__))

/* Products: 64 rows and 64 steps by four warps. The number of a thread's sums tells the columns. */

template <class T, int size> INLINE const u8 *own_rows(T (&tile)[size]) {
    return (const u8 *)tile + (sizeof(tile) > 8192 ? threadIdx.x / 128 * 8192 : 0);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* Where a tile lies: its address, the bytes from panel to panel, those from group to group. */
INLINE u64 descriptor(const void *tile) {
    return (u64)(shared_address(tile) >> 4) | (u64)(8192 >> 4) << 16 | (u64)(1024 >> 4) << 32
        | 1ull << 62;
}
#define OUT8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
                "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define OUT32(i) OUT8(i), OUT8(i + 8), OUT8(i + 16), OUT8(i + 24)
#define OUT_64 OUT32(0)
#define OUT_128 OUT32(0), OUT32(32)
#define OUT_256 OUT32(0), OUT32(32), OUT32(64), OUT32(96)
#define IN_64 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define IN_128 IN_64 ", " "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define IN_256 IN_128 ", " "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define MULTIPLY(type, n, A, B, TA, TB) \
    template <int turned_a, int turned_b> \
    INLINE void mma_##type(f32 (&d)[n / 2], const void *a, const void *b) { \
        const u64 first = descriptor(a), second = descriptor(b); \
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); \
        _Pragma("unroll") for (int step = 0; step < 4; step++) \
            asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, 1, 0;\n" \
                         " wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type \
                         " {" IN_##n "}, " A ", " B ", p, 1, 1, " TA ", " TB ";\n}" \
                         : OUT_##n : "l"(first + step * (turned_a ? 128 : 2)), \
                           "l"(second + step * (turned_b ? 128 : 2)), \
                           "n"(turned_a), "n"(turned_b)); \
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); \
    }
/* All products but the last N are done, and the sums may be used if N is 0. To their first users,
   whatever these are, ptxas would have products wait for each other, but for a sum with zero. */
template <int N, int count> INLINE void wait_for_products(f32 (&d)[count]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
    if (N == 0)
        _Pragma("unroll") for (int i = 0; i < count; i++)
            asm volatile("add.f32 %0, %0, 0f00000000;" : "+f"(d[i]) :: "memory");
}
#elif __CUDA_ARCH__ >= 800
INLINE void load_4(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}
INLINE void load_4_turned(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}
/* Four 8 x 8 matrices of a tile: from row or column `start`, then 8 further on, where `inner` steps
   come first, and from step 16 * `step`, then 8 further on. */
template <int turned> INLINE void load_pieces(u32 (&to)[4], u32 tile, int start, int step, bool inner) {
    const int lane = threadIdx.x % 32, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
    const int row = start + (inner ? high : low) + (turned ? 0 : lane % 8);
    const int at = step * 16 + (inner ? low : high) + (turned ? lane % 8 : 0);
    const int line = turned ? at : row, along = turned ? row : at;
    const u32 from = tile + along / 64 * 8192 + line * 128 + ((along % 64 / 8 ^ line % 8) << 4);
    if (turned) load_4_turned(to, from); else load_4(to, from);
}
#define MULTIPLY(type, n, A, B, TA, TB) \
    template <int turned_a, int turned_b> \
    INLINE void mma_##type(f32 (&d)[n / 2], const void *a, const void *b) { \
        const u32 first = shared_address(a), second = shared_address(b); \
        _Pragma("unroll") for (int step = 0; step < 4; step++) { \
            u32 x[4], y[4]; \
            load_pieces<turned_a>(x, first, threadIdx.x / 32 % 4 * 16, step, false); \
            _Pragma("unroll") for (int j = 0; j < n / 8; j += 2) { \
                load_pieces<turned_b>(y, second, j * 8, step, true); \
                _Pragma("unroll") for (int i = 0; i < 2; i++) { \
                    f32 *to = d + (j + i) * 4; \
                    asm("mma.sync.aligned.m16n8k16.row.col.f32." #type "." #type ".f32 " \
                        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                        : "+f"(to[0]), "+f"(to[1]), "+f"(to[2]), "+f"(to[3]) \
                        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), \
                          "r"(y[2 * i]), "r"(y[2 * i + 1])); \
                } \
            } \
        } \
    }
#else
template <int turned> INLINE u16 piece(const void *tile, int at, int step) {
    const int line = turned ? step : at, along = turned ? at : step;
    return *(const u16 *)((const u8 *)tile + along / 64 * 8192 + line * 128
                          + ((along % 64 / 8 ^ line % 8) << 4) + along % 8 * 2);
}
#define MULTIPLY(type, n, A, B, TA, TB) \
    template <int turned_a, int turned_b> \
    INLINE void mma_##type(f32 (&d)[n / 2], const void *a, const void *b) { \
        const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4; \
        const int column = threadIdx.x % 4 * 2; \
        _Pragma("unroll 1") for (int step = 0; step < 64; step++) { \
            const f32 x[2] = {type##_to_f32(piece<turned_a>(a, row, step)), \
                              type##_to_f32(piece<turned_a>(a, row + 8, step))}; \
            _Pragma("unroll") for (int i = 0; i < n / 2; i++) \
                d[i] += x[i / 2 % 2] \
                    * type##_to_f32(piece<turned_b>(b, i / 4 * 8 + column + i % 2, step)); \
        } \
    }
#endif
#ifndef __CUDA_ARCH_FEAT_SM90_ALL
template <int N, int count> INLINE void wait_for_products(f32 (&)[count]) {}
#endif
#define SIZES(type) \
    MULTIPLY(type, 64, "%32", "%33", "%34", "%35") \
    MULTIPLY(type, 128, "%64", "%65", "%66", "%67") \
    MULTIPLY(type, 256, "%128", "%129", "%130", "%131")
SIZES(bf16)
SIZES(f16)

/* In float32, four steps at once. Of rows or columns, a turned tile has four neighbours in a chunk;
   of one that is not, neighbouring threads read neighbouring lines. */

/* Four steps of `count` rows or columns from a tile of 32 steps: of `blocks` threads' the `block`th. */
template <int turned, int blocks, int count>
INLINE void load_steps(f32 (&to)[count][4], const void *tile, int block, int step) {
    _Pragma("unroll") for (int i = 0; i < count; i++) {
        const int at = turned ? i / 4 * 4 * blocks + block * 4 : i * blocks + block;
        const int line = turned ? step * 4 + i % 4 : at, chunk = turned ? at % 32 / 4 : step;
        const int panel = turned ? at / 32 * 4096 : 0;
        const float4 four = *(const float4 *)((const u8 *)tile + panel + line * 128
                                              + ((chunk ^ line % 8) << 4));
        const f32 values[4] = {four.x, four.y, four.z, four.w};
        _Pragma("unroll") for (int j = 0; j < 4; j++)
            (turned ? to[i / 4 * 4 + j][i % 4] : to[i][j]) = values[j];
    }
}
template <int turned_a, int turned_b, int count>
INLINE void fma_f32(f32 (&d)[count], const void *a, const void *b) {
    constexpr int columns = count / 8;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    _Pragma("unroll 1") for (int step = 0; step < 8; step++) {
        f32 x[8][4], y[columns][4];
        load_steps<turned_a, 8>(x, a, warp / 2 * 4 + lane / 8, step);
        load_steps<turned_b, 16>(y, b, warp % 2 * 8 + lane % 8, step);
        _Pragma("unroll") for (int k = 0; k < 4; k++)
            _Pragma("unroll") for (int i = 0; i < 8; i++)
                _Pragma("unroll") for (int j = 0; j < columns; j++)
                    d[i * columns + j] += x[i][k] * y[j][k];
    }
}

/* The loop over tiles. A step waits for its own tiles, starts their product and, once the one before
   has ended for all threads, fills the places of that one for a later step. The engine, if there is
   one, fills as many tiles as `copied` says. */
template <int steps, int depth, int copied, int count, class Fill, class Multiply>
INLINE void pipeline(f32 (&sums)[count], Fill fill, Multiply multiply) {
    constexpr int engine = HAS_ENGINE ? copied : 0, ahead = depth - 1 < steps ? depth - 1 : steps;
    constexpr bool threads = engine < 2;  // of the two tiles
    __shared__ u64 full[depth];
    if (engine) start_barriers(full, depth, engine);
    for (u32 step = 0; step < ahead; step++) fill(step, step, full);
    for (u32 step = 0; step < steps; step++) {
        if (!ahead) fill(step, 0, full);
        if (engine) wait_for_engine(full + step % depth, step / depth & 1);
        if (threads) {
            publish();
            __syncthreads();
        }
        multiply(step % depth);
        wait_for_products<1>(sums);
        __syncthreads();
        if (ahead && step + ahead < steps) fill(step + ahead, (step + ahead) % depth, full);
    }
    wait_for_products<0>(sums);
    publish();  // The rings are free for results.
    __syncthreads();
}
#define FILL(number, slot, full) \
    const auto fill = [&](const u32 number, const u32 slot, u64 *full)
#define PIPELINE(steps, copied, multiply, ...) \
    pipeline<steps, depth, copied>(sums, fill, [&](const u32 slot) { \
        multiply<__VA_ARGS__>(sums, own_rows(left[slot]), right[slot]); \
    })

/* Results, stored by whole rows. Once all threads are done with the rings, a row has a line of 128
   bytes there, whose 16-byte chunks are permuted by the number of the row so that neither threads
   with two neighbours nor threads with a chunk meet in one bank. A warp fills its own lines with the
   results of its sums, then writes these lines to memory, and goes on with the next columns. */

template <class T> INLINE int in_lines(int row, int place) {
    return row * 128 + (place ^ row * (int)sizeof(T) / 2 % 8 << 4);
}
INLINE void store_chunk(void *to, uint4 chunk) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :: "l"(__cvta_generic_to_global(to)), "r"(chunk.x), "r"(chunk.y), "r"(chunk.z),
                    "r"(chunk.w) : "memory");
}
/* Those of the sums from number `at` on, `pitch` from row to row. Beyond `rows` and `columns`
   nothing is written. */
template <class T, int count>
INLINE void store_results(T *to, i64 pitch, i64 rows, i64 columns, u8 *lines, int at,
                          const T (&values)[count]) {
    constexpr int lanes = 16 / sizeof(T), width = 128 / sizeof(T);
    struct __align__(2 * sizeof(T)) Pair { T first, second; };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u8 *own = lines + warp * 2048;
    _Pragma("unroll") for (int i = 0; i < count; i += 2) {
        const int place = ((at + i) / 4 * 8 + lane % 4 * 2) % width * sizeof(T);
        *(Pair *)(own + in_lines<T>((at + i) / 2 % 2 * 8 + lane / 4, place))
            = Pair{values[i], values[i + 1]};
    }
    if ((at + count) % (width / 2)) return;
    __syncwarp();
    const int row = warp * 16 + lane / 8, column = lane % 8 * lanes, first = at / (width / 2) * width;
    const int last = min(rows, (i64)1024), end = min(columns, (i64)1024);
    T *start = to + row * pitch + column;
    uint4 chunks[4];
    _Pragma("unroll") for (int i = 0; i < 4; i++)
        chunks[i] = *(const uint4 *)(own + in_lines<T>(i * 4 + lane / 8, lane % 8 * 16));
    _Pragma("unroll") for (int i = 0; i < 4; i++)
        if (row + i * 4 < last && column + first < end)
            store_chunk(start + i * 4 * pitch + first, chunks[i]);
    __syncwarp();
}
#define ROWS(name, offset, ...) \
    const auto name = [&](int at, auto... few) { \
        store_results(__VA_ARGS__, shared + offset, at, {few...}); \
    }
