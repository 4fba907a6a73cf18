/* Sorts of rows of n keys go by the bytes of words that are in the order of the keys, from the last
   byte to the first: where a key goes is how many have a lesser byte, or the same one further ahead.
   Each of a block's warps has `each` times 32 keys, those of its lanes side by side. Where a row ends
   before, words of ones, which stay behind it, take the place of keys. */

#define OWN_WARP (THREAD / 32)
#define KEY_OF(e, each) ((int)(OWN_WARP * 32 * each + e * 32 + LANE))
#define BYTE_OF(word, number) ((word) >> (number) % 4 * 8 & 255)
#define EVERY(e, each) UNROLLED for (int e = 0; e < each; e++)

/* How many of a warp's words have which byte, and how many ahead of each word have the same. */
#define COUNT_BYTES(each, number) \
    for (int i = LANE; i < 256; i += 32) counts[OWN_WARP][i] = 0; \
    WARP_BARRIER; \
    EVERY(e, each) { \
        const u32 byte = BYTE_OF(words[e], number); \
        places[e] = ~0u; \
        EVERY(bit, 8) { \
            const bool set = byte >> bit & 1; \
            const u32 lanes = BALLOT(set); \
            places[e] &= set ? lanes : ~lanes; \
        } \
    } \
    EVERY(e, each) { \
        const u32 byte = BYTE_OF(words[e], number), alike = places[e]; \
        const u32 ahead = ONES(alike & ((1u << LANE) - 1)), old = counts[OWN_WARP][byte]; \
        WARP_BARRIER; \
        if (ahead == 0) counts[OWN_WARP][byte] = old + ONES(alike); \
        WARP_BARRIER; \
        places[e] = old + ahead; \
    }

/* In `sum` what the lanes up to one's own have of it. */
#define SUM_LANES(sum) \
    EVERY(step, 5) { \
        const u32 below = HELD(sum, (LANE - (1 << step)) % 32); \
        if (LANE >= 1 << step) sum += below; \
    }

/* In each of 256 counts the sum of those before: what one warp does. */
#define SUM_COUNTS(array) { \
        u32 before[8], sum = 0; \
        EVERY(i, 8) before[i] = sum, sum += array[LANE * 8 + i]; \
        const u32 own = sum; \
        SUM_LANES(sum) \
        EVERY(i, 8) array[LANE * 8 + i] = sum - own + before[i]; \
    }

/* The places of a block's words in the order of a byte. */
#define PLACE_WORDS(each, threads, number, meanwhile) \
    COUNT_BYTES(each, number) \
    BARRIER; \
    for (int i = THREAD; i < 256; i += threads) { \
        u32 sum = 0; \
        EVERY(warp, threads / 32) { \
            const u32 own = counts[warp][i]; \
            counts[warp][i] = sum; \
            sum += own; \
        } \
        starts[i] = sum; \
    } \
    BARRIER; \
    if (OWN_WARP == 0) SUM_COUNTS(starts) \
    meanwhile \
    BARRIER; \
    EVERY(e, each) { \
        const u32 byte = BYTE_OF(words[e], number); \
        places[e] += starts[byte] + counts[OWN_WARP][byte]; \
    }

/* Several short rows in each block, one key for each thread. A key's rank is the number of lesser keys in its
   row, and of equal ones before it. The key and its place are one word, of which no two are equal; a key of
   64 bits is a word by itself. */

template <int bytes> struct WordOf { typedef u64 type; };
template <> struct WordOf<1> { typedef u32 type; };
template <> struct WordOf<2> { typedef u32 type; };

