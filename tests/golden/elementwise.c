/*
map0_64x100:
fuse(a0, a1) -> a2
split(a2, 16) -> a3, a4
bind(a4, vector)
*/

KERNEL(map0_64x100) {
    POINTER(const f32, 0);
    POINTER(f32, 1);
    {
        for (i64 a3 = 0; a3 < 400; a3++) {
            const f32x16 t1 = *(f32x16r *)(p0 + 16 * a3);
            const i32x16 t2 = (t1 < 0.0f);
            const f32x16 t3 = (t1 * t1);
            const f32x16 t4 = (t3 + 1.0f);
            const f32x16 t5 = (f32x16){sqrt_f32(t4[0]), sqrt_f32(t4[1]), sqrt_f32(t4[2]), sqrt_f32(t4[3]), sqrt_f32(t4[4]), sqrt_f32(t4[5]), sqrt_f32(t4[6]), sqrt_f32(t4[7]), sqrt_f32(t4[8]), sqrt_f32(t4[9]), sqrt_f32(t4[10]), sqrt_f32(t4[11]), sqrt_f32(t4[12]), sqrt_f32(t4[13]), sqrt_f32(t4[14]), sqrt_f32(t4[15])};
            const f32x16 t6 = (t5 * 0.5f);
            const f32x16 t7 = (t6 + t1);
            const f32x16 t8 = where_f32x16(t2, t6, t7);
            *(f32x16u *)(p1 + 16 * a3) = t8;
        }
    }
}
RUN {
    LAUNCH(0, map0_64x100(b, 0), AT(2, 0), AT(1, 0))
}
