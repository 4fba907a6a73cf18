/* Products of tiles that the threads of a block share. A tile lies in lines of 128 bytes, whose
   16-byte chunks are permuted by the number of the line; 1024 bytes make a group of eight lines. A
   `turned` tile has its rows or columns, not its steps, along the lines, in panels of 64. */

INLINE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

/* The sums of a thread, lines for results, and the rings of two factors: `depth` tiles of rows, then
   as many of columns, as far as blocks of this GPU may share memory, but for some to align it and for
   barriers. Where no engine fills the rings while results are stored, they have the lines. A kind of
   elements has a type in tiles. Sums that are stored by chunks would lie in neighbouring registers,
   where those of float32 are in each other's way: `loose` ones have something added that compilers do
   not know to be nothing. */
#if __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 1030
#define ROOM (226 << 10)
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
#define ROOM (162 << 10)
#elif __CUDA_ARCH__ >= 800
#define ROOM (98 << 10)
#else
#define ROOM (63 << 10)
#endif
#if __CUDA_ARCH__ < 900
#define HAS_ENGINE 0
#else
#define HAS_ENGINE 1
#endif
typedef u16 In_bf16; typedef u16 In_f16; typedef f32 In_f32; struct In_tf32 { u32 word; };
template <class T> constexpr bool exact = false;
template <> constexpr bool exact<f32> = true;
template <int count> struct Loose {
    const f32 (&sums)[count];
    f32 nothing;
    __device__ f32 operator[](int i) const { return sums[i] + nothing; }
};
struct Kept {  // 16 bits of each sum of a thread
    u32 pairs[64];
    void put(int i, u16 x) { pairs[i / 2] = i % 2 ? pairs[i / 2] | x << 16 : x; }
    u16 operator[](int i) const { return pairs[i / 2] >> i % 2 * 16; }
};
template <class T> struct Referred;
template <class T> struct Referred<T &> { typedef T Type; };
#define RINGS(kind, most, rows, columns, lines) \
    typedef typename Referred<decltype(walk)>::Type Way; \
    auto &kept = walk.kept; \
    f32 sums[columns / 2], nothing = -0.0f; \
    if (exact<In_##kind>) asm("" : "+f"(nothing)); \
    const Loose<columns / 2> loose{sums, nothing}; \
    constexpr int apart = HAS_ENGINE ? lines : 0, fit = (ROOM - apart) / ((rows + columns) * 128); \
    constexpr int depth = fit < most ? fit : most; \
    extern __shared__ __align__(1024) u8 shared[]; \
    typedef In_##kind Kind; \
    Kind (*const left)[rows * 128 / sizeof(Kind)] \
        = (Kind (*)[rows * 128 / sizeof(Kind)])(shared + apart); \
    Kind (*const right)[columns * 128 / sizeof(Kind)] \
        = (Kind (*)[columns * 128 / sizeof(Kind)])(left + depth)

/* Elements as they are in a tile; the engine rounds in the same way. */
INLINE void put(u16 &to, u16 x) { to = x; }
INLINE void put(f32 &to, f32 x) { to = x; }
INLINE void put(In_tf32 &to, f32 x) {
#if __CUDA_ARCH__ >= 800
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(to.word) : "f"(x));
#else
    to.word = bits<u32>(x);  // which no unit reads
#endif
}

/* Fills a tile with elements that are computed, a chunk of 16 bytes at a time, from `row` and
   `step` on. Beyond `rows` and `steps`, where these are ends, nothing is read, and steps are zeros.
   Of a tile that lies along its steps (way 0) neighbouring threads fill chunks of a line or, where
   rows are what memory has side by side (2), lines; the other way (1) is turned. */
template <int way, int threads, i64 rows, i64 steps, class T, int size, class Element>
INLINE void fill_tile(T (&tile)[size], i64 row, i64 step, Element element) {
    constexpr int lanes = 16 / sizeof(T), width = 8 * lanes, height = size / width, turned = way == 1;
    constexpr int lines = turned ? width : height, chunks = (turned ? height : width) / lanes;
    _Pragma("unroll") for (int i = threadIdx.x; i < lines * chunks; i += threads) {
        const int line = way == 2 ? i % lines : i / chunks, chunk = way == 2 ? i / lines : i % chunks;
        const int first = chunk * lanes;
        union { T values[lanes]; uint4 all; } whole;
        _Pragma("unroll") for (int at = 0; at < lanes; at++) {
            const i64 r = row + (turned ? first + at : line);
            const i64 s = step + (turned ? line : first + at);
            const auto value = element(rows ? min(r, rows - 1) : r, steps ? min(s, steps - 1) : s);
            if (steps && s >= steps) put(whole.values[at], 0); else put(whole.values[at], value);
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
INLINE void arrive(u64 *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared_address(barrier)) : "memory");
}
struct ByFirst { u64 *barrier; };  // where all threads fill, the first one asks the engine
INLINE ByFirst operator+(ByFirst first, u32 number) { return {first.barrier + number}; }
#if !HAS_ENGINE
INLINE void wait_for_engine(u64 *, u32) {}
template <int turned, bool pixels, class... Arguments> INLINE bool copy_tile(Arguments...) { return false; }
#else
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
    expect_bytes(full, sizeof(tile));
    for (int i = 0; i < size / (lines * width); i++)
        if constexpr (pixels)
            copy_pixels(tile + i * lines * width, map, full, column + i * width, places...);
        else
            copy_box(tile + i * lines * width, map, full, column + i * width, places...);
    return true;
}
template <int turned, bool pixels, class T, int size, class... Places>
INLINE bool copy_tile(T (&tile)[size], const Map *map, ByFirst full, Places... places) {
    if (threadIdx.x == 0) copy_tile<turned, pixels>(tile, map, full.barrier, places...);
    return true;
}
#endif

