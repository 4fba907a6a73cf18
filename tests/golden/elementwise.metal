/*
map0_64x100:
fuse(a0, a1) -> a2
reorder(a2)
bind(a2, grid)

map0_64x100<<<25, 256>>>
*/

/* v1 = sqrt(p0[row, column] * p0[row, column] + 1) * 0.5
   p1[row, column] = (v1 if p0[row, column] < 0 else p0[row, column] + v1) */
KERNEL(256) map0_64x100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    EACH_THREAD(u32, 256, 6400);
    const i32 i = worker % 6400;
    {
        const f32 load_1 = p0[i];
        const _Bool lt_2 = (load_1 < 0.0f);
        const f32 mul_3 = (load_1 * load_1);
        const f32 add_4 = (mul_3 + 1.0f);
        const f32 sqrt_5 = sqrt_f32(add_4);
        const f32 mul_6 = (sqrt_5 * 0.5f);
        const f32 add_7 = (load_1 + mul_6);
        const f32 where_8 = (lt_2 ? mul_6 : add_7);
        p1[i] = where_8;
    }
}