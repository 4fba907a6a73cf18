/* Combines memory with a value, whoever else does at the same time: integers, whose sums and extremes are
   the same in any order. An old value may be read before, as extremes only grow, or only shrink. */

INLINE void atomic_sum(i32 *at, i32 value) { atomicAdd(at, value); }
INLINE void atomic_sum(i64 *at, i64 value) { atomicAdd((u64 *)at, (u64)value); }
template <class T> INLINE void atomic_max(T *at, T value) { if (*(volatile T *)at < value) atomicMax(at, value); }
template <class T> INLINE void atomic_min(T *at, T value) { if (*(volatile T *)at > value) atomicMin(at, value); }

/* Adds to a place that this thread alone updates: memory applies what one thread sends in its order, and the
   thread does not wait. Of float32 it takes what is below 2**-126, old values and sums too, for 0. */

template <class T, class Value> INLINE void send_sum(T *at, Value value) { atomicAdd(at, (T)value); }

/* Integers as above in memory that a block shares, where a sum of 64 bits is two of 32: the thread whose sum of the
   lower halves is below what it added has the carry. */

INLINE void shared_sum(i32 *at, i32 value) { atomicAdd(at, value); }
INLINE void shared_sum(i64 *at, i64 value) {
    const u32 low = (u32)value, before = atomicAdd((u32 *)at, low);
    const u32 high = (u32)(value >> 32) + (before + low < low);
    if (high) atomicAdd((u32 *)at + 1, high);
}
template <class T> INLINE void shared_max(T *at, T value) { atomic_max(at, value); }
template <class T> INLINE void shared_min(T *at, T value) { atomic_min(at, value); }

/* Memory of a block for so many results of a scatter, which has none of the updates at first. */
#define PRIVATE_RESULTS(T, count, identity) \
    extern __shared__ __align__(16) u8 private_bytes[]; T *const results = (T *)private_bytes; \
    for (u32 i = THREAD; i < count; i += blockDim.x) results[i] = identity
#define PRIVATE(T, count, identity) PRIVATE_RESULTS(T, count, identity); BARRIER
/* The same of float32, by sums of integers: those, and the largest exponent of the updates of each place,
   0 where there is none. */
#define PRIVATE_SUMS(count) \
    PRIVATE_RESULTS(i64, count, 0); \
    i32 *const tops = (i32 *)(results + count); \
    for (u32 i = THREAD; i < count; i += blockDim.x) tops[i] = 0; \
    BARRIER
/* Sums of integers by one exponent, and 4 bits of each place, of 8 in a word: see `mark`. */
#define MARKED_SUMS(count) \
    PRIVATE_RESULTS(i64, count, 0); \
    u32 *const marks = (u32 *)(results + count); \
    for (u32 i = THREAD; i < (count + 7) / 8; i += blockDim.x) marks[i] = 0; \
    BARRIER

/* An update of float32 as an integer of so many bits, by the largest exponent of its place: see
   `lamina/graph/exact_scatters.py`, which says the same of arrays. */
INLINE i32 exponent_of(f32 x) { const i32 e = bits<i32>(x) >> 23 & 255; return e > 1 ? e : 1; }
INLINE f64 power_of_two(i32 exponent) { return bits<f64>((i64)(exponent + 1023) << 52); }
template <int size> INLINE i64 scaled(f32 x, i32 top) {
    if (top == 255) return (i64)!(x < inff()) + ((i64)!(x > -inff()) << 31);
    return bits<i64>((f64)x * power_of_two(126 + size - top) + 6755399441055744.0) - 0x4338000000000000;
}
struct Total { i64 total; i32 top; };
template <int size> INLINE f32 with_sum(f32 old, Total sum) {
    const i64 total = sum.total; const i32 top = sum.top;
    if (top == 0) return old;
    if (top < 255) return (f32)((f64)old + (f64)total * power_of_two(top - (126 + size)));
    const bool up = (total & 0x7FFFFFFF) > 0, down = total >> 31 > 0;
    return old + (up && down ? inff() - inff() : up ? inff() : -inff());
}

/* The same by the exponent `top` at all places. Each has bit 0 where it has an update, bit 1 where one is not
   below infinity, and bit 2 where one is not above minus infinity, as what is no number is neither. */
INLINE u32 mark(f32 x) { return 1 + 2 * !(x < inff()) + 4 * !(x > -inff()); }
INLINE u32 mark_of(const u32 *marks, u32 i) { return marks[i / 8] >> i % 8 * 4; }
template <int size, int top> INLINE void marked_sum(i64 *results, u32 *marks, u32 i, f32 x) {
    const u32 own = mark(x), before = ((volatile u32 *)marks)[i / 8] >> i % 8 * 4;
    if (own & ~before) atomicOr(marks + i / 8, own << i % 8 * 4);
    if (own == 1) shared_sum(results + i, scaled<size>(x, top));
}
template <int top> INLINE Total marked_total(i64 total, u32 mark) {
    const i64 up = mark >> 1 & 1, down = mark >> 2 & 1;
    if (up || down) return {up + (down << 31), 255};
    return {total, mark & 1 ? top : 0};
}

/* Combines the array with so many results of a block, `many` of a thread at a time: `place` says where one
   goes, null if nowhere, and `update` what it makes of what is there. */
template <class T, u32 many, class Place, class Update>
INLINE void combine_results(u32 count, Place place, Update update) {
    BARRIER;
    for (u32 first = THREAD; first < count; first += many * blockDim.x) {
        T *at[many], old[many];
        UNROLLED for (u32 k = 0; k < many; k++) {
            const u32 i = first + k * blockDim.x;
            at[k] = i < count ? place(i) : 0;
            if (at[k]) old[k] = *at[k];
        }
        UNROLLED for (u32 k = 0; k < many; k++) if (at[k]) *at[k] = update(first + k * blockDim.x, old[k]);
    }
}
