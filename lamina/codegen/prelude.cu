/* What every program for a GPU begins with; no header is included. */

typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef float f32; typedef double f64; typedef bool _Bool;
#define INLINE static __device__ __forceinline__
#define GLOBAL
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define POINTER(kind, number) kind *__restrict__ p##number
#define PLACE
#define THREAD threadIdx.x
#define BLOCK blockIdx.x
#define BARRIER __syncthreads()
#define UNROLL _Pragma("unroll 4")
#define ALIGNED(kind, number) __builtin_assume(((u64)p##number & 15) == 0)
#define inff() __int_as_float(0x7F800000)
#define inf() __longlong_as_double(0x7FF0000000000000LL)
template <class To, class From> INLINE To bits(From from) {
    union { From from; To to; } both; both.from = from; return both.to;
}
#define BITS(From, To, x) bits<To>((From)(x))
#define BUILTIN(name) name

INLINE u16 f32_to_f16(f32 x) { u16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
INLINE f32 f16_to_f32(u16 x) { f32 y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
INLINE u16 f32_to_bf16(f32 x) {
    u16 y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y;
}
INLINE f32 bf16_to_f32(u16 x) { return bits<f32>((u32)x << 16); }
INLINE f32 f64_to_odd(f64 x) { /* so that rounding once more rounds correctly: see `floats.c` */
    const f32 y = __double2float_rz(x);
    return bits<f32>(bits<u32>(y) | (y != x));
}
#define f64_to_f16(x) f32_to_f16(f64_to_odd(x))
#define f64_to_bf16(x) f32_to_bf16(f64_to_odd(x))
#define f64_to_f8_e4m3fn(x) f32_to_f8_e4m3fn(f64_to_odd(x))
#define f64_to_f8_e5m2(x) f32_to_f8_e5m2(f64_to_odd(x))

/* What the thread has whose number differs by the power of two `step`. */
template <class T> INLINE T exchange(T mine, int step) {
    if (step < 32) return __shfl_xor_sync(~0u, mine, step);
    __shared__ T all[1024];
    __syncthreads();
    all[threadIdx.x] = mine;
    __syncthreads();
    return all[threadIdx.x ^ step];
}
