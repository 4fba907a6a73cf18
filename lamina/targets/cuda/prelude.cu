/* What every program for a GPU begins with; no header is included. */

typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef float f32; typedef double f64; typedef bool _Bool;
#define INLINE static __device__ __forceinline__
#define GLOBAL
#define KERNEL(...) extern "C" __global__ void __launch_bounds__(__VA_ARGS__)
#define POINTER(kind, number) kind *__restrict__ p##number
#define PLACE
#define THREAD threadIdx.x
#define BLOCK blockIdx.x
#define BARRIER __syncthreads()
#define COMMON __shared__
#define UNROLL _Pragma("unroll 4")
#define UNROLLED _Pragma("unroll")
#define WARP_BARRIER __syncwarp()
#define BALLOT(holds) __ballot_sync(~0u, holds)
#define HELD(x, lane) __shfl_sync(~0u, x, lane)
#define ONES(word) __popc(word)
#define ADD_ONE(count) atomicAdd(&count, 1)
#define ALIGNED(kind, number, size, written) \
    p##number = kept<size, written>(p##number); __builtin_assume(((u64)p##number & 15) == 0)
/* Where a kernel begins, while others end: these have ended, and what they wrote is there. */
#if __CUDA_ARCH__ >= 900
#define FOLLOW asm volatile("griddepcontrol.wait;" ::: "memory")
#else
#define FOLLOW
#endif
#define inff() __int_as_float(0x7F800000)
#define inf() __longlong_as_double(0x7FF0000000000000LL)
template <class To, class From> INLINE To bits(From from) {
    union { From from; To to; } both; both.from = from; return both.to;
}
#define BITS(From, To, x) bits<To>((From)(x))
#define BUILTIN(name) name
#define EACH_FLOAT(F, name) F(f64, , name) F(f32, f, name)
#define OF_LIBRARY(name, suffix) name##suffix
#define RARE static __device__ __noinline__

/* Neighbours that one access reads, from an address that is a multiple of n * sizeof(T); zeros where the
   condition does not hold. */
template <class T, int n> struct __align__(sizeof(T) * n) Run { T of[n]; };
template <int n, class T> INLINE Run<T, n> load_run_where(bool holds, const T *from) {
    Run<T, n> run = {};
    if (holds) run = *(const Run<T, n> *)from;
    return run;
}

/* Where a kernel writes far more than the cache holds, what it reads stays there for longer: memory is
   then given many lines at a time. Where it reads that much of an array, and does not write, no line
   stays: none would be there when it is read again. */
extern "C" __device__ void *__nv_associate_access_property(const void *, u64);
template <u64 size, u64 written, class T> INLINE T *kept(T *array) { return array; }
template <u64 size, u64 written, class T> INLINE const T *kept(const T *array) {
    constexpr u64 large = 1 << 28, evict_first = 0x12F0000000000000, evict_last = 0x14F0000000000000;
    if constexpr (size < large && written < large) return array;
    else {
        constexpr u64 way = written < large ? evict_first : evict_last;
        return (const T *)__nv_associate_access_property(array, way);
    }
}

/* Sine and cosine of float32: |x| = n * pi/2 + r, with abs(r) < 0.82. Below 100,000 n has 16 bits, so that
   x - n * (pi/2 in 24 bits) is exact, and the two products with the next 48 bits of pi/2 lose what is below
   1e-17 (Cody and Waite). At most 1.6 units of the last place are wrong. Adding 1.5 * 2**23 rounds to an
   integer, whose last two bits it leaves in the lowest ones. `ahead` is added to n, and `sign` changes the
   sign bit. The library's functions would be inlined with what reduces large arguments: 64 of them in a
   kernel take the compiler half a minute. */
