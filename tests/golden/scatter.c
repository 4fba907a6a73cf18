/*
map0_20x16:
fuse(a0, a1) -> a2
split(a2, 16) -> a3, a4
bind(a4, vector)

scatter1_16x50:
(no move)
*/

KERNEL(map0_20x16) {
    POINTER(f32, 0);
    {
        for (i64 a3 = 0; a3 < 20; a3++) {
            *(f32x16u *)(p0 + 16 * a3) = splat_f32x16(0.0f);
        }
    }
}
KERNEL(scatter1_16x50) {
    POINTER(const i64, 0);
    POINTER(const f32, 1);
    POINTER(f32, 2);
    {
        for (i64 a0 = 0; a0 < 16; a0++) {
            for (i64 a1 = 0; a1 < 50; a1++) {
                const i64 t1 = p0[a0 + 16 * a1];
                const _Bool t2 = ((i64)-1 < t1);
                const _Bool t3 = (t1 < (i64)20);
                const _Bool t4 = (t2 & t3);
                const f32 t5 = (t4 ? p1[a0 + 16 * a1] : 0);
                WHERE(t4) { p2[a0 + 16 * t1] = (p2[a0 + 16 * t1] + t5); }
            }
        }
    }
}
RUN {
    LAUNCH(0, map0_20x16(b, 0), AT(1, 0))
    LAUNCH(1, scatter1_16x50(b, 0), AT(3, 0), AT(2, 0), AT(1, 0))
}
