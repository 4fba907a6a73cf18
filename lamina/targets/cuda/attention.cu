/* Products back to back, as in attention, that have no tile program: of GPUs whose tensor cores do not
   run by themselves, of tiles that threads fill or that leave no room for results, and of factors that
   no view of the dialect says. The left factors of outer products are computed from the sums of inner
   products, tile by tile of the keys that outer products reduce. A block has rows, 64 for each
   warpgroup. Tiles of its rows (q) stay, those of keys (k and v) pass by. One more warpgroup helps to
   fill tiles.

   A tile has 16-bit elements in panels of lines of 128 bytes, whose 16-byte chunks are permuted by the
   number of the line (swizzle). Its second axis is along the lines or, if it is `transposed`, its
   first: that of rows, or of keys. */

/* What a block of this GPU may have of shared memory, less about a KiB for barriers and to align the
   buffers. */
#if __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 1030
#define SHARED_BYTES (226 << 10)
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
#define SHARED_BYTES (162 << 10)
#else
#define SHARED_BYTES (98 << 10)
#endif
#define FILL_TILE(side, row, step, ...) \
    fill_tile<__VA_ARGS__>(*side, row, step, [&](const i64 row, const i64 step)

#if __CUDA_ARCH__ >= 800
struct bf16; struct f16;
template <class Kind, int transposed_, int length, int width> struct Tile {
    static constexpr int transposed = transposed_, rows = length, lines = transposed ? width : length;
    static constexpr int panels = (transposed ? length : width) / 64;
    typedef Kind Element;
    u16 values[panels][lines][64];
};
/* Where tiles lie: tiles of rows, then those that pass by. Results take their place.
   TileBytes count all tiles before one: tiles that stay, and tiles that pass by. */
struct TileBytes { int staying, passing; };
constexpr TileBytes before0 = {0, 0};
#define TILE(at, next, passes, ...) \
    constexpr bool moves##at = passes; \
    constexpr TileBytes before##next = {before##at.staying + (passes ? 0 : (int)sizeof(Tile<__VA_ARGS__>)), \
                                      before##at.passing + (passes ? (int)sizeof(Tile<__VA_ARGS__>) : 0)}; \
    typedef Tile<__VA_ARGS__> Tile##at
#define LIES(at) Tile##at *const tile##at \
    = (Tile##at *)(shared + (moves##at ? whole.staying + before##at.passing : before##at.staying))

/* What a thread has, with two rows and of each the columns of a lane:
   sums     of inner products, of one tile
   parts    what is computed from them: left factors of outer products
   left     these, rounded to 16 bits and packed in pairs
   totals   of outer products, over all tiles so far
   row_max  the maximum of a row so far
   shift    what is subtracted from the exponents of a row
   factor   by what sums so far are rescaled when the shift moves
   row_sums other sums of a row */
#define BACK_TO_BACK(tiles, inner, outer, sides, size, columns) \
    f32 sums[inner][size / 2], totals[outer][columns / 2] = {}, parts[outer][size / 2]; \
    f32 row_max[2] = {-inff(), -inff()}, shift[2] = {-inff(), -inff()}, factor[2] = {1, 1}; \
    f32 row_sums[sides + 1][2] = {}; \
    u32 left[outer][size / 4]; \
    constexpr TileBytes whole = before##tiles; \
    static_assert(whole.staying + whole.passing <= SHARED_BYTES, "the tiles are too large for this GPU"); \
    extern __shared__ __align__(1024) u8 shared[]

/* Fills a tile with elements that are computed, a chunk of 16 bytes at a time, from `row` and `step`
   on. `rows` and `steps`, unless they are 0, are ends: elements beyond are not read, and those of
   steps are zeros. Rows of a tile are whole. */
template <int threads, i64 rows, i64 steps, class Kind, int transposed, int length, int width,
          class Element>
INLINE void fill_tile(Tile<Kind, transposed, length, width> &tile, i64 row, i64 step, Element element) {
    for (int i = threadIdx.x; i < tile.lines * tile.panels * 8; i += threads) {
        const int line = i % tile.lines, panel = i / tile.lines / 8, chunk = i / tile.lines % 8;
        union { u16 values[8]; uint4 all; } whole;
        _Pragma("unroll") for (int at = 0; at < 8; at++) {
            const int along = panel * 64 + chunk * 8 + at;
            const i64 r = row + (transposed ? along : line), s = step + (transposed ? line : along);
            const u16 value = element(rows ? min(r, rows - 1) : r, steps ? min(s, steps - 1) : s);
            whole.values[at] = steps && s >= steps ? 0 : value;
        }
        *(uint4 *)&tile.values[panel][line][(chunk ^ line % 8) * 8] = whole.all;
    }
}
/* Products by a warpgroup. The left factor is 64 rows of a tile, or values in registers, in
   the layout of sums. */

INLINE u32 pack(const bf16 *, f32 first, f32 second) { return pack_bf16(first, second); }
INLINE u32 pack(const f16 *, f32 first, f32 second) { return pack_f16(first, second); }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define ATOMS(type, n, P0, P1, P2, P3, P4, P5) \
    template <int transposed_a, int transposed_b> \
    INLINE void multiply(const type *, f32 (&d)[n / 2], u64 a, u64 b, int more) { \
        asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " P2 ", 0;\n" \
                     " wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type \
                     " {" IN_##n "}, " P0 ", " P1 ", p, 1, 1, " P3 ", " P4 ";\n}" \
                     : OUT_##n : "l"(a), "l"(b), "r"(more), "n"(transposed_a), "n"(transposed_b)); \
    } \
    template <int transposed_b> \
    INLINE void multiply(const type *, f32 (&d)[n / 2], const u32 *a, u64 b) { \
        asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, 1, 0;\n" \
                     " wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type \
                     " {" IN_##n "}, {" P0 ", " P1 ", " P2 ", " P3 "}, " P4 ", p, 1, 1, " P5 ";\n}" \
                     : OUT_##n : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(transposed_b)); \
    }
#define ALL_ATOMS(type) \
    ATOMS(type, 64, "%32", "%33", "%34", "%35", "%36", "%37") \
    ATOMS(type, 128, "%64", "%65", "%66", "%67", "%68", "%69")
ALL_ATOMS(bf16)
ALL_ATOMS(f16)
INLINE u64 panels_at(const void *tile, int lines, int step) {
    const u32 low = (shared_address(tile) >> 4) + (lines * 8 << 16) + step;
    u64 where;
    asm("mov.b64 %0, {%1, %2};" : "=l"(where) : "r"(low), "n"(1024 >> 4 | 1 << 30));
    return where;
}
/* Where 16 steps begin in a tile, across its lines or along them, in units of 16 bytes. */
INLINE constexpr int at_step(int across, int step, int lines) {
    return across ? step * 128 : step / 4 * lines * 8 + step % 4 * 2;
}
template <class Kind, int transposed_a, int rows, int transposed_b, int columns, int width, int count>
INLINE void multiply_tiles(f32 (&sums)[count], const Tile<Kind, transposed_a, rows, width> &a,
                           const Tile<Kind, transposed_b, columns, width> &b) {
    const int group = warp_group();
    const void *rows_at = &a.values[transposed_a ? group : 0][transposed_a ? 0 : group * 64];
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    _Pragma("unroll") for (int step = 0; step < width / 16; step++)
        multiply<transposed_a, transposed_b>((Kind *)0, sums,
                                     panels_at(rows_at, a.lines, at_step(transposed_a, step, a.lines)),
                                     panels_at(&b, b.lines, at_step(transposed_b, step, b.lines)), step);
}
template <class Kind, int transposed, int length, int width, int size, int count>
INLINE void multiply_parts(f32 (&sums)[count], const u32 (&a)[size],
                           const Tile<Kind, transposed, length, width> &b) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    _Pragma("unroll") for (int step = 0; step < size / 4; step++)
        multiply<!transposed>((Kind *)0, sums, a + 4 * step,
                          panels_at(&b, b.lines, at_step(!transposed, step, b.lines)));
}
INLINE void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int running> INLINE void await() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(running) : "memory");
}
/* Keeps the compiler from moving what uses these above what was waited for. */
template <int rows, int count> INLINE void hold(f32 (&d)[rows][count]) {
    _Pragma("unroll") for (int i = 0; i < rows; i++)
        _Pragma("unroll") for (int j = 0; j < count; j++) asm volatile("" : "+f"(d[i][j]) :: "memory");
}
#else
/* Loads four 8 x 8 matrices of a tile: of two groups of eight rows (or columns), from `start` on, and
   of two groups of eight steps, from 16 * `step` on. `inner`: the groups of steps come first. */
