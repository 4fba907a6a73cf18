/*
map0_64x100:
fuse(a0, a1) -> a2
split(a2, 16) -> a3, a4
bind(a4, vector)
*/

typedef f32 f32x16 __attribute__((vector_size(64))); typedef f32 f32x16u __attribute__((vector_size(64), aligned(4), may_alias));
typedef i32 i32x16 __attribute__((vector_size(64))); typedef i32 i32x16u __attribute__((vector_size(64), aligned(4), may_alias));
static void map0_64x100(void *arg, long chunk) {
    void **b = arg;
    const f32 *restrict p0 = b[0];
    f32 *restrict p1 = b[1];
    {
        for (i64 a3 = 0; a3 < 400; a3++) {
            const f32x16 t1 = *(const f32x16u *)(p0 + 16 * a3);
            const f32x16 t2 = (t1 * t1);
            const f32x16 t3 = (t2 + 1.0f);
            const f32x16 t4 = (f32x16){__builtin_sqrtf(t3[0]), __builtin_sqrtf(t3[1]), __builtin_sqrtf(t3[2]), __builtin_sqrtf(t3[3]), __builtin_sqrtf(t3[4]), __builtin_sqrtf(t3[5]), __builtin_sqrtf(t3[6]), __builtin_sqrtf(t3[7]), __builtin_sqrtf(t3[8]), __builtin_sqrtf(t3[9]), __builtin_sqrtf(t3[10]), __builtin_sqrtf(t3[11]), __builtin_sqrtf(t3[12]), __builtin_sqrtf(t3[13]), __builtin_sqrtf(t3[14]), __builtin_sqrtf(t3[15])};
            const f32x16 t5 = (t4 * 0.5f);
            const f32x16 t6 = (t5 + t1);
            const i32x16 t7 = (t1 < 0.0f);
            const f32x16 t8 = (f32x16)((t7 & (i32x16)t5) | (~t7 & (i32x16)t6));
            *(f32x16u *)(p1 + 16 * a3) = t8;
        }
    }
}
void lamina_run(void **buffers, lamina_parallel_fn parallel, double *seconds) {
    double started = 0;
    { void *b[] = {buffers[2], buffers[1]}; if (seconds) started = lamina_clock(); map0_64x100(b, 0); if (seconds) seconds[0] = lamina_clock() - started; }
}