#define COPY_TILE(side, turned, pixels, ...) \
    if (!copy_tile<turned, pixels>(side[slot], &side##_map, full + slot, __VA_ARGS__))

/* Products: 64 rows and 64 steps by four warps. The number of a thread's sums tells the columns. Are
   there `more` steps that the sums already have? */

template <int count> INLINE void start(f32 (&sums)[count], bool more) {
    if (!more)
        _Pragma("unroll") for (int i = 0; i < count; i++) sums[i] = 0;
}

/* Where a tile of a ring lies, or the rows of it that four warps have. */
template <class T, int size> INLINE u32 tile_of(T (*ring)[size], u32 slot, u32 four = 0) {
    return shared_address(ring) + slot * (u32)sizeof(*ring) + (sizeof(*ring) > 8192 ? four * 8192 : 0);
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* Where a tile lies: its address, the bytes from panel to panel, those from group to group. */
INLINE u64 descriptor(u32 chunk) {
    u64 where;
    asm("mov.b64 %0, {%1, %2};" : "=l"(where) : "r"(chunk | 8192 >> 4 << 16), "n"(1024 >> 4 | 1 << 30));
    return where;
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
#define MULTIPLY(type, n, A, B, TA, TB, MORE) \
    template <int turned_a, int turned_b> \
    INLINE void mma_##type(f32 (&d)[n / 2], u32 a, u32 b, bool more) { \
        const u32 first = a >> 4, second = b >> 4; \
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); \
        _Pragma("unroll") for (int step = 0; step < 4; step++) \
            asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " MORE ", 0;\n" \
                         " wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type \
                         " {" IN_##n "}, " A ", " B ", p, 1, 1, " TA ", " TB ";\n}" \
                         : OUT_##n : "l"(descriptor(first + step * (turned_a ? 128 : 2))), \
                           "l"(descriptor(second + step * (turned_b ? 128 : 2))), \
                           "n"(turned_a), "n"(turned_b), "r"((int)(step || more))); \
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); \
    }
/* Four warps that bring tiles leave 240 registers to the threads of eight, or 112 to those of 16. */
INLINE void give_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); }
template <int count> INLINE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(count));
}
/* All products but the last N are done, and the sums may be used if N is 0. To their first users,
   whatever these are, ptxas would have products wait for each other, but for a sum with zero. */
template <int N, int count> INLINE void wait_for_products(f32 (&d)[count]) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory");
    if (N == 0)
        _Pragma("unroll") for (int i = 0; i < count; i++)
            asm volatile("" : "+f"(d[i]) :: "memory");
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
#define MULTIPLY(type, n, A, B, TA, TB, MORE) \
    template <int turned_a, int turned_b> \
    INLINE void mma_##type(f32 (&d)[n / 2], u32 a, u32 b, bool more) { \
        start(d, more); \
        _Pragma("unroll") for (int step = 0; step < 4; step++) { \
            u32 x[4], y[4]; \
            load_pieces<turned_a>(x, a, threadIdx.x / 32 % 4 * 16, step, false); \
            _Pragma("unroll") for (int j = 0; j < n / 8; j += 2) { \
                load_pieces<turned_b>(y, b, j * 8, step, true); \
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
template <int turned> INLINE u16 piece(u32 tile, int at, int step) {
    const int line = turned ? step : at, along = turned ? at : step;
    u16 x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x)
                 : "r"(tile + along / 64 * 8192 + line * 128 + ((along % 64 / 8 ^ line % 8) << 4)
                       + along % 8 * 2));
    return x;
}
#define MULTIPLY(type, n, A, B, TA, TB, MORE) \
    template <int turned_a, int turned_b> \
    INLINE void mma_##type(f32 (&d)[n / 2], u32 a, u32 b, bool more) { \
        const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4; \
        const int column = threadIdx.x % 4 * 2; \
        start(d, more); \
        _Pragma("unroll 1") for (int step = 0; step < 64; step++) { \
            const f32 x[2] = {type##_to_f32(piece<turned_a>(a, row, step)), \
                              type##_to_f32(piece<turned_a>(a, row + 8, step))}; \
            _Pragma("unroll") for (int i = 0; i < n / 2; i++) \
                d[i] += x[i / 2 % 2] \
                    * type##_to_f32(piece<turned_b>(b, i / 4 * 8 + column + i % 2, step)); \
        } \
    }
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define PRODUCTS_RUN 1  // while threads do other things
#else
#define PRODUCTS_RUN 0
template <int N, int count> INLINE void wait_for_products(f32 (&)[count]) {}
#endif
#define SIZES(type) \
    MULTIPLY(type, 64, "%32", "%33", "%34", "%35", "%36") \
    MULTIPLY(type, 128, "%64", "%65", "%66", "%67", "%68") \
    MULTIPLY(type, 256, "%128", "%129", "%130", "%131", "%132")
