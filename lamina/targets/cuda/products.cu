/* Products of tiles that the threads of a block share, where no tensor cores run by themselves. A tile lies in lines of 128 bytes, whose
   16-byte chunks are permuted by the number of the line (swizzle); eight lines are a swizzle atom of
   1024 bytes. A line has steps; in a `transposed` tile it has rows or columns. A tile with more than
   128 bytes of these consists of panels, one behind the other: 128 rows of 16 bits, transposed, are
   two panels of 64. */

/* What a block has: sums in registers, lines for results, and two multistage buffers, of `depth` tiles
   of rows and as many of columns. SHARED_BYTES is what a block of this GPU may have, less about a KiB
   for barriers and to align the buffers. Results have lines of their own if the TMA fills the buffers,
   because it does so while they are stored; otherwise they take the lines of the buffers.

   `In_` and a kind is the type of elements in tiles. `opaque` sums of float32 pass an optimisation
   barrier: they are added to -0, which compilers do not know. Without it, ptxas would put the sums of
   a chunk that is stored in neighbouring registers, whose banks multiplications then share. */
#if __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 1030
#define SHARED_BYTES (226 << 10)
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
#define SHARED_BYTES (162 << 10)
#elif __CUDA_ARCH__ >= 800
#define SHARED_BYTES (98 << 10)
#else
#define SHARED_BYTES (63 << 10)
#endif
typedef u16 In_bf16; typedef u16 In_f16; typedef f32 In_f32; struct In_tf32 { u32 word; };
template <class T> constexpr bool exact = false;
template <> constexpr bool exact<f32> = true;
template <int count> struct OpaqueSums {
    const f32 (&sums)[count];
    f32 nothing;
    __device__ f32 operator[](int i) const { return sums[i] + nothing; }
};
#define MULTISTAGE_BUFFERS(kind, most, rows, columns, lines) \
    f32 sums[columns / 2], nothing = -0.0f; \
    if (exact<In_##kind>) asm("" : "+f"(nothing)); \
    const OpaqueSums<columns / 2> opaque{sums, nothing}; \
    constexpr int apart = HAS_TMA ? lines : 0, fit = (SHARED_BYTES - apart) / ((rows + columns) * 128); \
    constexpr int depth = fit < most ? fit : most; \
    extern __shared__ __align__(1024) u8 shared[]; \
    typedef In_##kind Kind; \
    Kind (*const left)[rows * 128 / sizeof(Kind)] \
        = (Kind (*)[rows * 128 / sizeof(Kind)])(shared + apart); \
    Kind (*const right)[columns * 128 / sizeof(Kind)] \
        = (Kind (*)[columns * 128 / sizeof(Kind)])(left + depth)

/* Stores an element in a tile; tf32 is rounded as the TMA rounds it. */
INLINE void put(u16 &to, u16 x) { to = x; }
INLINE void put(f32 &to, f32 x) { to = x; }
INLINE void put(In_tf32 &to, f32 x) { to.word = rounded_to_tf32(x); }

/* Fills a tile with elements that are computed, a chunk of 16 bytes at a time, from `row` and `step`
   on. `rows` and `steps`, unless they are 0, are ends: elements beyond are not read, and those of
   steps are zeros. `way` says how the tile lies, and which chunks neighbouring threads fill:
   0  lines of steps; chunks of one line, which are neighbours in memory
   1  transposed; the same
   2  lines of steps; chunks of neighbouring lines, where rows are neighbours in memory */
template <int way, int threads, i64 rows, i64 steps, class T, int size, class Element>
INLINE void fill_tile(T (&tile)[size], i64 row, i64 step, Element element) {
    constexpr int lanes = 16 / sizeof(T), width = 8 * lanes, height = size / width, transposed = way == 1;
    constexpr int lines = transposed ? width : height, chunks = (transposed ? height : width) / lanes;
    _Pragma("unroll") for (int i = threadIdx.x; i < lines * chunks; i += threads) {
        const int line = way == 2 ? i % lines : i / chunks, chunk = way == 2 ? i / lines : i % chunks;
        const int first = chunk * lanes;
        union { T values[lanes]; uint4 all; } whole;
        _Pragma("unroll") for (int at = 0; at < lanes; at++) {
            const i64 r = row + (transposed ? first + at : line);
            const i64 s = step + (transposed ? line : first + at);
            const auto value = element(rows ? min(r, rows - 1) : r, steps ? min(s, steps - 1) : s);
            if (steps && s >= steps) put(whole.values[at], 0); else put(whole.values[at], value);
        }
        *(uint4 *)(tile + (chunk / 8 * lines + line) * width + (chunk % 8 ^ line % 8) * lanes) = whole.all;
    }
}
#define FILL_TILE(side, row, step, ...) \
    fill_tile<__VA_ARGS__>(side[slot], row, step, [&](const i64 row, const i64 step)
/* Copies by the copy engine (TMA). The barrier of a tile counts the bytes that have come. */

INLINE void start_barriers(u64 *full, int count, int tiles) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < count; i++) start_barrier(full + i, tiles);
        publish_barriers();
    }
    __syncthreads();
}
struct ByFirst { u64 *barrier; };  // where all threads fill tiles, the first one asks the TMA
INLINE ByFirst operator+(ByFirst first, u32 number) { return {first.barrier + number}; }
#if !HAS_TMA
INLINE void wait_for_phase(u64 *, u32) {}
template <int transposed, bool is_im2col, class... Arguments>
INLINE bool copy_tile(Arguments...) { return false; }
#else
INLINE void wait_for_phase(u64 *barrier, u32 parity) { while (!phase_has_ended(barrier, parity)) {} }
template <int transposed, bool is_im2col, class T, int size, class... Places>
INLINE bool copy_tile(T (&tile)[size], const Map *map, u64 *full, int column, Places... places) {
    constexpr int width = 128 / sizeof(T), lines = transposed ? width : size / width;
    expect_bytes(full, sizeof(tile));
    for (int i = 0; i < size / (lines * width); i++)
        if constexpr (is_im2col)
            copy_im2col(shared_address(tile + i * lines * width), map, full, column + i * width, places...);
        else
            copy_box(shared_address(tile + i * lines * width), map, full, column + i * width, places...);
    return true;
}
template <int transposed, bool is_im2col, class T, int size, class... Places>
INLINE bool copy_tile(T (&tile)[size], const Map *map, ByFirst full, Places... places) {
    if (threadIdx.x == 0) copy_tile<transposed, is_im2col>(tile, map, full.barrier, places...);
    return true;
}
#endif

