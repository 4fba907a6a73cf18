/* What programs for GPUs have, whatever the dialect. Before it come `arithmetic.c` and the prelude of
   the dialect, which defines

   i8 to f64           the types; and casts of floats of 16 bits
   KERNEL, POINTER, PLACE
                       the parts of a kernel's head
   FOLLOW              waits for the kernel before; nothing is read or written ahead of it
   THREAD, BLOCK, BARRIER, COMMON
                       the number of a thread in its block, and of the block; memory that a block shares
   GLOBAL, INLINE, BITS, BUILTIN, EACH_FLOAT, OF_LIBRARY, UNROLL, ALIGNED
                       as kernels, this text and `arithmetic.c` use them
   REDUCE              a loop over steps, in each of which `exchange` gives a value of another of a row's
                       threads, until each thread had those of all
   SCAN                a loop over steps, in each of which `earlier` gives threads that `precedes` names
                       a value of one before them, until each has the total of all before it alone; the
                       first thread gets the total of the last step of the loop around
   SHARED              what a block needs for these two
   UNROLLED, WARP_BARRIER, BALLOT, HELD, ONES, ADD_ONE
                       for EACH_HIT and `sorts.c`: before a loop to unroll as a whole; waits for a warp; a
                       bit for each lane where something holds; the value of another lane; how many
                       bits are set; adds 1 in shared memory, whoever else does */

#define SCRATCH /* of each thread */
#define EACH_BLOCK(word, threads, workers) EACH_BLOCK_OF(BLOCK, word, threads, workers)
#define EACH_THREAD(word, threads, workers) EACH_THREAD_OF(BLOCK, word, threads, workers)
/* The same for a part of a launch: `block` is the number of the block within that part. */
#define EACH_BLOCK_OF(block, word, threads, workers) \
    FOLLOW; SHARED(threads) const word worker = block
#define EACH_THREAD_OF(block, word, threads, workers) \
    FOLLOW; \
    const word worker = (word)(block) * threads + THREAD; \
    if (worker >= workers) return

#define LANE (THREAD % 32)

/* A loop whose iterations the lanes of a warp run alike, of which few store anything: each lane asks for
   one of its own whether a HIT in it does, then all run those that do, in their order. No such loop is
   inside of another one. */
template <class Word> struct Hits {
    const Word stop;
    const u32 lane;
    Word next = 0, now = 0;
    u32 found = 0;
    bool asks = false;
    Hits(Word stop, u32 lane) : stop(stop), lane(lane) {}
    bool more() {
        asks = !found;
        if (asks) {
            now = min(next + (Word)lane, stop - 1);
            next += 32;
            return next - 32 < stop;
        }
        now = next - 32 + (Word)ONES((found & -found) - 1); /* the first one */
        found &= found - 1;
        return true;
    }
    bool ask(bool holds) {
        if (asks) found |= BALLOT(holds && next - 32 + (Word)lane < stop);
        return holds && !asks;
    }
};
#define EACH_HIT(word, name, stop) \
    for (Hits<word> hits(stop, LANE); hits.more();) \
        for (word name = hits.now, once = 1; once; once = 0)
#define HIT(holds) if (hits.ask(holds))

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