SIZES(bf16)
SIZES(f16)

/* Of tf32, 32 steps. Tensor cores read these along the lines: only the left tile may be turned, and
   is read by threads. Of the 16 rows of a warp and eight steps from 8 * `step` on, lane 4 * i + j has
   rows i and i + 8 and steps j and j + 4; lanes of the second chunk read the latter first, from banks
   that others do not read from. */
INLINE void load_turned(u32 (&to)[4], u32 tile, int step) {
    const int i = threadIdx.x % 32 / 4, high = i / 4, warp = threadIdx.x / 32 % 4;
    const int line = threadIdx.x % 4 + high * 4;
    const u32 from = tile + warp / 2 * 4096 + line * 128
        + (((warp % 2 * 4 + high) ^ line) << 4) + i % 4 * 4;
    u32 x[4];
    _Pragma("unroll") for (int k = 0; k < 4; k++)
        asm volatile("ld.shared.b32 %0, [%1];"
                     : "=r"(x[k]) : "r"((from ^ (k % 2 * 32 + k / 2 * 576)) + step * 1024) : "memory");
    _Pragma("unroll") for (int k = 0; k < 4; k++) to[k] = high ? x[k ^ 2] : x[k];
}
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define MULTIPLY_TF32(n, A, B, C, D, E, F) \
    INLINE void tf32_step(f32 (&d)[n / 2], u64 a, u64 b, bool more) { \
        asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " C ", 0;\n" \
                     " wgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32" \
                     " {" IN_##n "}, " A ", " B ", p, 1, 1;\n}" \
                     : OUT_##n : "l"(a), "l"(b), "r"((int)more)); \
    } \
    INLINE void tf32_step(f32 (&d)[n / 2], const u32 (&x)[4], u64 b, bool more) { \
        asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " F ", 0;\n" \
                     " wgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32" \
                     " {" IN_##n "}, {" A ", " B ", " C ", " D "}, " E ", p, 1, 1;\n}" \
                     : OUT_##n : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(b), "r"((int)more)); \
    }
MULTIPLY_TF32(64, "%32", "%33", "%34", "%35", "%36", "%37")
MULTIPLY_TF32(128, "%64", "%65", "%66", "%67", "%68", "%69")
MULTIPLY_TF32(256, "%128", "%129", "%130", "%131", "%132", "%133")
template <int turned_a, int, int count>
INLINE void mma_tf32(f32 (&d)[count], u32 a, u32 b, bool more) {
    const u32 first = a >> 4, second = b >> 4;
    u32 x[4][4];
    if (turned_a)
        _Pragma("unroll") for (int step = 0; step < 4; step++) load_turned(x[step], a, step);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    _Pragma("unroll") for (int step = 0; step < 4; step++)
        if constexpr (turned_a)
            tf32_step(d, x[step], descriptor(second + step * 2), step || more);
        else
            tf32_step(d, descriptor(first + step * 2), descriptor(second + step * 2), step || more);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
#elif __CUDA_ARCH__ >= 800
template <int turned_a, int, int count>
INLINE void mma_tf32(f32 (&d)[count], u32 a, u32 b, bool more) {
    start(d, more);
    _Pragma("unroll") for (int step = 0; step < 4; step++) {
        u32 x[4], y[4];
        if (turned_a) load_turned(x, a, step);
        else load_pieces<0>(x, a, threadIdx.x / 32 % 4 * 16, step, false);
        _Pragma("unroll") for (int j = 0; j < count / 4; j += 2) {
            load_pieces<0>(y, b, j * 8, step, true);
            _Pragma("unroll") for (int i = 0; i < 2; i++) {
                f32 *to = d + (j + i) * 4;
                asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                    : "+f"(to[0]), "+f"(to[1]), "+f"(to[2]), "+f"(to[3])
                    : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[2 * i]), "r"(y[2 * i + 1]));
            }
        }
    }
}
#else
template <int turned> INLINE f32 element_of(u32 tile, int at, int step) {
    const int line = turned ? step : at, along = turned ? at : step;
    f32 x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x)
                 : "r"(tile + along / 32 * 4096 + line * 128 + ((along % 32 / 4 ^ line % 8) << 4)
                       + along % 4 * 4));
    return x;
}
template <int turned_a, int, int count>
INLINE void mma_tf32(f32 (&d)[count], u32 a, u32 b, bool more) {
    const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    start(d, more);
    _Pragma("unroll 1") for (int step = 0; step < 32; step++) {
        const f32 x[2] = {element_of<turned_a>(a, row, step), element_of<turned_a>(a, row + 8, step)};
        _Pragma("unroll") for (int i = 0; i < count; i++)
            d[i] += x[i / 2 % 2] * element_of<0>(b, i / 4 * 8 + column + i % 2, step);
    }
}
#endif

