/*
map0_64x100:
fuse(a0, a1) -> a2
split(a2, 16) -> a3, a4
bind(a4, vector)
*/

KERNEL(map0_64x100) {
    const f32 *restrict p0 = b[0];
    f32 *restrict p1 = b[1];
    {
        for (i64 a3 = 0; a3 < 400; a3++) {
            const f32x16 t1 = *(const f32x16u *)(p0 + 16 * a3);
            const f32x16 t2 = (t1 * t1);
            const f32x16 t3 = (t2 + 1.0f);
            const f32x16 t4 = (f32x16){sqrt_f32(t3[0]), sqrt_f32(t3[1]), sqrt_f32(t3[2]), sqrt_f32(t3[3]), sqrt_f32(t3[4]), sqrt_f32(t3[5]), sqrt_f32(t3[6]), sqrt_f32(t3[7]), sqrt_f32(t3[8]), sqrt_f32(t3[9]), sqrt_f32(t3[10]), sqrt_f32(t3[11]), sqrt_f32(t3[12]), sqrt_f32(t3[13]), sqrt_f32(t3[14]), sqrt_f32(t3[15])};
            const f32x16 t5 = (t4 * 0.5f);
            const f32x16 t6 = (t5 + t1);
            const i32x16 t7 = (t1 < 0.0f);
            const f32x16 t8 = where_f32x16(t7, t5, t6);
            *(f32x16u *)(p1 + 16 * a3) = t8;
        }
    }
}
RUN {
    LAUNCH(0, map0_64x100(b, 0), buffers[2], buffers[1])
}