#define COPY_TILE(side, transposed, is_im2col, ...) \
    if (!copy_tile<transposed, is_im2col>(side[slot], &side##_map, full + slot, __VA_ARGS__))

/* Products of 64 rows by a line of steps, 64 of 16 bits, by a group of four warps. The number of a
   thread's sums tells the columns. `more`: earlier steps are in the sums already; otherwise the sums
   begin at 0. */

template <int count> INLINE void start(f32 (&sums)[count], bool more) {
    if (!more)
        _Pragma("unroll") for (int i = 0; i < count; i++) sums[i] = 0;
}

/* Address of a tile of a multistage buffer, or of the 64 rows of it that a group of four warps has. */
template <class T, int size> INLINE u32 tile_of(T (*buffer)[size], u32 slot, u32 group = 0) {
    return shared_address(buffer) + slot * (u32)sizeof(*buffer)
        + (sizeof(*buffer) > 8192 ? group * 8192 : 0);
}

#if __CUDA_ARCH__ >= 800
INLINE void load_4(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}
INLINE void load_4_transposed(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}
/* Loads four 8 x 8 matrices of a tile: of two groups of eight rows (or columns), from `start` on, and
   of two groups of eight steps, from 16 * `step` on. `inner`: the groups of steps come first. */
template <int transposed> INLINE void load_pieces(u32 (&to)[4], u32 tile, int start, int step, bool inner) {
    const int lane = threadIdx.x % 32, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
    const int row = start + (inner ? high : low) + (transposed ? 0 : lane % 8);
    const int at = step * 16 + (inner ? low : high) + (transposed ? lane % 8 : 0);
    const int line = transposed ? at : row, along = transposed ? row : at;
    const u32 from = tile + along / 64 * 8192 + line * 128 + ((along % 64 / 8 ^ line % 8) << 4);
    if (transposed) load_4_transposed(to, from); else load_4(to, from);
}
#define MULTIPLY(type, n) \
    template <int transposed_a, int transposed_b> \
    INLINE void mma_##type(f32 (&d)[n / 2], u32 a, u32 b, bool more) { \
        start(d, more); \
        _Pragma("unroll") for (int step = 0; step < 4; step++) { \
            u32 x[4], y[4]; \
            load_pieces<transposed_a>(x, a, threadIdx.x / 32 % 4 * 16, step, false); \
            _Pragma("unroll") for (int j = 0; j < n / 8; j += 2) { \
                load_pieces<transposed_b>(y, b, j * 8, step, true); \
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
template <int transposed> INLINE u16 piece(u32 tile, int at, int step) {
    const int line = transposed ? step : at, along = transposed ? at : step;
    u16 x;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(x)
                 : "r"(tile + along / 64 * 8192 + line * 128 + ((along % 64 / 8 ^ line % 8) << 4)
                       + along % 8 * 2));
    return x;
}
#define MULTIPLY(type, n) \
    template <int transposed_a, int transposed_b> \
    INLINE void mma_##type(f32 (&d)[n / 2], u32 a, u32 b, bool more) { \
        const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4; \
        const int column = threadIdx.x % 4 * 2; \
        start(d, more); \
        _Pragma("unroll 1") for (int step = 0; step < 64; step++) { \
            const f32 x[2] = {type##_to_f32(piece<transposed_a>(a, row, step)), \
                              type##_to_f32(piece<transposed_a>(a, row + 8, step))}; \
            _Pragma("unroll") for (int i = 0; i < n / 2; i++) \
                d[i] += x[i / 2 % 2] \
                    * type##_to_f32(piece<transposed_b>(b, i / 4 * 8 + column + i % 2, step)); \
        } \
    }
#endif
#define SIZES(type) \
    MULTIPLY(type, 64) \
    MULTIPLY(type, 128) \
    MULTIPLY(type, 256)
SIZES(bf16)
SIZES(f16)

/* A line of tf32 has 32 steps. Tensor cores read it along the lines, so only the left tile may be
   transposed: threads read it into registers. */
#if __CUDA_ARCH__ >= 800
template <int transposed_a, int, int count>
INLINE void mma_tf32(f32 (&d)[count], u32 a, u32 b, bool more) {
    start(d, more);
    _Pragma("unroll") for (int step = 0; step < 4; step++) {
        u32 x[4], y[4];
        if (transposed_a) load_transposed(x, a, step);
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
template <int transposed> INLINE f32 element_of(u32 tile, int at, int step) {
    const int line = transposed ? step : at, along = transposed ? at : step;
    f32 x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x)
                 : "r"(tile + along / 32 * 4096 + line * 128 + ((along % 32 / 4 ^ line % 8) << 4)
                       + along % 4 * 4));
    return x;
}
template <int transposed_a, int, int count>
INLINE void mma_tf32(f32 (&d)[count], u32 a, u32 b, bool more) {
    const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    start(d, more);
    _Pragma("unroll 1") for (int step = 0; step < 32; step++) {
        const f32 x[2] = {element_of<transposed_a>(a, row, step), element_of<transposed_a>(a, row + 8, step)};
        _Pragma("unroll") for (int i = 0; i < count; i++)
            d[i] += x[i / 2 % 2] * element_of<0>(b, i / 4 * 8 + column + i % 2, step);
    }
}
#endif

/* In float32 without tensor cores: multiplies the rows and columns of one step while it loads those of
   the next, in chunks of four. A chunk of a transposed tile has four neighbouring rows. In another
   tile a chunk has four steps of one row: threads first transpose squares of four chunks, of lines
   that are `blocks` lines apart. */

template <int blocks, int threads, int size> INLINE void transpose_lines(f32 (&tile)[size]) {
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
template <int transposed_a, int transposed_b, int threads, class T, int rows, int columns>
INLINE void transpose_squares(T (&a)[rows], T (&b)[columns]) {
    if constexpr (exact<T> && !transposed_a) transpose_lines<8, threads>(a);
    if constexpr (exact<T> && !transposed_b) transpose_lines<16, threads>(b);
}
/* Where a thread begins to read, if it has the rows of number `block` of `blocks`. The place of its
   chunk is changed by the line, of a transposed tile, or else by the step. */
template <int transposed> INLINE u32 thread_start(u32 tile, int block) {
    return tile + (transposed ? block / 8 * 4096 : block * 128) + block % 8 * 16;
}
/* Loads `count` rows or columns of one step: of the `group`th eight steps, number `step`. The loads
   are volatile, and the launch bounds promise one block per multiprocessor. Without both, ptxas sinks
   each load to just before its use, which exposes its latency. */
template <int transposed, int blocks, int count>
INLINE void load_step(f32 (&to)[count], u32 start, int group, int step) {
    const u32 from = transposed ? (start + group * 1024 ^ step * 16) + step * 128
                            : (start ^ group * 32 ^ step / 4 * 16) + step % 4 * blocks * 128;
    _Pragma("unroll") for (int i = 0; i < count; i += 4)
        asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(to[i]), "=f"(to[i + 1]), "=f"(to[i + 2]), "=f"(to[i + 3])
                     : "r"(from + i * blocks * 128));
}
template <int transposed_a, int transposed_b, int count>
INLINE void fma_f32(f32 (&d)[count], u32 a, u32 b, bool more) {
    constexpr int columns = count / 8;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const u32 rows = thread_start<transposed_a>(a, warp / 2 * 4 + lane / 8);
    const u32 others = thread_start<transposed_b>(b, warp % 2 * 8 + lane % 8);
    f32 x[2][8], y[2][columns];
    if (!more)
        _Pragma("unroll") for (int i = 0; i < count; i++)
            asm volatile("mov.f32 %0, 0f00000000;" : "=f"(d[i]));  // else ptxas selects each sum in each step
    load_step<transposed_a, 8>(x[0], rows, 0, 0);
    load_step<transposed_b, 16>(y[0], others, 0, 0);
    _Pragma("unroll 1") for (int group = 0; group < 4; group++)
        _Pragma("unroll") for (int step = 0; step < 8; step++) {
            const int now = step % 2, later = step == 7 ? (group + 1) % 4 : group;
            load_step<transposed_a, 8>(x[1 - now], rows, later, (step + 1) % 8);
            load_step<transposed_b, 16>(y[1 - now], others, later, (step + 1) % 8);
            _Pragma("unroll") for (int j = 0; j < columns; j++)
                _Pragma("unroll") for (int at = 0; at < 8; at++) {
                    const int i = j % 2 ? 7 - at : at;  // one of two factors stays
                    d[i * columns + j] += x[now][i] * y[now][j];
                }
        }
}

/* Stream-K: how blocks divide the steps of all tiles of results. `block_steps` is the number of steps
   of a block.

   With at least as many tiles as blocks, each block has whole tiles, every `blocks`th one: tiles that
   are neighbours are computed at the same time. With fewer, each tile is cut into as many parts as
   there are blocks for every tile, and what is left of all tiles, their rests, is divided among the
   other blocks, one tile after the other. For example 72 tiles of 256 steps and 132 blocks: 72 blocks
   have the first part of a tile each, and 60 blocks share the 72 rests. So most blocks are at the same
   steps at the same time and find each other's operands in the cache.

   The block with the first step of a tile adds up what the others have written: first the rests, then
   the later parts in order. A later part has more steps, for as long as it takes to add the parts
   before it, and fewer for writing its own sums, so that all end at about the same time. Writing the
   sums of a tile takes as long as `giving` steps, and adding them as `taking` steps. Blocks that write
   have lower numbers than the block that adds, and wait for nothing: the order in which a GPU starts
   blocks does not matter. */
constexpr i32 smaller(i32 a, i32 b) { return a < b ? a : b; }
constexpr i32 larger(i32 a, i32 b) { return a > b ? a : b; }
/* The first step of part number `part`, if the first one has `first` steps, the second one `sooner`
   more than that, and each later one `take` more than the one before. */
constexpr i32 start_of(i32 part, i32 first, i32 sooner, i32 take) {
    return part * first + larger(part - 1, 0) * (2 * sooner + (part - 2) * take) / 2;
}
struct Place { u32 tile, step, left; };  // `left`: steps of a block, of this tile and later ones
template <i32 giving, i32 taking, u32 tiles, u32 steps, u32 block_steps, u32 blocks>
struct StreamK : Place {
    static constexpr u32 all = tiles, whole = block_steps < steps ? 0 : steps;  // steps of a whole tile, if any
    static constexpr i32 parts = larger(steps / block_steps, 1);  // of a tile, without its rest
    static constexpr i32 rest_blocks = larger(blocks - tiles * parts, 0);  // which share the rests
    static constexpr i32 give = smaller(giving, block_steps / 4);
    static constexpr i32 take = smaller(taking, block_steps / (4 * parts));
    static constexpr i32 sooner = (rest_blocks ? take : 0) - give;
    // Steps for which the blocks of rests write sums.
    static constexpr i32 rest_give = rest_blocks ? give * (rest_blocks + tiles) : 0;
    static constexpr i32 first_part = ((i64)tiles * (steps - start_of(parts, 0, sooner, take)) + rest_give
        + blocks - 1) / blocks;  // steps
    static constexpr u32 begin = rest_blocks ? smaller(start_of(parts, first_part, sooner, take), steps) : steps;
    static constexpr u32 rest = steps - begin;  // steps of a tile
    static constexpr u32 each = larger((tiles * (u64)rest + rest_blocks - 1) / larger(rest_blocks, 1), 1);
    static constexpr u32 slots = parts + rest / each + 1;  // for partial sums of a tile
    Place later;  // the step whose tiles are filled next
    u32 slot, parity, free;  // of the buffer: slot and parity of the next step; the slot to fill next
    bool fresh;
    StreamK() {
        const u32 number = blocks - 1 - blockIdx.x, part = number / tiles;
        if (block_steps >= steps)
            later = {number, 0, (tiles - number + blocks - 1) / blocks * steps};
        else if (part < parts) {
            const u32 step = start_of(part, first_part, sooner, take);
            const u32 end = part + 1 < parts ? start_of(part + 1, first_part, sooner, take) : begin;
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
    /* How many steps the block has of the next tile. */
    u32 here() { return min(steps - step, left); }
    static void pass(Place &place, u32 count) {
        place.step += count;
        place.left -= count;
        if (place.step == steps) {
            place.step = block_steps < steps ? begin : 0;
            place.tile += block_steps < steps ? 1 : blocks;
        }
    }
    /* The number of the block that has a step of a tile's rest, among the blocks that share the rest. */
    static u32 sharing(u32 tile, u32 step) {
        const u64 first = tile * (u64)rest;
        return (first + step - begin) / each - first / each;
    }
    /* The slot of the block's partial sums of a tile from the step `first` on. With 0: how many blocks
       write partial sums of the tile. */
    static u32 slot_of(u32 tile, u32 first) {
        const u32 part = (blocks - 1 - blockIdx.x) / tiles, shared = rest ? sharing(tile, steps - 1) + 1 : 0;
        return !first ? shared + parts - 1 : part < parts ? shared + part - 1 : sharing(tile, first);
    }
};
/* Barriers of the multistage buffer. */
struct StageBarriers { u64 full[16]; };
INLINE StageBarriers &stages() { __shared__ StageBarriers all; return all; }

template <int threads, i32 giving, i32 taking, u32... sizes, class Body>
INLINE void stream_k(Body body) {
    if (threadIdx.x < threads)
        for (StreamK<giving, taking, sizes...> work; work.left;) body(work);
}
#define PART const auto body = [&](auto &work) INLINED  // a tile
#define mma_STREAM_K(threads, ...) FOLLOW; stream_k<threads, 5, 3, __VA_ARGS__>(body)
#define fma_STREAM_K(threads, ...) /* a step takes longer than giving or taking */ \
    FOLLOW; stream_k<threads, 0, 0, __VA_ARGS__>(body)
#define EACH_TILE(word, threads, workers) const word worker = work.tile

template <int slots, int threads, int count>
INLINE void give_sums(const OpaqueSums<count> &sums, u32 slot) {
    auto &all = partial_sums<slots, count, threads>;
    _Pragma("unroll") for (int i = 0; i < count; i += 4)
        __stcg(&all.sums[slot][i / 4][threadIdx.x],
               make_float4(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]));
    __syncwarp();
    if (threadIdx.x % 32 == 0) set_ready(&all.ready[slot][threadIdx.x / 32]);
}
/* Adds the partial sums of `others` blocks, from `slot` on: a fourth at a time, while the next one is
   loaded. */
template <int slots, int threads, int count>
INLINE void take_sums(f32 (&sums)[count], u32 slot, u32 others) {
    constexpr int few = count / 16;
    auto &all = partial_sums<slots, count, threads>;
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

/* The loop over the steps of a tile that a block has. The result: does the block have the whole sums?

   A step waits for its tiles and multiplies them. Then the slot of the step before is filled for a
   later step, or that of this one if there is no other. `copied` says how many of the two tiles the
   TMA fills, if there is one; it goes on with the tiles of the next results. `transposes`: threads
   transpose squares of the tiles of the next step. */
template <class Kind, int threads, int depth, int copied, bool transposes, class Work, int count,
          class Fill, class Transpose, class Multiply>
INLINE bool pipeline(f32 (&sums)[count], const OpaqueSums<count> &opaque, Work &work, Fill fill,
                     Transpose transpose, Multiply multiply) {
    constexpr int tma_tiles = HAS_TMA ? copied : 0;
    static_assert(depth <= 16);
    u64 *const full = stages().full;
    const auto fill_next = [&] {
        fill(work.later.tile, work.later.step, work.free, ByFirst{full});
        work.pass(work.later, 1);
        if (++work.free == depth) work.free = 0;
    };
    const u32 first = work.step, tile = work.tile, here = work.here();
    const u32 last = HAS_TMA ? 0 : work.left - here;
    const auto release = [&] {
        __syncthreads();
        // To the TMA, which writes where threads have written.
        if (transposes && threadIdx.x == 0) publish();
        if (work.later.left > last) fill_next();
    };
    if (work.fresh && tma_tiles) start_barriers(full, depth, tma_tiles);
    if (!HAS_TMA) __syncthreads();  // The buffer had results.
    if (work.fresh || !HAS_TMA)
        _Pragma("unroll 1") for (int i = 0; i < depth && work.later.left > last; i++) fill_next();
    const u32 group = warp_group();
    u32 slot = __shfl_sync(~0u, work.slot, 0), parity = __shfl_sync(~0u, work.parity, 0);
    const auto wait = [&] {
        if (tma_tiles) wait_for_phase(full + slot, parity);
        if (tma_tiles < 2) {  // threads fill one of the two tiles at least
            publish();
            __syncthreads();
        }
        if (transposes) transpose(slot);
    };
    const auto advance = [&] {
        if (++slot == depth) {
            slot = 0;
            parity ^= 1;
        }
    };
    if (transposes) {
        wait();
        __syncthreads();
    }
    u32 i = 0;
    do {
        if (!transposes) wait();
        multiply(slot, group, i > 0);
        if (transposes) {
            if (depth == 1) release();
            advance();
            if (i + 1 < here) wait();
            if (depth == 1) __syncthreads(); else release();
        } else {
            if (depth == 1 || i > 0) release();
            advance();
        }
    } while (++i < here);
    if (!transposes && depth > 1) release();
    work.slot = slot;
    work.parity = parity;
    work.fresh = false;
    work.pass(work, here);
    if constexpr (!Work::whole) {
        constexpr u32 slots = Work::slots, room = slots * Work::all;
        const u32 slot = Work::slot_of(tile, first);
        if (first) give_sums<room, threads>(opaque, tile * slots + slot);
        else if (slot) take_sums<room, threads>(sums, tile * slots, slot);
    }
    return !first;
}
#define FILL(tile, number, slot, full) \
    const auto fill = [&](const u32 tile, const u32 number, const u32 slot, auto full)
#define PIPELINE(threads, copied, multiply, transposed_a, transposed_b) \
    if (!pipeline<Kind, threads, depth, copied, exact<Kind> && !(transposed_a && transposed_b)>( \
            sums, opaque, work, fill, \
            [&](u32 slot) { transpose_squares<transposed_a, transposed_b, threads>(left[slot], right[slot]); }, \
            [&](u32 slot, u32 group, bool more) { \
                multiply<transposed_a, transposed_b>(sums, tile_of(left, slot, group), tile_of(right, slot), \
                                             more); \
            })) return