/* In float32, a step at a time, while the next one's rows and columns come, four in a chunk. A chunk of
   a turned tile has four neighbours; in one that is not, the four steps of four lines, `blocks` lines
   apart, change places first. */

template <int blocks, int threads, int size> INLINE void turn_lines(f32 (&tile)[size]) {
    _Pragma("unroll") for (int i = threadIdx.x; i < size / 16; i += threads) {
        const int line = i / 8 / blocks * 4 * blocks + i / 8 % blocks, chunk = i % 8 ^ line % 8;
        float4 *at = (float4 *)(tile + line * 32) + chunk;
        const float4 a = at[0], b = at[blocks * 8], c = at[blocks * 16], d = at[blocks * 24];
        at[0] = make_float4(a.x, b.x, c.x, d.x);
        at[blocks * 8] = make_float4(a.y, b.y, c.y, d.y);
        at[blocks * 16] = make_float4(a.z, b.z, c.z, d.z);
        at[blocks * 24] = make_float4(a.w, b.w, c.w, d.w);
    }
}
template <int turned_a, int turned_b, int threads, class T, int rows, int columns>
INLINE void turn(T (&a)[rows], T (&b)[columns]) {
    if constexpr (exact<T> && !turned_a) turn_lines<8, threads>(a);
    if constexpr (exact<T> && !turned_b) turn_lines<16, threads>(b);
}
/* Where a thread begins to read, the `block`th of `blocks`; its chunk's place is changed by the lines
   of a turned tile, or else by the steps. */
template <int turned> INLINE u32 own_steps(u32 tile, int block) {
    return tile + (turned ? block / 8 * 4096 : block * 128) + block % 8 * 16;
}
/* Of `count` rows or columns, the `step`th of the `group`th eight steps. Volatile and with registers of
   a block that says it is alone: ptxas would load right before it multiplies. */
template <int turned, int blocks, int count>
INLINE void load_step(f32 (&to)[count], u32 own, int group, int step) {
    const u32 from = turned ? (own + group * 1024 ^ step * 16) + step * 128
                            : (own ^ group * 32 ^ step / 4 * 16) + step % 4 * blocks * 128;
    _Pragma("unroll") for (int i = 0; i < count; i += 4)
        asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(to[i]), "=f"(to[i + 1]), "=f"(to[i + 2]), "=f"(to[i + 3])
                     : "r"(from + i * blocks * 128));
}
template <int turned_a, int turned_b, int count>
INLINE void fma_f32(f32 (&d)[count], u32 a, u32 b, bool more) {
    constexpr int columns = count / 8;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const u32 rows = own_steps<turned_a>(a, warp / 2 * 4 + lane / 8);
    const u32 others = own_steps<turned_b>(b, warp % 2 * 8 + lane % 8);
    f32 x[2][8], y[2][columns];
    if (!more)
        _Pragma("unroll") for (int i = 0; i < count; i++)
            asm volatile("mov.f32 %0, 0f00000000;" : "=f"(d[i]));  // or else each is chosen, always
    load_step<turned_a, 8>(x[0], rows, 0, 0);
    load_step<turned_b, 16>(y[0], others, 0, 0);
    _Pragma("unroll 1") for (int group = 0; group < 4; group++)
        _Pragma("unroll") for (int step = 0; step < 8; step++) {
            const int now = step % 2, later = step == 7 ? (group + 1) % 4 : group;
            load_step<turned_a, 8>(x[1 - now], rows, later, (step + 1) % 8);
            load_step<turned_b, 16>(y[1 - now], others, later, (step + 1) % 8);
            _Pragma("unroll") for (int j = 0; j < columns; j++)
                _Pragma("unroll") for (int at = 0; at < 8; at++) {
                    const int i = j % 2 ? 7 - at : at;  // one of two factors stays
                    d[i * columns + j] += x[now][i] * y[now][j];
                }
        }
}

/* A product has tiles of results, each of which takes as many steps. A block has a share of all steps:
   some tiles, neighbours of which blocks have at a time, or, where there are fewer tiles than blocks, a
   part of one, as many parts of each tile as are whole. What is left of the tiles others share, one tile
   after the other. So most blocks walk along the same steps at the same time and find each other's
   operands cached. The block that has the first step of a tile adds up what the others have, those who
   share first: a later part has more steps, for as long as the ones before it take to be added, and
   fewer for giving its sums away, so that all end at about the same time: `giving` steps are as long as
   writing the sums of a tile, and `taking` as adding them to others. Those who give have lower numbers
   and wait for nothing: they run, whatever fits the GPU at once. */
