/*
scan0_64x100:
(no move)
*/

KERNEL(scan0_64x100) {
    POINTER(const f32, 0);
    POINTER(f32, 1);
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
RUN {
    LAUNCH(0, scan0_64x100(b, 0), AT(2, 0), AT(1, 0))
}