#define HAS_WAVES
INLINE f32 wave(f32 x, u32 ahead, u32 sign) {
    const f32 magnitude = fabsf(x), shifted = fmaf(magnitude, 0.63661977f, 12582912.0f);
    const f32 n = shifted - 12582912.0f, first = fmaf(n, -0x1.921fb6p0f, magnitude);
    const f32 r = fmaf(n, 0x1.ee59dap-50f, fmaf(n, 0x1.777a5cp-25f, first)), square = r * r;
    const u32 quadrant = bits<u32>(shifted) + ahead;
    const f32 sine = fmaf(r * square, fmaf(square, fmaf(square, -0.00019484147f, 0.008331925f),
        -0.16666651f), r);
    const f32 cosine = fmaf(square * square, fmaf(square, fmaf(square, 2.4408575e-05f, -0.0013887112f),
        0.04166664f), fmaf(square, -0.5f, 1.0f));
    return bits<f32>(bits<u32>(quadrant & 1 ? cosine : sine) ^ (quadrant & 2) << 30 ^ sign);
}
INLINE bool is_near(f32 x) { return fabsf(x) < 100000.0f; } /* and no NaN */
RARE f32 far_sin(f32 x) { return sinf(x); }
RARE f32 far_cos(f32 x) { return cosf(x); }
INLINE f32 sin_f32(f32 x) { return is_near(x) ? wave(x, 0, bits<u32>(x) & 0x80000000) : far_sin(x); }
INLINE f32 cos_f32(f32 x) { return is_near(x) ? wave(x, 1, 0) : far_cos(x); }

INLINE u16 f32_to_f16(f32 x) { u16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
INLINE f32 f16_to_f32(u16 x) { f32 y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
INLINE f32 widened(u16 x) {
    u32 y; asm("mov.b32 %0, {%1, %2};" : "=r"(y) : "h"((u16)0), "h"(x)); return bits<f32>(y);
}

/* A float that is rounded to be stored, where the compiler rounds two at once, and to be computed
   with, where rounding it into the upper half of a word is all. */
struct Rounded { u16 stored; f32 read; __device__ operator u16() const { return stored; } };
#if __CUDA_ARCH__ >= 800
INLINE Rounded f32_to_bf16(f32 x) {
    u16 half; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(x));
    u32 word; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(x), "f"(0.0f));
    return {half, bits<f32>(word)};
}
#else
INLINE Rounded f32_to_bf16(f32 x) { /* to nearest, ties to even; a NaN stays one */
    const u32 word = bits<u32>(x), half = (word + 0x7FFF + (word >> 16 & 1)) >> 16;
    const u16 stored = x == x ? half : 0x7FFF;
    return {stored, widened(stored)};
}
#endif

/* One that is computed with, and the sum of two, which GPUs can round as they add, two at once. Rounding
   the sum of float32 is no other: of two with 8 bits it is exact, or the smaller one decides nothing. */
struct Wide { u16 half; f32 value; __device__ operator f32() const { return value; } };
struct WideSum { Wide a, b; __device__ operator f32() const { return a.value + b.value; } };
INLINE Wide bf16_to_f32(u16 x) { return {x, widened(x)}; }
INLINE Wide bf16_to_f32(Rounded x) { return {x.stored, x.read}; }
INLINE WideSum operator+(Wide a, Wide b) { return {a, b}; }
#if __CUDA_ARCH__ >= 900
INLINE Rounded f32_to_bf16(WideSum x) {
    u16 half; asm("add.rn.bf16 %0, %1, %2;" : "=h"(half) : "h"(x.a.half), "h"(x.b.half));
    return {half, widened(half)};
}
#endif
INLINE f32 f64_to_odd(f64 x) { /* so that rounding once more rounds correctly: see `floats.c` */
    const f32 y = __double2float_rz(x);
    return bits<f32>(bits<u32>(y) | (y != x));
}
#define f64_to_f16(x) f32_to_f16(f64_to_odd(x))
#define f64_to_bf16(x) f32_to_bf16(f64_to_odd(x))
#define f64_to_f8_e4m3fn(x) f32_to_f8_e4m3fn(f64_to_odd(x))
#define f64_to_f8_e5m2(x) f32_to_f8_e5m2(f64_to_odd(x))

#if __CUDA_ARCH__ >= 800
#define HAS_EXTREMES
#define EXTREME(name) \
    INLINE f32 name##_f32(f32 a, f32 b) { \
        f32 y; asm(#name ".NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b)); return y; \
    }
EXTREME(max) EXTREME(min)
#else
INLINE f32 min_f32(f32 a, f32 b);
INLINE f32 max_f32(f32 a, f32 b);
#endif

/* x / by, for an `inverse` that is 1 / by to the nearest float: x * inverse is near the quotient; adding
   its remainder, x - near * by, times `inverse` gives the nearest one (Markstein 1990, "Computation of
   elementary functions on the IBM RISC System/6000 processor", theorem 8.3). No branch, as `/` has for
   each quotient: threads that divided 128 elements of a tile by 6 waited for each before they asked for
   the next. Below 2**-70 the remainder may have no float, and the quotient is one that is next to the
   nearest. */