template <int across, class T>
INLINE void load_panels(u32 (&to)[4], const T &tile, int start, int step, bool inner) {
    const int lane = threadIdx.x % 32, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
    const int row = start + (inner ? high : low) + (across ? 0 : lane % 8);
    const int at = step * 16 + (inner ? low : high) + (across ? lane % 8 : 0);
    const int line = across ? at : row, along = across ? row : at;
    const u32 from = shared_address(&tile.values[along / 64][line][(along % 64 / 8 ^ line % 8) * 8]);
    if (across) load_matrices_transposed(to, from); else load_matrices(to, from);
}
#define ATOM(type) \
    INLINE void multiply(const type *, f32 *to, const u32 *x, const u32 *y) { \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." #type "." #type ".f32 " \
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
            : "+f"(to[0]), "+f"(to[1]), "+f"(to[2]), "+f"(to[3]) \
            : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1])); \
    }
ATOM(bf16)
ATOM(f16)
template <int across, class Kind, int transposed, int length, int width, int count>
INLINE void multiply_columns(f32 (&sums)[count], const u32 *x,
                             const Tile<Kind, transposed, length, width> &b, int step) {
    _Pragma("unroll") for (int j = 0; j < count / 4; j += 2) {
        u32 y[4];
        load_panels<across>(y, b, j * 8, step, true);
        multiply((Kind *)0, sums + j * 4, x, y);
        multiply((Kind *)0, sums + j * 4 + 4, x, y + 2);
    }
}
template <class Kind, int transposed_a, int rows, int transposed_b, int columns, int width, int count>
INLINE void multiply_tiles(f32 (&sums)[count], const Tile<Kind, transposed_a, rows, width> &a,
                           const Tile<Kind, transposed_b, columns, width> &b) {
    _Pragma("unroll") for (int i = 0; i < count; i++) sums[i] = 0;
    _Pragma("unroll") for (int step = 0; step < width / 16; step++) {
        u32 x[4];
        load_panels<transposed_a>(x, a, threadIdx.x / 32 * 16, step, false);
        multiply_columns<transposed_b>(sums, x, b, step);
    }
}
template <class Kind, int transposed, int length, int width, int size, int count>
INLINE void multiply_parts(f32 (&sums)[count], const u32 (&a)[size],
                           const Tile<Kind, transposed, length, width> &b) {
    _Pragma("unroll") for (int step = 0; step < size / 4; step++)
        multiply_columns<!transposed>(sums, a + 4 * step, b, step);
}
INLINE void commit() {}
template <int running> INLINE void await() {}
template <int rows, int count> INLINE void hold(f32 (&)[rows][count]) {}
#endif