constexpr i32 least(i32 a, i32 b) { return a < b ? a : b; }
constexpr i32 most(i32 a, i32 b) { return a > b ? a : b; }
/* The first step of a part; the second one has `sooner` more than the first, later ones `take` more. */
constexpr i32 start_of(i32 part, i32 own, i32 sooner, i32 take) {
    return part * own + most(part - 1, 0) * (2 * sooner + (part - 2) * take) / 2;
}
enum Role { BRINGS, COMPUTES, BOTH, STORES };
struct Place { u32 tile, step, left; };  // how many steps are left, of this tile and later ones
template <Role role_, i32 giving, i32 taking, u32 tiles, u32 steps, u32 share, u32 blocks>
struct Walk : Place {
    static constexpr Role role = role_;
    static constexpr u32 all = tiles, whole = share < steps ? 0 : steps;  // of a tile that is its own
    static constexpr i32 parts = most(steps / share, 1), others = most(blocks - tiles * parts, 0);
    static constexpr i32 give = least(giving, share / 4), take = least(taking, share / (4 * parts));
    static constexpr i32 sooner = (others ? take : 0) - give;
    static constexpr i32 given = others ? give * (others + tiles) : 0;  // by those who share
    static constexpr i32 own = ((i64)tiles * (steps - start_of(parts, 0, sooner, take)) + given
        + blocks - 1) / blocks;  // steps of the first part
    static constexpr u32 begin = others ? least(start_of(parts, own, sooner, take), steps) : steps;
    static constexpr u32 rest = steps - begin;  // which others share
    static constexpr u32 each = most((tiles * (u64)rest + others - 1) / most(others, 1), 1);
    static constexpr u32 slots = parts + rest / each + 1;  // for the others' sums of a tile
    Place later;  // what is to be filled
    Kept kept;
    u32 slot, parity, free;  // of the ring: that of the next step, and of what is filled next
    bool fresh;
    Walk() {
        const u32 number = blocks - 1 - blockIdx.x, part = number / tiles;
        if (share >= steps)
            later = {number, 0, (tiles - number + blocks - 1) / blocks * steps};
        else if (part < parts) {
            const u32 step = start_of(part, own, sooner, take);
            const u32 end = part + 1 < parts ? start_of(part + 1, own, sooner, take) : begin;
            later = {number % tiles, step, end - step};
        } else {
            const u64 all = tiles * (u64)rest, first = min((number - tiles * parts) * (u64)each, all);
            const u32 size = max(rest, 1);
            later = {(u32)(first / size), begin + (u32)(first % size), (u32)min(all - first, (u64)each)};
        }
        (Place &)*this = later;
        slot = parity = free = 0;
        fresh = true;
    }
    /* How many steps it has of the next tile. */
    u32 here() { return min(steps - step, left); }
    static void pass(Place &place, u32 count) {
        place.step += count;
        place.left -= count;
        if (place.step == steps) {
            place.step = share < steps ? begin : 0;
            place.tile += share < steps ? 1 : blocks;
        }
    }
    /* The number of the block that has a step of a rest, among those that do so for a tile. */
    static u32 sharing(u32 tile, u32 step) {
        const u64 first = tile * (u64)rest;
        return (first + step - begin) / each - first / each;
    }
    /* The slot for its sums of a tile from a step on or, of the first one, how many have given some. */
    static u32 slot_of(u32 tile, u32 first) {
        const u32 part = (blocks - 1 - blockIdx.x) / tiles, shared = rest ? sharing(tile, steps - 1) + 1 : 0;
        return !first ? shared + parts - 1 : part < parts ? shared + part - 1 : sharing(tile, first);
    }
};
/* Where the engine brings both factors and tensor cores read shared memory, a thread beyond those that
   compute asks it to, as soon as these say that they have read a tile: so they need not wait for each
   other, and some multiply while others store results. */
struct Ring { u64 full[16], empty[16]; };
INLINE Ring &ring() { __shared__ Ring all; return all; }

/* Where a block has whole tiles of enough steps, what it keeps of a tile's sums waits for the next tile:
   beside each of the first steps of that one a slice becomes results and is stored. After the last step
   of its own tile, arithmetic and stores would leave the units without products: the ring has those of
   a few steps. A slice, of `size` sums of a thread, is a walk to the old tile that runs the same text as
   all walks, but for what computes the values that are kept; one without a number has all of a tile. */