INLINE f32 divided(f32 x, f32 by, f32 inverse) {
    const f32 near = x * inverse, nearest = fmaf(fmaf(-near, by, x), inverse, near);
    return 0x1p-70f <= fabsf(near) && fabsf(near) <= 0x1.fffffep127f ? nearest : near;
}

/* x / by, for x up to 1 and by from 1 to 2, as the logistic function has it: `/` has a branch for quotients
   that leave the range, at which threads with few warps wait, one quotient after the other. The inverse
   is one of the two floats next to 1 / by, and mostly the nearest. */
#define HAS_QUOTIENT
INLINE f32 quotient_f32(f32 x, f32 by) {
    f32 near;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(by));
    const f32 inverse = fmaf(near, fmaf(-near, by, 1.0f), near), quotient = x * inverse;
    return fmaf(fmaf(-quotient, by, x), inverse, quotient);
}

/* What is rounded to 16 bits in the end, with an error of less than 2**-17, or than 2**-126: the own
   one of bfloat16 is 2**-9, that of float16 2**-12. No branches, so that several values are computed at
   once. */
#define SHORT(name, text, ...) INLINE f32 short_##name { f32 y; asm(text : "=f"(y) : __VA_ARGS__); return y; }
SHORT(div(f32 a, f32 b), "div.full.f32 %0, %1, %2;", "f"(a), "f"(b))
SHORT(sqrt(f32 x), "sqrt.approx.f32 %0, %1;", "f"(x))
SHORT(exp2(f32 x), "ex2.approx.ftz.f32 %0, %1;", "f"(x))
SHORT(inverse(f32 x), "rcp.approx.ftz.f32 %0, %1;", "f"(x))
INLINE f32 short_exp(f32 x) { return short_exp2(x * 1.44269504f); }
INLINE f32 short_logistic(f32 x) { return short_inverse(short_exp(-x) + 1.0f); }
/* Up to 0.25, where the difference from one would cancel, a series takes its place: the first term that
   it leaves out is less than 2**-21 of it. */
INLINE f32 short_tanh(f32 x) {
    const f32 far = 1.0f - 2.0f * short_inverse(short_exp(2.0f * x) + 1.0f), t = x * x;
    const f32 near = x + x * t * (-0.333333343f + t * (0.13333334f + t * -0.0539682545f));
    return fabsf(x) < 0.25f ? near : far;
}
SHORT(log2(f32 x), "lg2.approx.f32 %0, %1;", "f"(x))
/* The error of the instruction is 2**-22, whatever is left of the logarithm next to one: there a series
   takes its place, up to a distance of 2**-4, where the first term that it leaves out is 2**-22 of it. */
INLINE f32 short_log(f32 x) {
    const f32 t = x - 1.0f, far = 0.693147182f * short_log2(x);
    const f32 near = t + t * t * (-0.5f + t * (0.333333343f + t * (-0.25f + t * 0.2f)));
    return fabsf(t) < 0.0625f ? near : far;
}

/* The error function of positive numbers is 1 - (1 - u)**8, with a polynomial u up to 3.95, where it
   rounds to 1. A square of 1 - u makes 2 * u - u * u of u, where nothing cancels; y is eight, four and
   two times u, then u. Less than 3 units of the last place. */
#define erff error
INLINE f32 error(f32 x) {
    const f32 a = min_f32(fabsf(x), 3.95f);
    f32 y = a + a * (0.128379166f + a * (0.557042778f + a * (0.0167132951f + a * (-0.0527164191f
        + a * (-0.00148931064f + a * (0.00410114555f + a * (-0.000710541848f
        + a * 3.83562256e-05f)))))));
    y += y * (y * -0.0625f);
    y += y * (y * -0.125f);
    y += y * (y * -0.25f);
    return copysignf(y, x);
}

/* Of one plus the error function what matters is the distance of the latter from one, or minus one: the
   exponential of a polynomial, with an error of less than 2**-11, and than 2**-10 of the distance but
   for a rounding next to one. That is how a number and its product with the function are added, where
   compilers see that both times it is the same number. */