#define SORT_SHORT(name, kind, rows, n, left, many, threads) \
    KERNEL(threads) name(POINTER(const KEY_BITS(kind), 0), POINTER(i64, 1), POINTER(i64, 2) PLACE) { \
        FOLLOW; \
        typedef WordOf<sizeof(KEY_BITS(kind))>::type Word; \
        const bool is_alone = sizeof(KEY_BITS(kind)) == sizeof(Word); \
        COMMON Word words[many * n]; \
        const i64 start = BLOCK * (i64)(many * n); \
        const int count = min((i64)(many * n), rows * (i64)n - start); \
        const int place = THREAD % n, first = THREAD - place; \
        if ((int)THREAD < count) { \
            const Word key = KEY_ORDER(kind, p0[start + THREAD]); \
            words[THREAD] = is_alone ? key : key << sizeof(Word) * 4 | place; \
        } \
        BARRIER; \
        if ((int)THREAD >= count) return; \
        const Word own = words[THREAD]; \
        int before = 0; \
        UNROLL for (int other = 0; other < n; other++) { \
            const Word word = words[first + other]; \
            before += word < own || (is_alone && word == own && other < place); \
        } \
        p1[start + first + before] = place; \
    }

/* A row that a block holds. */
#define SORT(name, kind, rows, n, left, each, threads) \
    KERNEL(threads) name(POINTER(const KEY_BITS(kind), 0), POINTER(i64, 1), POINTER(i64, 2) PLACE) { \
        FOLLOW; \
        COMMON u32 keys[each * threads], starts[256]; \
        COMMON u16 order[each * threads], counts[threads / 32][256]; \
        const i64 row = BLOCK * (i64)n; \
        u32 words[each], places[each], from[each]; \
        EVERY(e, each) { \
            from[e] = KEY_OF(e, each); \
            const u32 word = KEY_ORDER(kind, p0[row + min((int)from[e], n - 1)]); \
            words[e] = from[e] < n ? word : ~0u; \
        } \
        _Pragma("unroll 1") for (int number = 0; number < (int)sizeof(KEY_BITS(kind)); number++) { \
            if (number == 4) \
                EVERY(e, each) { \
                    const u64 word = KEY_ORDER(kind, p0[row + min((int)from[e], n - 1)]); \
                    words[e] = from[e] < n ? (u32)(word >> 32) : ~0u; \
                } \
            PLACE_WORDS(each, threads, number, ) \
            EVERY(e, each) keys[places[e]] = words[e], order[places[e]] = from[e]; \
            BARRIER; \
            EVERY(e, each) words[e] = keys[KEY_OF(e, each)], from[e] = order[KEY_OF(e, each)]; \
        } \
        EVERY(e, each) if (KEY_OF(e, each) < n) p1[row + KEY_OF(e, each)] = from[e]; \
    }

/* Longer rows: three kernels for a byte. The first counts, for each row, byte and block; the second
   makes of these counts, for each row and byte, sums of those before, and last the sum of all; the
   third moves words, and with them the places of their keys, to where the next ones read them, and in
   the end these places to the order. The counts lie behind all rows in the scratch memory. */

#define ROW_TILE(kind, rows, n, left, each, threads) \
    FOLLOW; \
    static_assert((n) - 1 <= 0xFFFFFFFF, "a place in a row has 32 bits"); \
    const int number = (int)sizeof(KEY_BITS(kind)) - 1 - left / 3; \
    const int blocks = ((n) - 1) / (each * threads) + 1, tile = BLOCK % blocks; \
    const i64 row = BLOCK / blocks * (i64)n, start = tile * (i64)(each * threads); \
    const int count = min((i64)(each * threads), (i64)n - start); \
    GLOBAL u32 *table = (GLOBAL u32 *)(p2 + rows * (i64)n) + BLOCK / blocks * (blocks + 1ul) * 256; \
    GLOBAL const i64 *pairs = left / 3 % 2 ? p1 : p2; \
    u32 words[each], from[each]; \
    EVERY(e, each) { \
        const int i = min(KEY_OF(e, each), count - 1); /* no branches around what is read */ \
        const u64 pair = number == 0 ? 0 : pairs[row + start + i]; \
        const u32 word = number == 0 ? (u32)KEY_ORDER(kind, p0[row + start + i]) : (u32)(pair >> 32); \
        from[e] = number == 0 ? (u32)(start + i) : (u32)pair; \
        words[e] = i == KEY_OF(e, each) ? word : ~0u; \
    }