template <int size_, int number_> struct Slice {
    static constexpr Role role = STORES;
    static constexpr int size = size_, number = number_;
    static constexpr u32 whole = 0;  // steps
    u32 tile;
    const Kept &kept;
};
template <class Walk, class Part> struct Waiting : Walk {
    const Part &part;
    u32 begun, held;  // the steps of the next tile beside which that was, and their tiles not released
    u32 waits = ~0u;  // the tile that does, if any
    Waiting(const Part &part) : part(part) {}
    template <int size, int number> void store() const {
        Slice<size, number> slice{waits, this->kept};
        part(slice);
    }
};
#define KEEPS if constexpr (Way::role != STORES)
/* Is what the sums from number `at` on give stored now? */
template <bool waits, class Way> constexpr bool is_due(int at) {
    if constexpr (Way::role == STORES) return Way::number < 0 || at / Way::size == Way::number;
    return !waits;
}
#define DUE(at) if constexpr (is_due<waits, Way>(at))
/* Unrolled: a loop around a choice of the slice took longer than results that do not wait. */
template <int size, int slices, int number = 0, class Walk, class Step>
INLINE void store_beside(const Walk &walk, Step step) {
    if constexpr (number < slices) {
        step();
        walk.template store<size, number>();
        store_beside<size, slices, number + 1>(walk, step);
    }
}

template <bool engine, int slice, int threads, i32 giving, i32 taking, u32... sizes, class Part>
INLINE void share_tiles(Part part) {
#if PRODUCTS_RUN
    if (engine) {
        start_barriers(ring().empty, 16, threads / 32);
        start_barriers(ring().full, 16, 2);
        if (threadIdx.x >= threads) {
            if (threads > 128) give_registers();
            if (threadIdx.x > threads) return;
            for (Walk<BRINGS, giving, taking, sizes...> walk; walk.left;) part(walk);
        } else {
            if (threads > 128) take_registers<240>();
            typedef Walk<COMPUTES, giving, taking, sizes...> Way;
            if constexpr (!slice)
                for (Way walk; walk.left;) part(walk);
            else {
                Waiting<Way, Part> walk(part);
                while (walk.left) part(walk);
                if (~walk.waits) walk.template store<0, -1>();
            }
        }
        return;
    }
#endif
    if (threadIdx.x < threads)
        for (Walk<BOTH, giving, taking, sizes...> walk; walk.left;) part(walk);
}
// Inline, or else ptxas has products wait for each other.
#define PART const auto part = [&](auto &walk) __attribute__((always_inline))
#define mma_SHARE(engine, slice, threads, ...) \
    FOLLOW; share_tiles<engine, slice, threads, 5, 3, __VA_ARGS__>(part)
#define fma_SHARE(engine, slice, threads, ...) /* steps are longer than giving and taking */ \
    FOLLOW; share_tiles<engine, slice, threads, 0, 0, __VA_ARGS__>(part)
#define EACH_TILE(word, threads, workers) const word worker = walk.tile

/* Sums that blocks have for another one, and of each warp whether they are there. */
template <int slots, int count, int threads> struct Parts {
    float4 sums[slots][count / 4][threads];
    u32 ready[slots][threads / 32];
};
template <int slots, int count, int threads> __device__ Parts<slots, count, threads> parts;
INLINE void set_ready(u32 *ready) {
    asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(__cvta_generic_to_global(ready)) : "memory");
}
INLINE u32 is_ready(const u32 *ready) {
    u32 x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(x) : "l"(__cvta_generic_to_global(ready)) : "memory");
    return x;
}
template <int slots, int threads, int count>
INLINE void give_sums(const Loose<count> &sums, u32 slot) {
    auto &all = parts<slots, count, threads>;
    _Pragma("unroll") for (int i = 0; i < count; i += 4)
        __stcg(&all.sums[slot][i / 4][threadIdx.x],
               make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]));
    __syncwarp();
    if (threadIdx.x % 32 == 0) set_ready(&all.ready[slot][threadIdx.x / 32]);
}
/* Adds what `others` blocks have given, from `slot` on, a fourth at a time while the next one comes. */
template <int slots, int threads, int count>
INLINE void take_sums(f32 (&sums)[count], u32 slot, u32 others) {
    constexpr int few = count / 16;
    auto &all = parts<slots, count, threads>;
    const auto wait = [&](u32 number) {
        u32 *const ready = &all.ready[slot + number][threadIdx.x / 32];
        while (!__all_sync(~0u, is_ready(ready))) {}
        *(volatile u32 *)ready = 0;  // for the next launch
    };
    float4 next[2][few];
    const auto load = [&](float4 (&to)[few], u32 number, u32 part) {
        _Pragma("unroll") for (int i = 0; i < few; i++)
            to[i] = __ldcg(&all.sums[slot + min(number, others - 1)][part * few + i][threadIdx.x]);
    };
    wait(0);
    load(next[0], 0, 0);
    _Pragma("unroll 1") for (u32 number = 0; number < others; number++)
        _Pragma("unroll") for (int part = 0; part < 4; part++) {
            if (part == 3 && number + 1 < others) wait(number + 1);
            load(next[1 - part % 2], number + part / 3, (part + 1) % 4);
            _Pragma("unroll") for (int i = 0; i < few; i++) {
                f32 *to = sums + (part * few + i) * 4;
                const float4 x = next[part % 2][i];
                to[0] += x.x; to[1] += x.y; to[2] += x.z; to[3] += x.w;
            }
        }
}

