/*
map0_64x100:
fuse(a0, a1) -> a2
split(a2, 16) -> a3, a4
bind(a4, vector)

sort1_64x100:
(no move)
*/
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef float f32; typedef double f64;
typedef void (*lamina_body_fn)(void *, long);
typedef void (*lamina_parallel_fn)(long, lamina_body_fn, void *);
#define INLINE static inline __attribute__((always_inline))

typedef f32 f32x16 __attribute__((vector_size(64))); typedef f32 f32x16u __attribute__((vector_size(64), aligned(4), may_alias));
static void map0_64x100(void *arg, long chunk) {
    void **b = arg;
    const f32 *restrict p0 = b[0];
    f32 *restrict p1 = b[1];
    {
        for (i64 a3 = 0; a3 < 400; a3++) {
            const f32x16 t1 = *(const f32x16u *)(p0 + 16 * a3);
            const f32x16 t2 = (t1 + 1.0f);
            *(f32x16u *)(p1 + 16 * a3) = t2;
        }
    }
}
static void sort1_64x100(void *arg, long row) {
    void **b = arg;
    const f32 *restrict keys = (f32 *)b[0] + row * 100;
    i64 *from = (i64 *)b[1] + row * 100, *to = (i64 *)b[2] + row * 100;
    for (i64 i = 0; i < 100; i++) from[i] = i;
    for (i64 width = 1; width < 100; width *= 2) {
        for (i64 start = 0; start < 100; start += 2 * width) {
            const i64 middle = start + width < 100 ? start + width : 100;
            const i64 end = start + 2 * width < 100 ? start + 2 * width : 100;
            i64 i = start, j = middle;
            for (i64 k = start; k < end; k++) {
                _Bool right = i >= middle;
                if (!right && j < end) {
                    const f32 a = keys[from[i]], c = keys[from[j]];
                    right = c < a || (a != a && c == c);
                }
                to[k] = from[right ? j++ : i++];
            }
        }
        i64 *swap = from; from = to; to = swap;
    }
    if (from != (i64 *)b[1] + row * 100)
        for (i64 i = 0; i < 100; i++) to[i] = from[i];
}
struct lamina_time { long seconds, nanoseconds; };
int clock_gettime(int, struct lamina_time *);
static double lamina_clock(void) { struct lamina_time t; clock_gettime(1, &t); return t.seconds + 1e-9 * t.nanoseconds; }
void lamina_run(void **buffers, const i64 *variables, lamina_parallel_fn parallel, double *seconds) {
    double started = 0;
    { void *b[] = {buffers[2], (u8 *)buffers[0] + 51200}; if (seconds) started = lamina_clock(); map0_64x100(b, 0); if (seconds) seconds[0] = lamina_clock() - started; }
    { void *b[] = {(u8 *)buffers[0] + 51200, buffers[1], (u8 *)buffers[0] + 0}; if (seconds) started = lamina_clock(); parallel(64, sort1_64x100, b); if (seconds) seconds[1] = lamina_clock() - started; }
}
