/*
map0_64x100:
fuse(a0, a1) -> a2
split(a2, 16) -> a3, a4
bind(a4, vector)
*/

/* v1 = sqrt(p0[row, column] * p0[row, column] + 1) * 0.5
   p1[row, column] = (v1 if p0[row, column] < 0 else p0[row, column] + v1) */
KERNEL(map0_64x100) {
    POINTER(const f32, 0);
    POINTER(f32, 1);
    {
        for (i64 i_outer = 0; i_outer < 400; i_outer++) {
            const f32x16 load_1 = *(f32x16r *)(p0 + 16 * i_outer);
            const i32x16 lt_2 = (load_1 < 0.0f);
            const f32x16 mul_3 = (load_1 * load_1);
            const f32x16 add_4 = (mul_3 + 1.0f);
            const f32x16 sqrt_5 = (f32x16){sqrt_f32(add_4[0]), sqrt_f32(add_4[1]), sqrt_f32(add_4[2]), sqrt_f32(add_4[3]), sqrt_f32(add_4[4]), sqrt_f32(add_4[5]), sqrt_f32(add_4[6]), sqrt_f32(add_4[7]), sqrt_f32(add_4[8]), sqrt_f32(add_4[9]), sqrt_f32(add_4[10]), sqrt_f32(add_4[11]), sqrt_f32(add_4[12]), sqrt_f32(add_4[13]), sqrt_f32(add_4[14]), sqrt_f32(add_4[15])};
            const f32x16 mul_6 = (sqrt_5 * 0.5f);
            const f32x16 add_7 = (load_1 + mul_6);
            const f32x16 where_8 = where_f32x16(lt_2, mul_6, add_7);
            *(f32x16u *)(p1 + 16 * i_outer) = where_8;
        }
    }
}
RUN {
    LAUNCH(0, map0_64x100(b, 0), AT(2, 0), AT(1, 0))
}
