/* The order of rows of n keys on a CPU, of which the ranks from `first` on that are below `last` are
   asked for: 0 and n are a whole sort, n - 5 and n the places of the five largest.

   A key is compared as a word (`KEY_ORDER`), of which all bits are turned where `turned` is -1 and not 0:
   then the order descends. An *entry* of 64 bits has a word and the number of its key
   below it, so that one read gives both; words of 64 bits leave no room, and their entries are numbers
   alone. `b` holds keys, the order and scratch memory: entries, and as many again if ranks are asked
   for. Elements of a row are `apart` from each other in memory. */

#define WORD_OF_KEY(kind, key) (KEY_BITS(kind))(KEY_ORDER(kind, key) ^ (KEY_BITS(kind))turn)
#define WORD_OF(kind, entry) \
    (KEY_BITS(kind))(packed ? (u64)(entry) >> 32 : (u64)WORD_OF_KEY(kind, keys[(entry) * stride]))
#define IS_PACKED(kind, n) (sizeof(KEY_BITS(kind)) < 8 && n <= 1LL << 32)
#define ENTRY_OF(word, number) (packed ? (u64)(word) << 32 | (u64)(number) : (u64)(number))
#define NUMBER_OF(entry) (i64)(packed ? (u32)(entry) : (entry))

/* Of few keys, the place of each is how many others go before it: those that are less, and those that
   are equal and come first. A register compares one key with as many as it has lanes, 8 keys of float32
   with AVX2; `numbers` are those of the lanes. Registers have __BIGGEST_ALIGNMENT__ bytes: wider vectors
   go through memory, at 2 to 5 times the time of a row. */

#define FEW_KEYS(kind) (32 * (i64)sizeof(KEY_BITS(kind)))
#define KEY_LANES(kind) (__BIGGEST_ALIGNMENT__ / (i64)sizeof(KEY_BITS(kind)))
#define KEY_WORDS(kind) \
    typedef KEY_BITS(kind) words \
        __attribute__((vector_size(__BIGGEST_ALIGNMENT__), aligned(sizeof(KEY_BITS(kind))), may_alias)); \
    enum { lanes = KEY_LANES(kind) };

/* The places of `count` words `own`, behind which a register may read. */
#define PLACES_OF_FEW(name, kind) \
    INLINE void name##_places(const KEY_BITS(kind) *own, i64 count, KEY_BITS(kind) *places) { \
        KEY_WORDS(kind) \
        KEY_BITS(kind) numbers[lanes] SCRATCH; \
        for (i64 i = 0; i < lanes; i++) numbers[i] = i; \
        for (i64 start = 0; start < count; start += lanes) { \
            const words block = *(words *)(own + start), lane = *(words *)numbers; \
            words place = {0}; \
            i64 i = 0; \
            for (; i < start; i++) place -= (words)(own[i] - (words){0} <= block); \
            for (; i < start + lanes && i < count; i++) { \
                const words other = own[i] - (words){0}; \
                const words number = (KEY_BITS(kind))(i - start) - (words){0}; \
                const words is_before = (words)(number < lane) & (words)(other == block); \
                place -= (words)(other < block) | is_before; \
            } \
            for (; i < count; i++) place -= (words)(own[i] - (words){0} < block); \
            *(words *)(places + start) = place; \
        } \
    }

/* Puts `count` entries in order, byte by byte of their words, from the last one to the first, but for
   bytes that all share, and writes the numbers of those of the ranks. `to`: room for as many. */
#define SORT_OF_ENTRIES(name, kind, n, apart, turned) \
    static void name##_sort(const KEY_BITS(kind) *keys, u64 *from, u64 *to, i64 count, i64 first, \
                            i64 last, i64 *order) { \
        enum { few = FEW_KEYS(kind), packed = IS_PACKED(kind, n), turn = turned, stride = apart }; \
        if (count < few) { \
            enum { lanes = KEY_LANES(kind), whole = (few + lanes - 1) / lanes * lanes }; \
            KEY_BITS(kind) own[whole] SCRATCH = {0}, places[whole] SCRATCH; \
            for (i64 i = 0; i < count; i++) own[i] = WORD_OF(kind, from[i]); \
            name##_places(own, count, places); \
            for (i64 i = 0; i < count; i++) { \
                const i64 rank = places[i]; \
                if (rank >= first && rank < last) order[(rank - first) * stride] = NUMBER_OF(from[i]); \
            } \
            return; \
        } \
        i64 counts[sizeof(KEY_BITS(kind))][256] = {0}; \
        for (i64 i = 0; i < count; i++) { \
            const u64 word = WORD_OF(kind, from[i]); \
            for (u64 byte = 0; byte < sizeof(KEY_BITS(kind)); byte++) \
                counts[byte][word >> 8 * byte & 255]++; \
        } \
        for (u64 byte = 0; byte < sizeof(KEY_BITS(kind)); byte++) { \
            i64 *places = counts[byte], sum = 0; \
            _Bool shared = 0; \
            for (int i = 0; i < 256; i++) { \
                const i64 number = places[i]; \
                shared |= number == count; \
                places[i] = sum; \
                sum += number; \
            } \
            if (shared) continue; \
            for (i64 i = 0; i < count; i++) { \
                const u64 entry = from[i], word = WORD_OF(kind, entry); \
                to[places[word >> 8 * byte & 255]++] = entry; \
            } \
            u64 *swap = from; from = to; to = swap; \
        } \
        for (i64 rank = first; rank < last; rank++) order[(rank - first) * stride] = NUMBER_OF(from[rank]); \
    }

