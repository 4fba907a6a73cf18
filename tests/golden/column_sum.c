/*
reduce0_100:
split(a0, 16) -> a2, a3
bind(a3, vector)
*/

KERNEL(reduce0_100) {
    POINTER(const f32, 0);
    POINTER(f32, 1);
    {
        for (i64 a2 = 0; a2 < 6; a2++) {
            f32x16 t2 = splat_f32x16(0.0f);
            for (i64 a1 = 0; a1 < 64; a1++) {
                const f32x16 t1 = *(f32x16r *)(p0 + 100 * a1 + 16 * a2);
                t2 = (t2 + t1);
            }
            f32x16 t3 = t2;
            *(f32x16u *)(p1 + 16 * a2) = t3;
        }
    }
    {
        f32x4 t5 = splat_f32x4(0.0f);
        for (i64 a1 = 0; a1 < 64; a1++) {
            const f32x4 t4 = *(f32x4r *)(p0 + 100 * a1 + 16 * 6);
            t5 = (t5 + t4);
        }
        f32x4 t6 = t5;
        *(f32x4u *)(p1 + 16 * 6) = t6;
    }
}
RUN {
    LAUNCH(0, reduce0_100(b, 0), AT(2, 0), AT(1, 0))
}