template <int outer, int count>
INLINE void scale_totals(f32 (&totals)[outer][count], const f32 (&factor)[2]) {
    _Pragma("unroll") for (int i = 0; i < outer; i++)
        _Pragma("unroll") for (int j = 0; j < count; j++) totals[i][j] *= factor[j / 2 % 2];
}
/* The persistent loop. Each block runs until all tiles of results are done. It takes one after the
   other: first the tiles of as many arrays (heads) as have their passing tiles in CACHED_BYTES
   together, and of these the tiles first that take longest. */

// Of an L2 cache of 50 MB of an H100, the part for tiles that pass by.
#define CACHED_BYTES (16 << 20)
struct Work { u32 tile; };
template <u32 tiles, u32 rows, u32 bytes, bool last_first, class Body>
INLINE void persistent_loop(Body body) {
    constexpr u32 together = bytes < CACHED_BYTES ? CACHED_BYTES / bytes : 1;
    Work work;
    for (u32 ticket = blockIdx.x; ticket < tiles; ticket += gridDim.x) {
        const u32 start = ticket / (together * rows) * together, rest = ticket % (together * rows);
        const u32 arrays = min(together, tiles / rows - start), row = rest / arrays;
        work.tile = (start + rest % arrays) * rows + (last_first ? rows - 1 - row : row);
        body(work);
        __syncthreads();
    }
}
#define EACH_ROW_TILE const auto body = [&](auto &work)
#define EACH_TILE(word, threads, workers) const word worker = work.tile
#define PERSISTENT_LOOP(...) FOLLOW; persistent_loop<__VA_ARGS__>(body)