#define SORT_COUNT(name, kind, rows, n, left, each, threads) \
    KERNEL(threads) name(POINTER(const KEY_BITS(kind), 0), POINTER(i64, 1), POINTER(i64, 2) PLACE) { \
        COMMON u32 counts[256]; \
        for (int i = THREAD; i < 256; i += threads) counts[i] = 0; \
        BARRIER; \
        ROW_TILE(kind, rows, n, left, each, threads) \
        EVERY(e, each) ADD_ONE(counts[BYTE_OF(words[e], number)]); \
        BARRIER; \
        for (int i = THREAD; i < 256; i += threads) table[i * (blocks + 1) + tile] = counts[i]; \
    }

#define SORT_SUM(name, kind, rows, n, left, each, threads) \
    KERNEL(threads) name(POINTER(const KEY_BITS(kind), 0), POINTER(i64, 1), POINTER(i64, 2) PLACE) { \
        FOLLOW; \
        const int blocks = ((n) - 1) / (each * threads) + 1; \
        const int together = blocks > 32 * 31 ? 32 : (blocks + 31) / 32; \
        int line = BLOCK % blocks * (threads / 32) + OWN_WARP; \
        for (; line < 256; line += blocks * (threads / 32)) { \
            GLOBAL u32 *table = (GLOBAL u32 *)(p2 + rows * (i64)n) \
                + (BLOCK / blocks * 256ul + line) * (blocks + 1); \
            u32 before = 0; \
            for (int first = LANE; first - (int)LANE < blocks; first += together * 32) { \
                u32 own[together]; \
                EVERY(i, together) own[i] = first + i * 32 < blocks ? table[first + i * 32] : 0; \
                EVERY(i, together) { \
                    u32 sum = own[i]; \
                    SUM_LANES(sum) \
                    if (first + i * 32 < blocks) table[first + i * 32] = before + sum - own[i]; \
                    before += HELD(sum, 31); \
                } \
            } \
            if (LANE == 0) table[blocks] = before; \
        } \
    }

#define SORT_MOVE(name, kind, rows, n, left, each, threads) \
    KERNEL(threads, 768 / threads) \
    name(POINTER(const KEY_BITS(kind), 0), POINTER(i64, 1), POINTER(i64, 2) PLACE) { \
        ROW_TILE(kind, rows, n, left, each, threads) \
        COMMON u32 keys[each * threads], starts[256], firsts[256]; \
        COMMON u16 counts[threads / 32][256]; \
        u32 places[each]; \
        for (int i = THREAD; i < 256; i += threads) firsts[i] = table[i * (blocks + 1) + blocks]; \
        PLACE_WORDS(each, threads, number, if (OWN_WARP == 1) SUM_COUNTS(firsts)) \
        EVERY(e, each) keys[places[e]] = words[e]; \
        for (int i = THREAD; i < 256; i += threads) \
            firsts[i] += table[i * (blocks + 1) + tile] - starts[i]; \
        BARRIER; \
        u32 to[each]; \
        EVERY(e, each) { \
            words[e] = keys[KEY_OF(e, each)]; \
            to[e] = firsts[BYTE_OF(words[e], number)] + KEY_OF(e, each); \
        } \
        BARRIER; \
        EVERY(e, each) keys[places[e]] = from[e]; \
        BARRIER; \
        EVERY(e, each) from[e] = keys[KEY_OF(e, each)]; \
        if (number == 3 && left / 3 > 0) \
            EVERY(e, each) words[e] = (u64)KEY_ORDER(kind, p0[row + from[e]]) >> 32; \
        GLOBAL i64 *moved = left / 3 % 2 ? p2 : p1; \
        EVERY(e, each) \
            if (KEY_OF(e, each) < count) \
                moved[row + to[e]] = left / 3 > 0 ? (u64)words[e] << 32 | from[e] : from[e]; \
    }
