/*
map0_64x100:
fuse(a0, a1) -> a2
split(a2, 16) -> a3, a4
bind(a4, vector)

sort1_64x100:
(no move)
*/

KERNEL(map0_64x100) {
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
RUN {
    LAUNCH(0, map0_64x100(b, 0), buffers[2], (u8 *)buffers[0] + 51200)
    LAUNCH(1, parallel(64, sort1_64x100, b), (u8 *)buffers[0] + 51200, buffers[1], (u8 *)buffers[0] + 0)
}
