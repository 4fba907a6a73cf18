/*
scan0_64x100:
(no move)
*/
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef float f32; typedef double f64;
typedef void (*lamina_body_fn)(void *, long);
typedef void (*lamina_parallel_fn)(long, lamina_body_fn, void *);
#define INLINE static inline __attribute__((always_inline))

static void scan0_64x100(void *arg, long chunk) {
    void **b = arg;
    const f32 *restrict p0 = b[0];
    f32 *restrict p1 = b[1];
    {
        for (i64 a0 = 0; a0 < 64; a0++) {
            f32 t2 = 0.0f;
            for (i64 a1 = 0; a1 < 100; a1++) {
                const f32 t1 = p0[100 * a0 + a1];
                t2 = (t2 + t1);
                const f32 t3 = t2;
                p1[100 * a0 + a1] = t3;
            }
        }
    }
}
struct lamina_time { long seconds, nanoseconds; };
int clock_gettime(int, struct lamina_time *);
static double lamina_clock(void) { struct lamina_time t; clock_gettime(1, &t); return t.seconds + 1e-9 * t.nanoseconds; }
void lamina_run(void **buffers, const i64 *variables, lamina_parallel_fn parallel, double *seconds) {
    double started = 0;
    { void *b[] = {buffers[2], buffers[1]}; if (seconds) started = lamina_clock(); scan0_64x100(b, 0); if (seconds) seconds[0] = lamina_clock() - started; }
}