constexpr f32 furthest = 13.0f;
INLINE f32 log2_distance(f32 x, f32 more) { /* of 2**-0.5 * x, which is not negative */
    return more + x * (-1.144965f + x * (-0.47634646f + x * (-0.0383136f + x * 0.002762686f)));
}
struct Error { f32 x; __device__ operator f32() const { return error(x); } };
struct ErrorProduct { f32 x, by; __device__ operator f32() const { return error(x) * by; } };
INLINE Error short_erf(f32 x) { return {x}; }
INLINE ErrorProduct operator*(Error a, f32 b) { return {a.x, b}; }
INLINE ErrorProduct operator*(f32 a, Error b) { return {b.x, a}; }
INLINE f32 operator*(Error a, Error b) { return (f32)a * (f32)b; }
INLINE f32 operator+(ErrorProduct a, f32 b) {
    if (bits<u32>(a.by) != bits<u32>(b)) return (f32)a + b;
    const f32 x = min_f32(fabsf(a.x) * 1.41421354f, furthest);
    const f32 distance = short_exp2(log2_distance(x, 0.0f));
    return b * copysignf(1.0f - distance, a.x) + b;
}
INLINE f32 operator+(f32 a, ErrorProduct b) { return b + a; }
INLINE f32 operator+(ErrorProduct a, ErrorProduct b) { return (f32)a + (f32)b; }

/* A number times its normal distribution function, which is half of one plus the error function of
   2**-0.5 times it: bfloat16 of it is off by at most 0.7 units of the last place above -4. */
INLINE f32 short_normal_product(f32 b) {
    const f32 x = min_f32(fabsf(b), furthest);
    return max_f32(b, 0.0f) - x * short_exp2(log2_distance(x, -1.0f));
}

/* What threads have whose numbers differ by multiples of `width`: within a warp a butterfly's, and
   then that of what the warps have, if these are as many as its lanes; of more, what the first warp
   has takes the place of one's own, and each step gives what the next one has. */
#define REDUCE(threads, width) \
    if constexpr (constexpr int block = threads, apart = width; true) \
        _Pragma("unroll") for (int s = apart; s < block; \
                               s += s < 32 || block * apart <= 1024 ? s : apart < 32 ? 32 : apart)
#define SHARED(threads)
#define exchange(mine, step) exchanged<__LINE__, block, apart>(mine, step)
template <int place, int threads, int width, class T> INLINE T exchanged(T &mine, int step) {
    if (step < 32) return __shfl_xor_sync(~0u, mine, step);
    constexpr int group = width < 32 ? 32 : width, count = threads < group ? width : threads / group * width;
    __shared__ T all[count];
    const int own = threadIdx.x % width;
    if (step == group) {
        __syncthreads();
        if (threadIdx.x % group < width) all[threadIdx.x / group * width + own] = mine;
        __syncthreads();
        mine = all[count <= 32 ? threadIdx.x % count : own];
    }
    return count <= 32 ? __shfl_xor_sync(~0u, mine, step / 32 * width) : all[step / group * width + own];
}

/* What threads come to with those before them: the first goes on from what all came to in the step
   before. Within a warp each goes on from one at twice the distance each time, then from the warps
   before, the nearest first; in the end each has what the one before it came to. With at most 32 threads all
   of that is within a warp, which has several groups if they are fewer. */
#define SCAN(threads, width) \
    if constexpr (constexpr int block = threads, apart = width; true) \
        _Pragma("unroll") for (int s = 0; s <= block; s += s == 0 ? apart : s < 32 ? s : 32)
#define precedes(step) \
    (step == 0 ? threadIdx.x % block < apart \
               : step < block && threadIdx.x % (step < 32 && block > 32 ? 32 : block) >= step)
#define earlier(mine, last, step) before<__LINE__, block, apart>(mine, last, step)
template <int place, int threads, int width, class T> INLINE T before(T &mine, T &last, int step) {
    if (step == 0) return last;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = lane % width;
    if (step < min(threads, 32)) return __shfl_up_sync(~0u, mine, step);
    if constexpr (threads <= 32) {
        const T first = last;
        last = __shfl_sync(~0u, mine, lane / threads * threads + threads - width + own);
        mine = __shfl_up_sync(~0u, mine, width % 32);
        if (lane % threads < width) mine = first;
    } else {
        __shared__ T ends[2][threads / 32 * width];
        T *all = ends[step == threads];
        if (step == 32 || step == threads) {
            if (lane >= 32 - width) all[warp * width + own] = mine;
            __syncthreads();
        }
        if (step < threads) return all[max(warp - step / 32, 0) * width + own];
        const T first = last, end = all[max(warp - 1, 0) * width + own];
        last = all[(threads / 32 - 1) * width + own];
        mine = __shfl_up_sync(~0u, mine, width % 32);
        if (lane < width) mine = warp ? end : first;
    }
    return mine;
}
