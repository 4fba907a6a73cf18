/* What every program for Metal begins with: Metal Shading Language 3.1. */

#include <metal_stdlib>
using namespace metal;

typedef char i8; typedef short i16; typedef int i32; typedef long i64;
typedef uchar u8; typedef ushort u16; typedef uint u32; typedef ulong u64; typedef float f32;
#define f64 metal_has_no_float64_cast_to_float32_first
#define _Bool bool
#define INLINE static inline __attribute__((always_inline))
#define GLOBAL device
#define FOLLOW
#define KERNEL(threads, ...) [[max_total_threads_per_threadgroup(threads)]] kernel void
#define POINTER(kind, number) device kind *p##number [[buffer(number)]]
#define TABLE(number) constant u64 *addresses [[buffer(number)]]
#define FROM_TABLE(kind, number, place) device kind *p##number = (device kind *)addresses[place]
#define PLACE , uint THREAD [[thread_position_in_threadgroup]], \
              uint BLOCK [[threadgroup_position_in_grid]]
#define BARRIER threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup)
#define COMMON threadgroup
#define UNROLL _Pragma("clang loop unroll_count(4)")
#define UNROLLED _Pragma("clang loop unroll(full)")
#define WARP_BARRIER simdgroup_barrier(mem_flags::mem_threadgroup)
#define BALLOT(holds) u32(u64(simd_ballot(holds)))
#define HELD(x, lane) simd_shuffle(x, u16(lane))
#define ONES(word) popcount(word)
#define ADD_ONE(count) \
    atomic_fetch_add_explicit((threadgroup atomic_uint *)&count, 1u, memory_order_relaxed)
#define ALIGNED(kind, number, size, written)
#define BITS(From, To, x) as_type<To>((From)(x))
#define BUILTIN(name) name
#define EACH_FLOAT(F, name) F(f32, f, name)
#define OF_LIBRARY(name, suffix) library::name

INLINE u16 f32_to_f16(f32 x) { return as_type<u16>(half(x)); }
INLINE f32 f16_to_f32(u16 x) { return as_type<half>(x); }
INLINE u16 f32_to_bf16(f32 x) { return as_type<u16>(bfloat(x)); }
INLINE f32 bf16_to_f32(u16 x) { return as_type<bfloat>(x); }

/* What the thread has whose number differs by the power of two `step`; what the last one has of an
   earlier group of so many; and what the thread before has, the first one what all had before and then
   have. Simdgroups exchange numbers of up to 32 bits; larger threadgroups do it through their memory,
   of which SHARED declares enough. */

#define SHARED(threads) threadgroup u64 shared[threads];
#define REDUCE(threads, width) for (int s = threads / 2; s >= width; s /= 2)
#define exchange(mine, step) exchanged(mine, step, THREAD, shared)
#define SCAN(threads, width) \
    for (int block = threads, apart = width, s = 0; s <= block; s += s ? s : apart)
#define precedes(step) (step == 0 ? int(THREAD) % block < apart \
                        : step < block && int(THREAD) % min(block, max(32, 2 * step)) >= step)
#define earlier(mine, last, step) before(mine, last, step, apart, block, THREAD, shared)
template <class T> INLINE T shuffled(T mine, u16 lane) { return simd_shuffle(mine, lane); }
INLINE u64 shuffled(u64 mine, u16 lane) {
    const u32 low = shuffled(u32(mine), lane), high = shuffled(u32(mine >> 32), lane);
    return u64(high) << 32 | low;
}
INLINE i64 shuffled(i64 mine, u16 lane) { return i64(shuffled(u64(mine), lane)); }
INLINE bool shuffled(bool mine, u16 lane) { return shuffled(u32(mine), lane); }
template <class T>
INLINE threadgroup T *told(T mine, uint number, threadgroup u64 *shared) {
    threadgroup T *all = (threadgroup T *)shared;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    all[number] = mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return all;
}
template <class T>
INLINE T exchanged(T mine, int step, uint number, threadgroup u64 *shared) {
    if (step < 32) return shuffled(mine, u16((number ^ step) % 32));
    return told(mine, number, shared)[number ^ step];
}
template <class T>
INLINE T before(thread T &mine, thread T &last, int step, int width, int threads, int number,
                threadgroup u64 *shared) {
    if (step == 0) return last;
    if (step < min(threads, 32)) return shuffled(mine, u16(max(number % 32 - step, 0)));
    if (threads <= 32) {
        const T first = last;
        last = shuffled(mine, u16(number % 32 / threads * threads + threads - width + number % width));
        mine = shuffled(mine, u16(max(number % 32 - width, 0)));
        if (number % threads < width) mine = first;
        return mine;
    }
    threadgroup T *all = told(mine, number, shared);
    if (step < threads) return all[max(number / step * step - width + number % width, 0)];
    mine = number < width ? last : all[number - width];
    last = all[threads - width + number % width];
    return mine;
}

/* Functions by their names in C. Precise ones: NaN, infinities and signs of zero count. */

#define inff() INFINITY
#define nanf(text) NAN
#define sqrtf precise::sqrt
#define powf precise::pow
#define truncf trunc
#define copysignf copysign

INLINE f32 polynomial(f32 x, const thread f32 *terms, int count) {
    f32 total = terms[count - 1];
    for (int i = count - 2; i >= 0; i--) total = total * x + terms[i];
    return total;
}

/* Minimax fits: of erf(x) / x - 1 in powers of x**2 below 1, of erf(x) around 2.375 up to 3.84,
   from where on it rounds to 1. */
INLINE f32 erf(f32 x) {
    const f32 small[] = {0.12837917f, -0.37612626f, 0.11283579f, -0.026853347f, 0.005187162f,
                         -0.0007997853f, 7.806904e-05f};
    const f32 large[] = {0.9992171f, 0.0040065073f, -0.009516574f, 0.013729464f, -0.013123842f,
                         0.008362362f, -0.003142305f, 0.00011576943f, 0.00063502893f,
                         -0.00033491533f, 2.3902756e-05f, 3.484488e-05f, -9.179982e-06f};
    const f32 a = fabs(x);
    if (!(a >= 1)) return x + x * polynomial(x * x, small, 7);
    return copysign(a > 3.84f ? 1.0f : polynomial(a - 2.375f, large, 13), x);
}

/* What `arithmetic.c` calls: Metal's precise functions, and those above. */
namespace library {
using namespace metal::precise;
using ::erf;
}

/* The remainder of a division, exact: metal's own is that of a rounded quotient. Long division of
   the fractions, bit by bit, from the exponent of x down to that of y. */
INLINE f32 fmodf(f32 x, f32 y) {
    const f32 a = fabs(x), b = fabs(y);
    if (!(a < INFINITY) || b == 0 || b != b) return NAN;
    if (a < b) return x;
    const u32 p = as_type<u32>(a), q = as_type<u32>(b);
    i32 high = p >> 23, low = q >> 23;
    u32 rest = high ? (p & 0x7FFFFF) | 0x800000 : p;
    const u32 part = low ? (q & 0x7FFFFF) | 0x800000 : q;
    high = max(high, 1);
    low = max(low, 1);
    rest %= part;
    for (; high > low && rest; high--) rest = (rest << 1) % part;
    if (rest == 0) return copysign(0.0f, x);
    for (; rest < 0x800000 && low > 1; low--) rest <<= 1;
    const u32 found = rest < 0x800000 ? rest : (u32(low) << 23) + (rest & 0x7FFFFF);
    return copysign(as_type<f32>(found), x);
}
