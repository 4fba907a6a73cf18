/* What programs for GPUs have, whatever the dialect. Before it come `arithmetic.c` and the prelude of
   the dialect, which has types (`i8` to `f64`) and casts of halves; KERNEL, POINTER and PLACE, of which
   the head of a kernel consists, and FOLLOW, which comes before it reads or writes anything; THREAD,
   BLOCK, BARRIER, UNROLL, ALIGNED, GLOBAL, COMMON, INLINE, BITS and BUILTIN, as they are used here, in
   kernels and in `arithmetic.c`; and REDUCE, a loop over steps in each of which `exchange` gives what another
   of a row's threads has, until a thread had what all have. */

#define SCRATCH /* of each thread */
#define EACH_BLOCK(word, threads, workers) FOLLOW; const word worker = BLOCK
#define EACH_THREAD(word, threads, workers) \
    FOLLOW; \
    const word worker = (word)BLOCK * threads + THREAD; \
    if (worker >= workers) return

#define LIBRARY32(name) INLINE f32 name##_f32(f32 x) { return BUILTIN(name##f)(x); }
LIBRARY32(exp) LIBRARY32(exp2) LIBRARY32(log) LIBRARY32(log2) LIBRARY32(sin) LIBRARY32(cos)
LIBRARY32(atan) LIBRARY32(erf)

/* Casts of floats of 8 bits: see `floats.c`, which does this for vectors. */

#define EXPONENT(exponent) (((exponent) + 127) << 23) /* the bits of a float32 */
#define SMALL_FLOAT(T, FRACTION, LEAST, STRANGE, NAN) \
    INLINE f32 T##_to_f32(u8 x) { \
        const i32 drop = 23 - FRACTION, body = x & 0x7F, sign = (x & 0x80) << 24; \
        const i32 normal = (body << drop) + EXPONENT(LEAST - 1); \
        const f32 tiny = body * BITS(i32, f32, EXPONENT(LEAST - FRACTION)); \
        const i32 finite = body < 1 << FRACTION ? BITS(f32, i32, tiny) : normal; \
        return BITS(i32, f32, finite | sign | (body >= STRANGE ? 0x7F800000 : 0)); \
    } \
    INLINE u8 f32_to_##T(f32 x) { \
        const i32 drop = 23 - FRACTION, word = BITS(f32, i32, x), magnitude = word & 0x7FFFFFFF; \
        const i32 beyond = (STRANGE << drop) + EXPONENT(LEAST - 1), magic = EXPONENT(LEAST + drop); \
        const i32 inside = magnitude < beyond ? magnitude : beyond; \
        const i32 part = ((inside >> drop) & 1) + ((1 << (drop - 1)) - 1); \
        const f32 raised = BITS(i32, f32, magnitude) + BITS(i32, f32, magic); \
        i32 body = (inside + part - EXPONENT(LEAST - 1)) >> drop; \
        if (magnitude < EXPONENT(LEAST)) body = BITS(f32, i32, raised) - magic; \
        if (magnitude > 0x7F800000) body = NAN; \
        return body | (word >> 24 & 0x80); \
    }
SMALL_FLOAT(f8_e4m3fn, 3, -6, 0x7F, 0x7F)
SMALL_FLOAT(f8_e5m2, 2, -14, 0x7C, 0x7E)

/* Sorts of rows of n keys: a block sorts a run of as many as its threads hold, and in kernels after
   that merges as many of two runs. The place of an element among those of two runs is its own and the
   number of elements before it in the other one; equal ones stay in order, and NaN comes last. */

#define PRECEDES(a, b) ((a) < (b) || ((b) != (b) && (a) == (a)))
#define PLACE_OF(place, i, own, begin, middle, end) \
    const bool right = i >= middle; \
    int low = right ? begin : middle, high = right ? middle : end; \
    while (low < high) { \
        const int probe = (low + high) / 2; \
        const bool before = right ? !PRECEDES(own, keys[probe]) : PRECEDES(keys[probe], own); \
        if (before) low = probe + 1; else high = probe; \
    } \
    place = i + low - middle

