/*
map0_512x300:
split(a1, 4) -> a2, a3
bind(a3, unroll)
reorder(a0, a2, a3)
bind(a0, grid)
bind(a2, grid)

reduce1_512x512:
tensorize(mma_f16_64x64)

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
    PART {
    ALIGNED(const u16, 0, 327680, 524288);
    ALIGNED(const u16, 1, 307200, 524288);
    ALIGNED(u16, 2, 524288, 524288);
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
        MULTISTAGE_BUFFERS(f16, 12, 64, 64, 8192);
        FILL(tile, number, slot, full) {
            const i64 row_tile = tile % 8;
            const i64 column_tile = 0;
            const i64 column_band = (tile / 8) % 8;
            const i64 row_band = 0;
            const i64 k = 64 * (number % 5);
            const i64 row = 64 * (8 * row_band + row_tile) + 0;
            COPY_TILE(left, 0, 0, (int)(k), (int)(row)) FILL_TILE(left, row, k, 0, 128, 0, 300) {
                const u16 load_1 = p0[320 * row + k];
                return load_1;
            });
            const i64 column = 64 * (column_band + column_tile) + 0;
            COPY_TILE(right, 1, 0, (int)(column), (int)(k)) FILL_TILE(right, column, k, 1, 128, 0, 300) {
                const u16 load_2 = p1[column + 512 * k];
                return load_2;
            });
        };
        BEGIN(16, 128, 2, mma_f16, 0, 1);
        ROWS(store0, 0, uint4, p2 + 64 * (4096 * row_band + 512 * row_tile + column_band + column_tile) + 0, 512, 512 - (64 * (8 * row_band + row_tile) + 0), 512 - (64 * (column_band + column_tile) + 0));
        BEFORE_EPILOGUE {
        PIPELINE(16, 128, 2, mma_f16, 0, 1);
        const auto cast_3 = f32_to_f16(sums[0]);
        kept.put(0, cast_3);
        const auto cast_4 = f32_to_f16(sums[1]);
        kept.put(1, cast_4);
        const auto cast_5 = f32_to_f16(sums[2]);
        kept.put(2, cast_5);
        const auto cast_6 = f32_to_f16(sums[3]);
        kept.put(3, cast_6);
        const auto cast_7 = f32_to_f16(sums[4]);
        kept.put(4, cast_7);
        const auto cast_8 = f32_to_f16(sums[5]);
        kept.put(5, cast_8);
        const auto cast_9 = f32_to_f16(sums[6]);
        kept.put(6, cast_9);
        const auto cast_10 = f32_to_f16(sums[7]);
        kept.put(7, cast_10);
        const auto cast_11 = f32_to_f16(sums[8]);
        kept.put(8, cast_11);
        const auto cast_12 = f32_to_f16(sums[9]);
        kept.put(9, cast_12);
        const auto cast_13 = f32_to_f16(sums[10]);
        kept.put(10, cast_13);
        const auto cast_14 = f32_to_f16(sums[11]);
        kept.put(11, cast_14);
        const auto cast_15 = f32_to_f16(sums[12]);
        kept.put(12, cast_15);
        const auto cast_16 = f32_to_f16(sums[13]);
        kept.put(13, cast_16);
        const auto cast_17 = f32_to_f16(sums[14]);
        kept.put(14, cast_17);
        const auto cast_18 = f32_to_f16(sums[15]);
        kept.put(15, cast_18);
        const auto cast_19 = f32_to_f16(sums[16]);
        kept.put(16, cast_19);
        const auto cast_20 = f32_to_f16(sums[17]);
        kept.put(17, cast_20);
        const auto cast_21 = f32_to_f16(sums[18]);
        kept.put(18, cast_21);
        const auto cast_22 = f32_to_f16(sums[19]);
        kept.put(19, cast_22);
        const auto cast_23 = f32_to_f16(sums[20]);
        kept.put(20, cast_23);
        const auto cast_24 = f32_to_f16(sums[21]);
        kept.put(21, cast_24);
        const auto cast_25 = f32_to_f16(sums[22]);
        kept.put(22, cast_25);
        const auto cast_26 = f32_to_f16(sums[23]);
        kept.put(23, cast_26);
        const auto cast_27 = f32_to_f16(sums[24]);
        kept.put(24, cast_27);
        const auto cast_28 = f32_to_f16(sums[25]);
        kept.put(25, cast_28);
        const auto cast_29 = f32_to_f16(sums[26]);
        kept.put(26, cast_29);
        const auto cast_30 = f32_to_f16(sums[27]);
        kept.put(27, cast_30);
        const auto cast_31 = f32_to_f16(sums[28]);
        kept.put(28, cast_31);
        const auto cast_32 = f32_to_f16(sums[29]);
        kept.put(29, cast_32);
        const auto cast_33 = f32_to_f16(sums[30]);
        kept.put(30, cast_33);
        const auto cast_34 = f32_to_f16(sums[31]);
        kept.put(31, cast_34);
        }
        EPILOGUE_SLICE(0) {
        store0(0, (u16)kept[0], (u16)kept[1], (u16)kept[2], (u16)kept[3], (u16)kept[4], (u16)kept[5], (u16)kept[6], (u16)kept[7]);
        }
        EPILOGUE_SLICE(8) {
        store0(8, (u16)kept[8], (u16)kept[9], (u16)kept[10], (u16)kept[11], (u16)kept[12], (u16)kept[13], (u16)kept[14], (u16)kept[15]);
        }
        EPILOGUE_SLICE(16) {
        store0(16, (u16)kept[16], (u16)kept[17], (u16)kept[18], (u16)kept[19], (u16)kept[20], (u16)kept[21], (u16)kept[22], (u16)kept[23]);
        }
        EPILOGUE_SLICE(24) {
        store0(24, (u16)kept[24], (u16)kept[25], (u16)kept[26], (u16)kept[27], (u16)kept[28], (u16)kept[29], (u16)kept[30], (u16)kept[31]);
        }
    }
    }; mma_STREAM_K(1, 16, 128, 64, 5, 5, 64);
}