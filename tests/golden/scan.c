/*
scan0_64x100:
(no move)
*/

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
void lamina_run(void **buffers, lamina_parallel_fn parallel, double *seconds) {
    double started = 0;
    { void *b[] = {buffers[2], buffers[1]}; if (seconds) started = lamina_clock(); scan0_64x100(b, 0); if (seconds) seconds[0] = lamina_clock() - started; }
}