#define SORT(name, kind, n, run, each, threads) \
    KERNEL(threads) name(POINTER(const kind, 0), POINTER(i64, 1), POINTER(i64, 2) PLACE) { \
        FOLLOW; \
        COMMON kind keys[each * threads]; \
        COMMON u16 order[each * threads]; \
        const int most = each * threads, blocks = ((i64)n + most - 1) / most; \
        const i64 start = BLOCK % blocks * (i64)most, row = BLOCK / blocks * (i64)n + start; \
        const int count = min((i64)most, n - start); \
        for (int i = THREAD; i < count; i += threads) keys[i] = p0[row + i], order[i] = i; \
        BARRIER; \
        for (int width = 1; width < count; width *= 2) { \
            kind own[each]; \
            u16 from[each]; \
            int place[each]; \
            UNROLL for (int e = 0; e < each; e++) { \
                const int i = THREAD + e * threads, begin = i / (2 * width) * (2 * width); \
                if (i >= count) continue; \
                const int middle = min(begin + width, count), end = min(middle + width, count); \
                own[e] = keys[i], from[e] = order[i]; \
                PLACE_OF(place[e], i, own[e], begin, middle, end); \
            } \
            BARRIER; \
            UNROLL for (int e = 0; e < each; e++) \
                if ((int)THREAD + e * threads < count) \
                    keys[place[e]] = own[e], order[place[e]] = from[e]; \
            BARRIER; \
        } \
        for (int i = THREAD; i < count; i += threads) p1[row + i] = start + order[i]; \
    }

/* Where a block's elements begin and end in two runs, half of the threads each find by probes side by
   side: an element of the left run is among the first d of both if none that would be there in its
   place is before it. */
#define MERGE(name, kind, n, run, each, threads) \
    KERNEL(threads) name(POINTER(const kind, 0), POINTER(i64, 1), POINTER(const i64, 2) PLACE) { \
        FOLLOW; \
        COMMON kind keys[each * threads]; \
        COMMON bool among[threads]; \
        COMMON i64 lows[2], highs[2]; \
        const int most = each * threads, blocks = ((i64)n + most - 1) / most; \
        const i64 row = BLOCK / blocks * (i64)n, at = BLOCK % blocks * (i64)most; \
        const i64 start = at / run * run, size = (i64)run / 2; \
        const i64 middle = min(start + size, (i64)n), end = min(start + run, (i64)n); \
        const int count = min((i64)most, n - at), probes = threads / 2; \
        const int side = THREAD / probes, mine = THREAD % probes; \
        const i64 first = at - start + side * count; \
        if (mine == 0) { \
            lows[side] = max(first - (end - middle), (i64)0); \
            highs[side] = min(first, middle - start); \
        } \
        BARRIER; \
        GLOBAL const i64 *left = p2 + row + start, *right = p2 + row + middle; \
        while (lows[0] < highs[0] || lows[1] < highs[1]) { \
            const i64 low = lows[side], high = highs[side], probe = low + (high - low) * mine / probes; \
            const bool some = low < high; \
            bool own = false; \
            if (some) { \
                const kind other = p0[row + right[first - 1 - probe]]; \
                own = !PRECEDES(other, p0[row + left[probe]]); \
            } \
            among[THREAD] = own; \
            BARRIER; \
            if (some && own && (mine == probes - 1 || !among[THREAD + 1])) lows[side] = probe + 1; \
            if (some && !own && (mine == 0 || among[THREAD - 1])) highs[side] = probe; \
            BARRIER; \
        } \
        const int lefts = lows[1] - lows[0]; \
        left += lows[0], right += at - start - lows[0]; \
        i64 from[each]; \
        UNROLL for (int e = 0; e < each; e++) { \
            const int i = THREAD + e * threads; \
            if (i >= count) continue; \
            from[e] = i < lefts ? left[i] : right[i - lefts]; \
            keys[i] = p0[row + from[e]]; \
        } \
        BARRIER; \
        UNROLL for (int e = 0; e < each; e++) { \
            const int i = THREAD + e * threads; \
            if (i >= count) continue; \
            int place; \
            const kind own = keys[i]; \
            PLACE_OF(place, i, own, 0, lefts, count); \
            p1[row + at + place] = from[e]; \
        } \
    }
