/*
scan0_64x100:
split(a0, 4) -> a2, a3
bind(a3, unroll)
*/

KERNEL(scan0_64x100) {
    POINTER(const f32, 0);
    POINTER(f32, 1);
    {
        for (i64 a2 = 0; a2 < 16; a2++) {
            f32 t2 = 0.0f;
            f32 t5 = 0.0f;
            f32 t8 = 0.0f;
            f32 t11 = 0.0f;
            for (i64 a1 = 0; a1 < 100; a1++) {
                const f32 t1 = p0[a1 + 400 * a2];
                t2 = (t2 + t1);
                const f32 t3 = t2;
                const f32 t4 = p0[a1 + 400 * a2 + 100];
                t5 = (t5 + t4);
                const f32 t6 = t5;
                const f32 t7 = p0[a1 + 400 * a2 + 200];
                t8 = (t8 + t7);
                const f32 t9 = t8;
                const f32 t10 = p0[a1 + 400 * a2 + 300];
                t11 = (t11 + t10);
                const f32 t12 = t11;
                p1[a1 + 400 * a2] = t3;
                p1[a1 + 400 * a2 + 100] = t6;
                p1[a1 + 400 * a2 + 200] = t9;
                p1[a1 + 400 * a2 + 300] = t12;
            }
        }
    }
}
RUN {
    LAUNCH(0, scan0_64x100(b, 0), AT(2, 0), AT(1, 0))
}