/* Where the elements of a row begin, of which so many are `stride` apart. */
#define ROW_OF(array, length) ((array) + chunk / stride * stride * (length) + chunk % stride)

/* The same of the few keys of a row, whose number is known to the compiler. */
#define ORDER_OF_FEW(name, kind, n, first, last) \
    if (n < FEW_KEYS(kind)) { \
        enum { lanes = KEY_LANES(kind), few = n < FEW_KEYS(kind) ? n : 1 }; \
        enum { whole = (few + lanes - 1) / lanes * lanes }; \
        KEY_BITS(kind) own[whole] SCRATCH, places[whole] SCRATCH; \
        for (i64 i = 0; i < n; i++) own[i] = WORD_OF_KEY(kind, keys[i * stride]); \
        for (i64 i = n; i < whole; i++) own[i] = 0; \
        name##_places(own, n, places); \
        i64 others; /* gets those of other ranks: a branch would be mispredicted */ \
        for (i64 i = 0; i < n; i++) { \
            const i64 rank = places[i]; \
            const _Bool is_asked = rank >= first && rank < last; \
            *(is_asked ? order + (rank - first) * stride : &others) = i; \
        } \
        return; \
    }

/* A whole sort. */
#define SORT(name, kind, n, apart, turned) \
    PLACES_OF_FEW(name, kind) \
    SORT_OF_ENTRIES(name, kind, n, apart, turned) \
    KERNEL(name) { \
        enum { packed = IS_PACKED(kind, n), turn = turned, stride = apart }; \
        const KEY_BITS(kind) *keys = ROW_OF((KEY_BITS(kind) *)b[0], n); \
        i64 *order = ROW_OF((i64 *)b[1], n); \
        ORDER_OF_FEW(name, kind, n, 0, n) \
        u64 *entries = (u64 *)b[2] + chunk * n * (stride > 1 ? 2 : 1); \
        u64 *room = stride > 1 ? entries + n : (u64 *)order; \
        for (i64 i = 0; i < n; i++) entries[i] = ENTRY_OF(WORD_OF_KEY(kind, keys[i * stride]), i); \
        name##_sort(keys, entries, room, n, 0, n, order); \
    }

/* Keeps those entries that may have the ranks from `*first` on below `*last`, in place, and returns how
   many: the range of the words is cut into equal buckets, of which those of the ranks are kept. The ranks
   become those among the entries that are kept. Where `words` are given, entries are made of these. */
#define BUCKETS(n) (n < 1 << 12 ? 1 << 8 : 1 << 11)
#define NARROWING(name, kind, n, apart, turned) \
    INLINE i64 name##_narrow(const KEY_BITS(kind) *keys, const KEY_BITS(kind) *words, u64 *entries, \
                             i64 count, i64 *first, i64 *last) { \
        enum { packed = IS_PACKED(kind, n), turn = turned, stride = apart }; \
        KEY_BITS(kind) lowest = ~0, highest = 0; \
        for (i64 i = 0; i < count; i++) { \
            const KEY_BITS(kind) word = words ? words[i] : WORD_OF(kind, entries[i]); \
            lowest = word < lowest ? word : lowest; \
            highest = word > highest ? word : highest; \
        } \
        int shift = 0; \
        while ((u64)(highest - lowest) >> shift >= BUCKETS(n)) shift++; \
        i64 counts[BUCKETS(n)] = {0}; \
        for (i64 i = 0; i < count; i++) { \
            const KEY_BITS(kind) word = words ? words[i] : WORD_OF(kind, entries[i]); \
            counts[(u64)(word - lowest) >> shift]++; \
        } \
        u64 bucket = 0; \
        i64 before = 0; \
        while (before + counts[bucket] <= *first) before += counts[bucket++]; \
        const KEY_BITS(kind) start = lowest + (bucket << shift); \
        i64 through = before + counts[bucket]; \
        while (through < *last) through += counts[++bucket]; \
        const KEY_BITS(kind) end = lowest + (bucket << shift) + (((u64)1 << shift) - 1); \
        i64 kept = 0; \
        for (i64 i = 0; i < count; i++) { \
            const u64 entry = words ? ENTRY_OF(words[i], i) : entries[i]; \
            const KEY_BITS(kind) word = words ? words[i] : WORD_OF(kind, entry); \
            entries[kept] = entry; \
            kept += (KEY_BITS(kind))(word - start) <= (KEY_BITS(kind))(end - start); \
        } \
        *first -= before; \
        *last -= before; \
        return kept; \
    }