/* The loop over tiles of keys. `staying` tiles stay, `passing` ones pass by, from `first` on, below
   `stop`. The result is true for threads that have sums. */

template <class Kind, bool scaled, int outer, int count, int size, int quarter>
INLINE void take_parts(f32 (&totals)[outer][count], u32 (&left)[outer][quarter],
                       const f32 (&parts)[outer][size], const f32 (&factor)[2]) {
    if (scaled && __any_sync(~0u, factor[0] != 1 || factor[1] != 1)) scale_totals(totals, factor);
    _Pragma("unroll") for (int i = 0; i < outer; i++)
        _Pragma("unroll") for (int j = 0; j < quarter; j++)
            left[i][j] = pack((Kind *)0, parts[i][2 * j], parts[i][2 * j + 1]);
}
template <class Kind, int computing, int staying, int passing, bool scaled, int inner, int outer,
          int columns, int size, int quarter, class Fill, class Within, class Elements, class Beyond>
INLINE bool back_to_back(f32 (&sums)[inner][size], f32 (&totals)[outer][columns], f32 (&parts)[outer][size],
                   u32 (&left)[outer][quarter], f32 (&factor)[2], u32 first, u32 stop, Fill fill,
                   Within within, Elements elements, Beyond beyond) {
    const bool computes = threadIdx.x < computing;
    for (int i = 0; i < staying; i++) fill(i, 0);
    for (u32 number = first; number < stop; number++) {
        for (int i = 0; i < passing; i++) fill(staying + i, number);
        publish();
        __syncthreads();
        if (computes) {
            within();
            commit();
            elements(number, [&] {
                await<0>();
                hold(sums);
            });
            take_parts<Kind, scaled>(totals, left, parts, factor);
            beyond();
            commit();
            await<0>();
            hold(totals);
        }
        __syncthreads();
    }
    return computes;
}
#endif
/* All inner products, of two tiles each, and all outer ones, of packed values and a tile each. */
template <int at = 0, int n, int size>
INLINE void multiply_within(f32 (&)[n][size]) {}
template <int at = 0, int n, int size, class A, class B, class... Others>
INLINE void multiply_within(f32 (&sums)[n][size], const A *a, const B *b, const Others *... others) {
    multiply_tiles(sums[at], *a, *b);
    multiply_within<at + 1>(sums, others...);
}
template <int at = 0, int n, int size, int part>
INLINE void multiply_beyond(f32 (&)[n][size], const u32 (&)[n][part]) {}
template <int at = 0, int n, int size, int part, class B, class... Others>
INLINE void multiply_beyond(f32 (&totals)[n][size], const u32 (&left)[n][part], const B *b,
                            const Others *... others) {
    multiply_parts(totals[at], left[at], *b);
    multiply_beyond<at + 1>(totals, left, others...);
}
#define WITHIN(...) \
    const auto within = [&] { multiply_within(sums, __VA_ARGS__); }
#define BEYOND(...) \
    const auto beyond = [&] { multiply_beyond(totals, left, __VA_ARGS__); }
#define FILL_TILES(index, number) \
    const auto fill = [&](const int tile, const index number)
#define BACK_TO_BACK_LOOP(staying, passing, scaled) \
    if (!back_to_back<Tile0::Element, Tile0::rows * 2, staying, passing, scaled>( \
            sums, totals, parts, left, factor, first, stop, fill, within, elements, beyond)) return