/* The loop over the steps of a tile that a block has; is it the one that has the whole sums? A step
   waits for what it reads, starts its product and, once the one before, or the one before that if
   there is room for so many, has ended for all threads, fills the place of that one for a later step.
   Where a product reads registers, those of the next one are others. The engine, if there is one,
   fills as many tiles as `copied` says, and goes on with those of the next tile of results. Threads
   that are done with a step `turn` the tiles of the next one.

   Where two groups of four warps compute and others fill the ring, the first one ends each tile sooner:
   the second one pauses before its last steps, whose tiles the ring has, until the first one has
   started its last product. So the units have products to run while results that do not wait are stored:
   those of the last steps when the first group stores, those of the next tile when the second one does. */
template <class T> constexpr bool through_registers = false;
template <> constexpr bool through_registers<In_tf32> = true;
constexpr u32 lead_of(int depth) { return least(depth, 4); }  // steps that take as long as storing
template <class Way, class Kind, int threads, int depth, int slices>
constexpr bool can_wait = Way::role == COMPUTES && !through_registers<Kind> && threads <= 256
    && slices > 0 && Way::whole >= slices + lead_of(depth);
template <bool begins, class Kind, int threads, int depth, int copied, bool turns, int size, bool waits,
          class Way, int count, class Fill, class Turn, class Multiply>
INLINE bool pipeline(f32 (&sums)[count], const Loose<count> &loose, Way &walk, Fill fill, Turn turn,
                     Multiply multiply) {
    constexpr Role role = Way::role;
    constexpr bool registers = through_registers<Kind>;
    constexpr int engine = HAS_ENGINE ? copied : 0;
    constexpr int lag = PRODUCTS_RUN && depth > 4 && !registers && !exact<Kind> ? 2 : depth > 1;
    static_assert(depth <= 16);
    u64 *const full = ring().full, *const empty = ring().empty;
    const auto fill_next = [&](auto full) {
        fill(walk.later.tile, walk.later.step, walk.free, full);
        walk.pass(walk.later, 1);
        if (++walk.free == depth) walk.free = 0;
    };
    const u32 first = walk.step, tile = walk.tile, here = walk.here();
    if constexpr (role == BRINGS) {
        for (u32 i = 0; i < here; i++) {
            wait_for_engine(empty + walk.free, walk.parity ^ 1);
            fill_next(full);
            if (!walk.free) walk.parity ^= 1;
        }
        walk.pass(walk, here);
        return false;
    }
    const u32 last = HAS_ENGINE ? 0 : walk.left - here;
    const auto release = [&] {
        if constexpr (role == COMPUTES) {
            if (threadIdx.x % 32 == 0) arrive(empty + walk.free);
            if (++walk.free == depth) walk.free = 0;
        } else {
            __syncthreads();
            if (turns && threadIdx.x == 0) publish();  // to the engine, which writes where threads have
            if (walk.later.left > last) fill_next(ByFirst{full});
        }
    };
    if constexpr (role == BOTH) {
        if (walk.fresh && engine) start_barriers(full, depth, engine);
        if (!HAS_ENGINE) __syncthreads();  // The ring had results.
        if (walk.fresh || !HAS_ENGINE)
            _Pragma("unroll 1") for (int i = 0; i < depth && walk.later.left > last; i++)
                fill_next(ByFirst{full});
    }
    // The threads of a warp know that these are the same for all of them: descriptors must be.
    const u32 four = __shfl_sync(~0u, threadIdx.x / 128, 0);
    u32 slot = __shfl_sync(~0u, walk.slot, 0), parity = __shfl_sync(~0u, walk.parity, 0);
    const auto wait = [&] {
        if (engine) wait_for_engine(full + slot, parity);
        if (engine < 2) {  // of the two tiles
            publish();
            __syncthreads();
        }
        if (turns) turn(slot);
    };
    const auto advance = [&] {
        if (++slot == depth) {
            slot = 0;
            parity ^= 1;
        }
    };
    if (turns) {
        wait();
        __syncthreads();
    }
    constexpr u32 lead = lead_of(depth);  // last steps
    u32 i = 0, held = 0;  // steps whose tiles are not released
    if constexpr (waits && !begins) {
        i = walk.begun;
        held = walk.held;
    }
    const auto release_but = [&](u32 last) {
        _Pragma("unroll 1") for (; held > last; held--) release();
    };
    // A tile of so many steps keeps the first group from ending the next one before the second group
    // has paused in this one: it would find no tile in the ring.
    const bool apart = role == COMPUTES && threads == 256 && here >= depth;
    const auto ends = [&] {
        if (!turns) wait();
        if (apart && four == 1 && i + lead == here) {
            wait_for_products<0>(sums);
            release_but(0);
            asm volatile("bar.sync 1, 256;" ::: "memory");
        }
        multiply(slot, four, i > 0);
        if (apart && four == 0 && i + 1 == here) asm volatile("bar.arrive 1, 256;" ::: "memory");
        if (turns) {
            if (depth == 1) release();
            advance();
            if (i + 1 < here) wait();
            if (depth == 1) __syncthreads(); else release();
        } else {
            wait_for_products<lag>(sums);
            held++;
            release_but(lag);
            advance();
        }
        return ++i == here;
    };
    if constexpr (begins) {
        if (~walk.waits) store_beside<size, count / size>(walk, ends);
        walk.begun = i;
        walk.held = held;
    } else if constexpr (registers) while (!(ends() || ends())) {}
    else while (!ends()) {}
    walk.slot = slot;
    walk.parity = parity;
    if constexpr (begins) return true;
    wait_for_products<0>(sums);
    release_but(0);
    walk.fresh = false;
    walk.pass(walk, here);
    if constexpr (waits) walk.waits = tile;
    if constexpr (!Way::whole) {
        constexpr u32 slots = Way::slots, room = slots * Way::all;
        const u32 slot = Way::slot_of(tile, first);
        if (first) give_sums<room, threads>(loose, tile * slots + slot);
        else if (slot) take_sums<room, threads>(sums, tile * slots, slot);
    }
    return !first;
}
#define FILL(tile, number, slot, full) \
    const auto fill = [&](const u32 tile, const u32 number, const u32 slot, auto full)
