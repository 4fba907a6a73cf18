/*
map0_512x300:
split(a1, 4) -> a2, a3
bind(a3, unroll)
reorder(a0, a2, a3)
bind(a0, grid)
bind(a2, grid)

reduce1_512x512:
tensorize(mma_f16_64x64)
order(whole, 64)
depth(12)
roles(producer)
overlap(0)

map0_512x300<<<150, 256>>>

reduce1_512x512<<<64, 256>>>
*/

/* p1[row, column] = p0[row, column] */
KERNEL(256) map0_512x300(POINTER(const u16, 0), POINTER(u16, 1) PLACE) {
    ALIGNED(const u16, 0, 307200, 327680);
    ALIGNED(u16, 1, 327680, 327680);
    EACH_THREAD(u32, 256, 38400);
    const i64 column_outer = worker % 75;
    const i64 row = (worker / 75) % 512;
    {
        const u16 load_1 = p0[4 * (75 * row + column_outer) + 0];
        const u16 load_2 = p0[4 * (75 * row + column_outer) + 1];
        const u16 load_3 = p0[4 * (75 * row + column_outer) + 2];
        const u16 load_4 = p0[4 * (75 * row + column_outer) + 3];
        p1[4 * (80 * row + column_outer) + 0] = load_1;
        p1[4 * (80 * row + column_outer) + 1] = load_2;
        p1[4 * (80 * row + column_outer) + 2] = load_3;
        p1[4 * (80 * row + column_outer) + 3] = load_4;
    }
}
/* p2[row, column] = f16(sum_k f32(p0[row, k]) * f32(p1[k, column])) */
KERNEL(256) reduce1_512x512(POINTER(const u16, 0), POINTER(const u16, 1), POINTER(u16, 2), MAP(left_map), MAP(right_map) PLACE) {
    ALIGNED(const u16, 0, 327680, 524288);
    ALIGNED(const u16, 1, 307200, 524288);
    ALIGNED(u16, 2, 524288, 524288);
    extern __shared__ __align__(1024) u8 shared[];
    const u32 left = shared_address(shared + 8192);
    const u32 right = shared_address(shared + 106496);
    FOLLOW;
    __shared__ u64 full[12], empty[12];
    if (THREAD == 0) {
        UNROLLED for (int slot = 0; slot < 12; slot++)
            start_barrier(full + slot, 2);
        UNROLLED for (int slot = 0; slot < 12; slot++)
            start_barrier(empty + slot, 4);
        publish_barriers();
    }
    BARRIER;
    if (THREAD >= 128) {  // producer
        if (THREAD > 128) return;
        u32 slot = 0, parity = 1;
        for (u32 tile = 63 - BLOCK; tile < 64; tile += 64) {
            const i64 row_tile = tile % 8;
            const i64 column_tile = 0;
            const i64 column_band = (tile / 8) % 8;
            const i64 row_band = 0;
            NOT_UNROLLED for (u32 step = 0; step < 5; step++) {
                const i64 k = 64 * (step % 5);
                while (!phase_has_ended(empty + slot, parity)) {}
                const i64 row = 64 * (8 * row_band + row_tile) + 0;
                expect_bytes(full + slot, 8192);
                copy_box(left + 8192 * slot, &left_map, full + slot, (int)(k), (int)(row));
                const i64 column = 64 * (column_band + column_tile) + 0;
                expect_bytes(full + slot, 8192);
                copy_box(right + 8192 * slot, &right_map, full + slot, (int)(column), (int)(k));
                if (++slot == 12) {
                    slot = 0;
                    parity ^= 1;
                }
            }
        }
        return;
    }
    const i64 column_lane = THREAD % 4;
    const i64 row_lane = (THREAD / 4) % 8;
    const i64 row_warp = (THREAD / 32) % 4;
    const i64 row_group = 0;
    f32 sums[32];
    u32 slot = 0, parity = 0, held = 0, oldest = 0;  // held: slots that are not released
    u8 *const lines0 = shared + 0 + THREAD / 32 * 2048;
    const auto write_rows0 = [&](u16 *to, i64 rows_left, i64 columns_left, int first) INLINED {
        WARP_BARRIER;
        const int row = THREAD % 32 / 8, column = THREAD % 8 * 8;
        const int rows = min(rows_left, (i64)1024) - THREAD / 32 * 16 - row;
        const int columns = min(columns_left, (i64)1024) - column;
        u16 *const start = to + (i64)(THREAD / 32 * 16 + row) * 512 + column;
        UNROLLED for (int some = 0; some < 128; some += 128) {
            uint4 chunks[4];
            UNROLLED for (int i = 0; i < 4; i++)
                chunks[i] = *(const uint4 *)(lines0 + (row + (some + 32 * i) / 8) * 128 + ((column + (some + 32 * i) % 8 * 8) * 2 ^ (row + (some + 32 * i) / 8) % 8 << 4));
            UNROLLED for (int i = 0; i < 4; i++)
                if ((some + 32 * i) / 8 < rows && first + (some + 32 * i) % 8 * 8 < columns) store_chunk(start + (i64)((some + 32 * i) / 8) * 512 + first + (some + 32 * i) % 8 * 8, chunks[i]);
        }
        WARP_BARRIER;
    };
    for (u32 tile = 63 - BLOCK; tile < 64; tile += 64) {
        const i64 row_tile = tile % 8;
        const i64 column_tile = 0;
        const i64 column_band = (tile / 8) % 8;
        const i64 row_band = 0;
        for (u32 step = 0; step < 5; step++) {
            while (!phase_has_ended(full + slot, parity)) {}
            const u32 rows = (left + 8192 * slot) / 16, columns = (right + 8192 * slot) / 16;
            wgmma_fence();
            wgmma_f16<0, 1>(sums, descriptor(rows + 0), descriptor(columns + 0), step > 0);
            wgmma_f16<0, 1>(sums, descriptor(rows + 2), descriptor(columns + 128), true);
            wgmma_f16<0, 1>(sums, descriptor(rows + 4), descriptor(columns + 256), true);
            wgmma_f16<0, 1>(sums, descriptor(rows + 6), descriptor(columns + 384), true);
            wgmma_commit();
            held++;
            wgmma_wait<2>();
            NOT_UNROLLED for (; held > 2; held--) {
                if (THREAD % 32 == 0) arrive(empty + oldest);
                if (++oldest == 12) oldest = 0;
            }
            if (++slot == 12) {
                slot = 0;
                parity ^= 1;
            }
        }
        wgmma_wait<0>();
        UNROLLED for (f32 &sum : sums) hold(sum);
        NOT_UNROLLED for (; held > 0; held--) {
            if (THREAD % 32 == 0) arrive(empty + oldest);
            if (++oldest == 12) oldest = 0;
        }
        const auto cast_1 = f32_to_f16(sums[0]);
        const auto cast_2 = f32_to_f16(sums[1]);
        const auto cast_3 = f32_to_f16(sums[2]);
        const auto cast_4 = f32_to_f16(sums[3]);
        const auto cast_5 = f32_to_f16(sums[4]);
        const auto cast_6 = f32_to_f16(sums[5]);
        const auto cast_7 = f32_to_f16(sums[6]);
        const auto cast_8 = f32_to_f16(sums[7]);
        store_matrices(lines0 + (THREAD % 16) * 128 + (0 + THREAD % 32 / 16 * 16 ^ (THREAD % 16) % 8 << 4), (u16)cast_1, (u16)cast_2, (u16)cast_3, (u16)cast_4, (u16)cast_5, (u16)cast_6, (u16)cast_7, (u16)cast_8);
        const auto cast_9 = f32_to_f16(sums[8]);
        const auto cast_10 = f32_to_f16(sums[9]);
        const auto cast_11 = f32_to_f16(sums[10]);
        const auto cast_12 = f32_to_f16(sums[11]);
        const auto cast_13 = f32_to_f16(sums[12]);
        const auto cast_14 = f32_to_f16(sums[13]);
        const auto cast_15 = f32_to_f16(sums[14]);
        const auto cast_16 = f32_to_f16(sums[15]);
        store_matrices(lines0 + (THREAD % 16) * 128 + (32 + THREAD % 32 / 16 * 16 ^ (THREAD % 16) % 8 << 4), (u16)cast_9, (u16)cast_10, (u16)cast_11, (u16)cast_12, (u16)cast_13, (u16)cast_14, (u16)cast_15, (u16)cast_16);
        const auto cast_17 = f32_to_f16(sums[16]);
        const auto cast_18 = f32_to_f16(sums[17]);
        const auto cast_19 = f32_to_f16(sums[18]);
        const auto cast_20 = f32_to_f16(sums[19]);
        const auto cast_21 = f32_to_f16(sums[20]);
        const auto cast_22 = f32_to_f16(sums[21]);
        const auto cast_23 = f32_to_f16(sums[22]);
        const auto cast_24 = f32_to_f16(sums[23]);
        store_matrices(lines0 + (THREAD % 16) * 128 + (64 + THREAD % 32 / 16 * 16 ^ (THREAD % 16) % 8 << 4), (u16)cast_17, (u16)cast_18, (u16)cast_19, (u16)cast_20, (u16)cast_21, (u16)cast_22, (u16)cast_23, (u16)cast_24);
        const auto cast_25 = f32_to_f16(sums[24]);
        const auto cast_26 = f32_to_f16(sums[25]);
        const auto cast_27 = f32_to_f16(sums[26]);
        const auto cast_28 = f32_to_f16(sums[27]);
        const auto cast_29 = f32_to_f16(sums[28]);
        const auto cast_30 = f32_to_f16(sums[29]);
        const auto cast_31 = f32_to_f16(sums[30]);
        const auto cast_32 = f32_to_f16(sums[31]);
        store_matrices(lines0 + (THREAD % 16) * 128 + (96 + THREAD % 32 / 16 * 16 ^ (THREAD % 16) % 8 << 4), (u16)cast_25, (u16)cast_26, (u16)cast_27, (u16)cast_28, (u16)cast_29, (u16)cast_30, (u16)cast_31, (u16)cast_32);
        write_rows0(p2 + 64 * (4096 * row_band + 512 * row_tile + column_band + column_tile) + 0, 512 - (64 * (8 * row_band + row_tile) + 0), 512 - (64 * (column_band + column_tile) + 0), 0);
    }
}