/* Few ranks at an end need no buckets. The words are dealt out to `2 * ranks` decks or more; among those
   that are the least of their deck, the one of the last rank bounds all that are wanted: so many are less
   or equal. Few others are. Where the ranks are the last ones, all bits of the words are turned. */
#define DECKS(kind, ranks) \
    (KEY_LANES(kind) * (2 * ranks <= KEY_LANES(kind) ? 1 : 2 * ranks <= 4 * KEY_LANES(kind) ? 4 : 16))
#define HAS_END(kind, n, first, last) \
    (sizeof(KEY_BITS(kind)) > 1 && (first == 0 || last == n) \
     && 2 * (last - first) <= DECKS(kind, (last - first)) && 8 * DECKS(kind, (last - first)) <= n)
#define END_OF_ROW(name, kind, n, first, last) \
    static i64 name##_end(const KEY_BITS(kind) *own, u64 *entries) { \
        KEY_WORDS(kind) \
        enum { packed = IS_PACKED(kind, n), run = 4 * lanes }; \
        enum { decks = DECKS(kind, (last - first)), rows = decks / lanes }; \
        const words mirror = (KEY_BITS(kind))(first ? ~0 : 0) - (words){0}; \
        KEY_BITS(kind) least[decks] SCRATCH, places[decks] SCRATCH, bound = 0; \
        for (i64 row = 0; row < rows; row++) { \
            words low = ~(words){0}; \
            for (i64 i = row * lanes; i + lanes <= n; i += decks) { \
                const words word = *(words *)(own + i) ^ mirror, is_less = (words)(word < low); \
                low = (word & is_less) | (low & ~is_less); \
            } \
            *(words *)(least + row * lanes) = low; \
        } \
        name##_places(least, decks, places); \
        for (i64 i = 0; i < decks; i++) bound = places[i] == last - first - 1 ? least[i] : bound; \
        const words most = bound - (words){0}; \
        i64 kept = 0; \
        for (i64 start = 0; start < n; start += run) { \
            const i64 count = start + run <= n ? run : n - start; \
            u64 any = count < run; \
            if (!any) { \
                union { words lanes_; u64 parts[sizeof(words) / 8]; } hits = {{0}}; \
                for (i64 i = start; i < start + run; i += lanes) \
                    hits.lanes_ |= (words)((*(words *)(own + i) ^ mirror) <= most); \
                for (u64 part = 0; part < sizeof(words) / 8; part++) any |= hits.parts[part]; \
            } \
            for (i64 i = start; any && i < start + count; i++) { \
                entries[kept] = ENTRY_OF(own[i], i); \
                kept += (KEY_BITS(kind))(own[i] ^ mirror[0]) <= bound; \
            } \
        } \
        return kept; \
    }

/* Some ranks: of ever fewer entries, until few are left, or half of them in few buckets. */
#define SELECT(name, kind, n, apart, turned, first, last) \
    PLACES_OF_FEW(name, kind) \
    SORT_OF_ENTRIES(name, kind, n, apart, turned) \
    NARROWING(name, kind, n, apart, turned) \
    END_OF_ROW(name, kind, n, first, last) \
    KERNEL(name) { \
        enum { packed = IS_PACKED(kind, n), turn = turned, stride = apart }; \
        const KEY_BITS(kind) *keys = ROW_OF((KEY_BITS(kind) *)b[0], n); \
        i64 *order = ROW_OF((i64 *)b[1], (last - first)), low = first, high = last; \
        ORDER_OF_FEW(name, kind, n, first, last) \
        u64 *entries = (u64 *)b[2] + chunk * 2 * n, *room = entries + n; \
        KEY_BITS(kind) *words = (KEY_BITS(kind) *)room; \
        for (i64 i = 0; i < n; i++) words[i] = WORD_OF_KEY(kind, keys[i * stride]); \
        i64 count = n, kept; \
        if (HAS_END(kind, n, first, last)) { \
            kept = name##_end(words, entries); \
            low = first ? kept - (last - first) : 0; \
            high = low + (last - first); \
        } else kept = name##_narrow(keys, words, entries, n, &low, &high); \
        while (kept >= FEW_KEYS(kind) && 2 * kept <= count) { \
            count = kept; \
            kept = name##_narrow(keys, 0, entries, count, &low, &high); \
        } \
        name##_sort(keys, entries, room, kept, low, high, order); \
    }