/* First the steps beside which slices are stored; then what results need is read, and the others come. */
#define BEGIN(size, threads, ...) \
    constexpr int slices = size ? sizeof(sums) / sizeof(*sums) / most(size, 1) : 0; \
    constexpr bool waits = can_wait<Way, Kind, threads, depth, slices>; \
    if constexpr (waits) STEPS(true, size, threads, __VA_ARGS__)
#define PIPELINE(...) if (!STEPS(false, __VA_ARGS__)) return
#define STEPS(begins, size, threads, copied, multiply, turned_a, turned_b) \
    pipeline<begins, Kind, threads, depth, copied, exact<Kind> && !(turned_a && turned_b), size, waits>( \
            sums, loose, walk, fill, \
            [&](u32 slot) { turn<turned_a, turned_b, threads>(left[slot], right[slot]); }, \
            [&](u32 slot, u32 four, bool more) { \
                multiply<turned_a, turned_b>(sums, tile_of(left, slot, four), tile_of(right, slot), \
                                             more); \
            })

/* Results, stored by whole rows. A row has a line of 128 bytes, beside the rings or, where no engine
   fills these, in them once all threads are done. Its 16-byte chunks are permuted by the number of the
   row so that neither threads with two neighbours nor threads with a chunk meet in one bank. A warp
   fills its own lines with the results of its sums, then writes these lines to memory, and goes on with
   the next columns. */

template <class T> INLINE int in_lines(int row, int place) {
    return row * 128 + (place ^ row * (int)sizeof(T) / 2 % 8 << 4);
}
INLINE void store_chunk(void *to, uint4 chunk) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :: "l"(__cvta_generic_to_global(to)), "r"(chunk.x), "r"(chunk.y), "r"(chunk.z),
                    "r"(chunk.w) : "memory");
}
/* Fills the lines of a warp with `values`, whose first one is in a column at `place`. */
template <class T, int count> INLINE void fill_lines(u8 *own, int place, const T (&values)[count]) {
    struct __align__(2 * sizeof(T)) Pair { T first, second; };
    const int lane = threadIdx.x % 32;
#if HAS_ENGINE
    if constexpr (sizeof(T) == 2 && count == 8) {
        const u32 to = shared_address(own) + in_lines<T>(lane % 16, place + lane / 16 * 16);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                     :: "r"(to), "r"((u16)values[0] | values[1] << 16),
                        "r"((u16)values[2] | values[3] << 16), "r"((u16)values[4] | values[5] << 16),
                        "r"((u16)values[6] | values[7] << 16) : "memory");
        return;
    }
#endif
    _Pragma("unroll") for (int i = 0; i < count; i += 2)
        *(Pair *)(own + in_lines<T>(i / 2 % 2 * 8 + lane / 4, place + (i / 4 * 8 + lane % 4 * 2) * (int)sizeof(T)))
            = Pair{values[i], values[i + 1]};
}
/* Those of the sums from number `at` on, `pitch` from row to row. Beyond `rows` and `columns`
   nothing is written. */
template <class T, int count>
INLINE void store_results(T *to, i64 pitch, i64 rows, i64 columns, u8 *lines, int at,
                          const T (&values)[count]) {
    constexpr int lanes = 16 / sizeof(T), width = 128 / sizeof(T);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u8 *own = lines + warp * 2048;
    fill_lines(own, at / 4 * 8 % width * (int)sizeof(T), values);
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
