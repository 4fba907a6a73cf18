/*
reduce0_512x512:
tensorize(mma_tf32_64x64)
order(whole, 64)
depth(12)
roles(producer)
overlap(0)

reduce0_512x512<<<64, 256>>>
*/

/* p2[row, column] = sum_k p0[row, k] * p1[k, column] */
KERNEL(256) reduce0_512x512(POINTER(const f32, 0), POINTER(const f32, 1), POINTER(f32, 2), MAP(left_map), MAP(right_map) PLACE) {
    ALIGNED(const f32, 0, 1048576, 1048576);
    ALIGNED(const f32, 1, 1048576, 1048576);
    ALIGNED(f32, 2, 1048576, 1048576);
    extern __shared__ __align__(1024) u8 shared[];
    const u32 left = shared_address(shared + 0);
    const u32 right = shared_address(shared + 98304);
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
            NOT_UNROLLED for (u32 step = 0; step < 16; step++) {
                const i64 k = 32 * (step % 16);
                while (!phase_has_ended(empty + slot, parity)) {}
                const i64 row = 64 * (8 * row_band + row_tile) + 0;
                expect_bytes(full + slot, 8192);
                copy_box(left + 8192 * slot, &left_map, full + slot, (int)(row), (int)(k));
                copy_box(left + 8192 * slot + 4096, &left_map, full + slot, (int)(row) + 32, (int)(k));
                const i64 column = 64 * (column_band + column_tile) + 0;
                expect_bytes(full + slot, 8192);
                copy_box(right + 8192 * slot, &right_map, full + slot, (int)(k), (int)(column));
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
    for (u32 tile = 63 - BLOCK; tile < 64; tile += 64) {
        const i64 row_tile = tile % 8;
        const i64 column_tile = 0;
        const i64 column_band = (tile / 8) % 8;
        const i64 row_band = 0;
        u32 step = 0;
        const auto next_step = [&]() INLINED {
            while (!phase_has_ended(full + slot, parity)) {}
            const u32 rows = left + 8192 * slot, columns = (right + 8192 * slot) / 16;
            u32 factors[4][4];
            load_transposed(factors[0], rows, 0);
            load_transposed(factors[1], rows, 1);
            load_transposed(factors[2], rows, 2);
            load_transposed(factors[3], rows, 3);
            wgmma_fence();
            wgmma_tf32(sums, factors[0], descriptor(columns + 0), step > 0);
            wgmma_tf32(sums, factors[1], descriptor(columns + 2), true);
            wgmma_tf32(sums, factors[2], descriptor(columns + 4), true);
            wgmma_tf32(sums, factors[3], descriptor(columns + 6), true);
            wgmma_commit();
            held++;
            wgmma_wait<1>();
            NOT_UNROLLED for (; held > 1; held--) {
                if (THREAD % 32 == 0) arrive(empty + oldest);
                if (++oldest == 12) oldest = 0;
            }
            if (++slot == 12) {
                slot = 0;
                parity ^= 1;
            }
            step++;
        };
        while (true) {  // two in turn, in other registers
            next_step();
            if (step == 16) break;
            next_step();
            if (step == 16) break;
        }
        wgmma_wait<0>();
        UNROLLED for (f32 &sum : sums) hold(sum);
        NOT_UNROLLED for (; held > 0; held--) {
            if (THREAD % 32 == 0) arrive(empty + oldest);
            if (++oldest == 12) oldest = 0;
        }
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane] = sums[0];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 512] = sums[1];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 8] = sums[2];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 520] = sums[3];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 4096] = sums[4];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 4608] = sums[5];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 4104] = sums[6];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 4616] = sums[7];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 8192] = sums[8];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 8704] = sums[9];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 8200] = sums[10];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 8712] = sums[11];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 12288] = sums[12];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 12800] = sums[13];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 12296] = sums[14];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 12808] = sums[15];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 16384] = sums[16];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 16896] = sums[17];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 16392] = sums[18];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 16904] = sums[19];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 20480] = sums[20];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 20992] = sums[21];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 20488] = sums[22];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 21000] = sums[23];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 24576] = sums[24];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 25088] = sums[25];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 24584] = sums[26];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 25096] = sums[27];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 28672] = sums[28];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 29184] = sums[29];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 28680] = sums[30];
        p2[512 * row_band + 64 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 32768 * column_band + 32768 * column_tile + 1024 * column_lane + 29192] = sums[31];
    }
}