/*
map0_64x100:
fuse(a0, a1) -> a2
split(a2, 16) -> a3, a4
bind(a4, vector)

sort1_64x100:
(no move)
*/

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
SORT(sort1_64x100, f32, 100)
void lamina_run(void **buffers, lamina_parallel_fn parallel, double *seconds) {
    double started = 0;
    { void *b[] = {buffers[2], (u8 *)buffers[0] + 51200}; if (seconds) started = lamina_clock(); map0_64x100(b, 0); if (seconds) seconds[0] = lamina_clock() - started; }
    { void *b[] = {(u8 *)buffers[0] + 51200, buffers[1], (u8 *)buffers[0] + 0}; if (seconds) started = lamina_clock(); parallel(64, sort1_64x100, b); if (seconds) seconds[1] = lamina_clock() - started; }
}
