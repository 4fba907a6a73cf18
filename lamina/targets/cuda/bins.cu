/* Sums at places of a flat array of float32, by bins of places: see `BinKernel` of
   `lamina/ir/kernel.py`. The scratch memory has, for each chunk of updates, those that have a place,
   the ones of a bin side by side; then where each lies within its bin; and then, for each bin and
   chunk, where its updates begin in that chunk. The bin behind the last one has none, and begins
   where a chunk ends. */

#define BIN_THREADS 1024
#define SIDE_BY_SIDE 8 /* places of a bin: a sector of float32 */
#define SEGMENTS 4 /* of chunks that a warp adds at a time */
#define MANY_ALIKE 8 /* lanes: the sum of a warp takes ten exchanges */
#define EACH(e, count) UNROLLED for (u32 e = 0; e < count; e++)

template <u32 count, u32 chunk_> struct Binned {
    static constexpr u32 chunk = chunk_;
    static constexpr u32 chunks = (count + chunk - 1) / chunk;
    f32 *updates; u16 *places, *starts;
    __device__ Binned(i64 *scratch) {
        updates = (f32 *)scratch;
        places = (u16 *)(updates + chunks * chunk);
        starts = places + chunks * chunk;
    }
};

/* How the places of an array have bins: of each row of as many sectors as there are bins, each bin has one.
   Which one differs from row to row, so that neither neighbours nor places at equal distances share a bin. */
template <u32 places, u32 bins> struct Bins {
    static constexpr u32 rows = (places + SIDE_BY_SIDE * bins - 1) / (SIDE_BY_SIDE * bins);
    static constexpr u32 size = rows * SIDE_BY_SIDE;
    static __device__ u32 turn(u32 row) { return (u64)(row * 2654435761u) * bins >> 32; }
    static __device__ u32 bin(u32 place) {
        const u32 sector = place / SIDE_BY_SIDE;
        return (sector % bins + turn(sector / bins)) % bins;
    }
    static __device__ u32 within(u32 place) {
        return place / SIDE_BY_SIDE / bins * SIDE_BY_SIDE + place % SIDE_BY_SIDE;
    }
    static __device__ u32 place(u32 bin, u32 within) {
        const u32 row = within / SIDE_BY_SIDE, sector = row * bins + (bin + bins - turn(row)) % bins;
        return sector * SIDE_BY_SIDE + within % SIDE_BY_SIDE;
    }
};

/* What the lanes up to one's own have. */
INLINE u32 sum_of_lanes(u32 own) {
    u32 sum = own;
    EACH(step, 5) {
        const u32 below = HELD(sum, (LANE - (1 << step)) % 32);
        if (LANE >= 1u << step) sum += below;
    }
    return sum;
}

/* In each of BIN_THREADS counts what those before come to. sums: of warps */
INLINE void sum_counts(u32 *counts, u32 *sums) {
    const u32 own = counts[THREAD], sum = sum_of_lanes(own);
    if (LANE == 31) sums[THREAD / 32] = sum;
    BARRIER;
    const u32 of_warp = sums[LANE], upto = sum_of_lanes(of_warp);
    const u32 before = HELD(upto - of_warp, THREAD / 32);
    counts[THREAD] = before + sum - own;
    BARRIER;
}

/* A block puts a chunk in the order of bins: it counts the updates of each, and copies them by way of memory
   that it shares. */
template <u32 places, u32 count, u32 bins, u32 chunk>
INLINE void bin_updates(const i32 *place_of, const f32 *updates, i64 *scratch) {
    typedef Bins<places, bins> Of;
    constexpr u32 each = chunk / BIN_THREADS;
    static_assert(bins < BIN_THREADS, "each bin, and the end, has a thread");
    static_assert(Of::size <= 0x10000, "a place in a bin has 16 bits");
    COMMON u32 counts[BIN_THREADS], sums[32];
    COMMON f32 near[chunk];
    COMMON u16 near_places[chunk];
    const Binned<count, chunk> binned(scratch);
    const u32 first = BLOCK * chunk;
    u32 place[each], rank[each];
    f32 update[each];
    counts[THREAD] = 0;
    EACH(e, each) {
        const u32 i = first + e * BIN_THREADS + THREAD;
        place[e] = i < count ? (u32)place_of[i] : ~0u;
        update[e] = i < count ? updates[i] : 0.0f;
    }
    BARRIER;
    EACH(e, each) if (place[e] < places) rank[e] = atomicAdd(&counts[Of::bin(place[e])], 1u);
    BARRIER;
    sum_counts(counts, sums);
    if (THREAD <= bins) binned.starts[THREAD * binned.chunks + BLOCK] = counts[THREAD];
    EACH(e, each) if (place[e] < places) {
        const u32 to = counts[Of::bin(place[e])] + rank[e];
        near[to] = update[e];
        near_places[to] = Of::within(place[e]);
    }
    BARRIER;
    for (u32 i = THREAD; i < counts[bins]; i += BIN_THREADS) {
        binned.updates[first + i] = near[i];
        binned.places[first + i] = near_places[i];
    }
}

