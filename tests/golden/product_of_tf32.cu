/*
reduce0_512x512:
tensorize(mma_tf32_64x64)

reduce0_512x512<<<64, 256>>>
*/

/* p2[row, column] = sum_k p0[row, k] * p1[k, column] */
KERNEL(256) reduce0_512x512(POINTER(const f32, 0), POINTER(const f32, 1), POINTER(f32, 2), MAP(left_map), MAP(right_map) PLACE) {
    PART {
    ALIGNED(const f32, 0, 1048576, 1048576);
    ALIGNED(const f32, 1, 1048576, 1048576);
    ALIGNED(f32, 2, 1048576, 1048576);
    EACH_TILE(u32, 128, 64);
    const i64 row_tile = worker % 8;
    const i64 column_tile = 0;
    const i64 column_band = (worker / 8) % 8;
    const i64 row_band = 0;
    const i64 column_lane = THREAD % 4;
    const i64 row_lane = (THREAD / 4) % 8;
    const i64 row_warp = (THREAD / 32) % 4;
    const i64 row_group = 0;
    {
        MULTISTAGE_BUFFERS(tf32, 12, 64, 64, 8192);
        FILL(tile, number, slot, full) {
            const i64 row_tile = tile % 8;
            const i64 column_tile = 0;
            const i64 column_band = (tile / 8) % 8;
            const i64 row_band = 0;
            const i64 k = 32 * (number % 16);
            const i64 row = 64 * (8 * row_band + row_tile) + 0;
            COPY_TILE(left, 1, 0, (int)(row), (int)(k)) FILL_TILE(left, row, k, 1, 128, 0, 0) {
                const f32 load_1 = p1[row + 512 * k];
                return load_1;
            });
            const i64 column = 64 * (column_band + column_tile) + 0;
            COPY_TILE(right, 0, 0, (int)(k), (int)(column)) FILL_TILE(right, column, k, 0, 128, 0, 0) {
                const f32 load_2 = p0[512 * column + k];
                return load_2;
            });
        };
        BEGIN(0, 128, 2, mma_tf32, 1, 0);
        PIPELINE(0, 128, 2, mma_tf32, 1, 0);
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
    }; mma_STREAM_K(1, 0, 128, 64, 16, 16, 64);
}