/* Calls `add` for the updates of a bin, of all lanes of a warp at once: with where each goes, and whether
   there is one. A warp has SEGMENTS chunks at a time. */
template <class Updates, class Add>
INLINE void each_binned(const Updates &binned, const u16 *starts, const u16 *ends, Add add) {
    constexpr u32 chunks = Updates::chunks;
    for (u32 first = THREAD / 32 * SEGMENTS; first < chunks; first += BIN_THREADS / 32 * SEGMENTS) {
        u32 next[SEGMENTS], end[SEGMENTS], steps = 0;
        EACH(s, SEGMENTS) {
            const bool is_one = first + s < chunks;
            next[s] = is_one ? starts[first + s] : 0;
            end[s] = is_one ? ends[first + s] : 0;
            steps = max(steps, (end[s] - next[s] + 31) / 32);
        }
        for (; steps; steps--) {
            u32 place[SEGMENTS] = {};
            f32 update[SEGMENTS] = {};
            EACH(s, SEGMENTS) if (next[s] + LANE < end[s]) {
                const u32 from = (first + s) * Updates::chunk + next[s] + LANE;
                place[s] = binned.places[from];
                update[s] = binned.updates[from];
            }
            EACH(s, SEGMENTS) {
                if (next[s] < end[s]) add(place[s], update[s], next[s] + LANE < end[s]);
                next[s] += 32;
            }
        }
    }
}

/* Adds what the lanes of a warp have, of which some may have none. Where many lanes have the place of the
   first one, the warp adds their sum: atomic operations at one place wait for each other. */
INLINE void sum_of_warp(i64 *results, u32 place, i64 value, bool is_one) {
    const u32 first = HELD(place, 0);
    const bool is_alike = is_one && place == first;
    if (ONES(BALLOT(is_alike)) >= MANY_ALIKE) {
        i64 sum = is_alike ? value : 0;
        EACH(step, 5) sum += HELD(sum, LANE ^ 1u << step);
        if (LANE == 0) shared_sum(results + first, sum);
        is_one = is_one && !is_alike;
    }
    if (is_one) shared_sum(results + place, value);
}

/* A block adds the updates of a bin to its places, in memory that it shares. */
template <u32 places, u32 count, u32 bins, u32 chunk, int bits>
INLINE void add_bin(const f32 *base, f32 *result, i64 *scratch) {
    typedef Bins<places, bins> Of;
    constexpr u32 chunks = Binned<count, chunk>::chunks, size = Of::size;
    const Binned<count, chunk> binned(scratch);
    PRIVATE_SUMS(size);
    u16 *const starts = (u16 *)(tops + size), *const ends = starts + chunks;
    for (u32 i = THREAD; i < chunks; i += BIN_THREADS) {
        starts[i] = binned.starts[BLOCK * chunks + i];
        ends[i] = binned.starts[(BLOCK + 1) * chunks + i];
    }
    BARRIER;
    each_binned(binned, starts, ends, [&](u32 i, f32 x, bool is_one) {
        if (is_one) shared_max(&tops[i], exponent_of(x));
    });
    BARRIER;
    each_binned(binned, starts, ends, [&](u32 i, f32 x, bool is_one) {
        sum_of_warp(results, i, is_one ? scaled<bits>(x, tops[i]) : 0, is_one);
    });
    BARRIER;
    UNROLL for (u32 i = THREAD; i < size; i += BIN_THREADS) {
        const u32 place = Of::place(BLOCK, i);
        if (place < places) result[place] = with_sum<bits>(base[place], Total{results[i], tops[i]});
    }
}
