/*
reduce0_2x4x256x64:
fuse(a0, a1) -> a6
tensorize(mma_bf16_128x64)
depth(8)
ahead(1)

reduce0_2x4x256x64<<<16, 384>>>
*/

/* v1 = (-inf if row < k1 else (sum_k0 f32(p0[batch0, batch1, row, k0]) * f32(p1[batch0, batch1, k1, k0])) * 0.125)
   v2 = max_k1 v1
   v3 = exp(v1 - (0 if v2 == -inf else v2))
   v4 = sum_k1 v3
   p3[batch0, batch1, row, column] = bf16((sum_k1 f32(bf16(v3)) * f32(p2[batch0, batch1, k1, column])) / (1 if v4 == 0 else v4)) */
KERNEL(384, 1) reduce0_2x4x256x64(POINTER(const u16, 0), POINTER(const u16, 1), POINTER(const u16, 2), POINTER(u16, 3), MAP(tile0_map), MAP(tile1_map), MAP(tile2_map) PLACE) {
    ALIGNED(const u16, 0, 262144, 262144);
    ALIGNED(const u16, 1, 262144, 262144);
    ALIGNED(const u16, 2, 262144, 262144);
    ALIGNED(u16, 3, 262144, 262144);
    extern __shared__ __align__(1024) u8 shared[];
    const u32 tile0 = shared_address(shared + 16384);
    const u32 tile1 = shared_address(shared + 49152);
    const u32 tile2 = shared_address(shared + 114688);
    FOLLOW;
    __shared__ u64 drawn[4], full_rows[2], empty_rows[2], full_tile1[8], empty_tile1[8], full_tile2[8], empty_tile2[8];
    if (THREAD == 0) {
        UNROLLED for (int slot = 0; slot < 4; slot++)
            start_barrier(drawn + slot, 1);
        UNROLLED for (int slot = 0; slot < 2; slot++)
            start_barrier(full_rows + slot, 1);
        UNROLLED for (int slot = 0; slot < 2; slot++)
            start_barrier(empty_rows + slot, 8);
        UNROLLED for (int slot = 0; slot < 8; slot++)
            start_barrier(full_tile1 + slot, 1);
        UNROLLED for (int slot = 0; slot < 8; slot++)
            start_barrier(empty_tile1 + slot, 8);
        UNROLLED for (int slot = 0; slot < 8; slot++)
            start_barrier(full_tile2 + slot, 1);
        UNROLLED for (int slot = 0; slot < 8; slot++)
            start_barrier(empty_tile2 + slot, 8);
        publish_barriers();
    }
    BARRIER;
    __shared__ u32 drawn_tickets[4];
    if (THREAD >= 256) {  // producer
        give_registers<24>();
        if (THREAD > 256) return;
        for (u32 taken = 0, done = 0;; taken++) {
            u32 ticket = BLOCK;
            if (taken > 0) {
                ticket = 16 + atomicAdd(&tickets, 1);
                if (ticket == 31) tickets = 0;
            }
            drawn_tickets[taken % 4] = ticket;
            arrive(drawn + taken % 4);
            if (ticket >= 16) break;
            const u32 start = ticket / 512 * 256;
            const u32 rest = ticket % 512;
            const u32 arrays = min(256u, 8 - start), row = rest / arrays;
            const u32 tile = (start + rest % arrays) * 2 + 1 - row;
            const i32 row_tile = 0;
            const i32 column_tile = 0;
            const i32 column_band = 0;
            const i32 row_band = tile % 2;
            const i32 batch = (tile / 2) % 8;
            const i32 lowest0 = 128 * (-1 * row_band + -1 * row_tile) + 0 + -127;
            const i32 first = min(0, 3), stop = max(min(4, (64 - lowest0) / 64), first + 1);
            const u32 before = done - first;
            done += stop - first;
            while (!phase_has_ended(empty_rows + taken % 2, taken / 2 & 1 ^ 1)) {}
            {
                const i64 k0 = 0;
                const i64 row = 128 * (row_band + row_tile) + 0;
                expect_bytes(full_rows + (taken % 2), 16384);
                copy_box(tile0 + 16384 * (taken % 2), &tile0_map, full_rows + (taken % 2), (int)(k0), (int)(row), (int)(batch));
            }
            NOT_UNROLLED for (u32 number = before + first; number < before + stop; number++) {
                const i32 k1_tile = number - before;
                while (!phase_has_ended(empty_tile1 + number % 8, number / 8 & 1 ^ 1)) {}
                {
                    const i64 k0 = 0;
                    const i64 k1 = 64 * k1_tile;
                    expect_bytes(full_tile1 + (number % 8), 8192);
                    copy_box(tile1 + 8192 * (number % 8), &tile1_map, full_tile1 + (number % 8), (int)(k0), (int)(k1), (int)(batch));
                }
                while (!phase_has_ended(empty_tile2 + number % 8, number / 8 & 1 ^ 1)) {}
                {
                    const i64 k0 = 0;
                    const i64 k1 = 64 * k1_tile;
                    expect_bytes(full_tile2 + (number % 8), 8192);
                    copy_box(tile2 + 8192 * (number % 8), &tile2_map, full_tile2 + (number % 8), (int)(k0), (int)(k1), (int)(batch));
                }
            }
        }
        return;
    }
    take_registers<240>();
    const int group = warp_group();
    const i32 column_lane = THREAD % 4;
    const i32 row_lane = (THREAD / 4) % 8;
    const i32 row_warp = (THREAD / 32) % 4;
    const i32 row_group = (THREAD / 128) % 2;
    const i32 k1_lane = THREAD % 4;
    u8 *const lines0 = shared + 0 + THREAD / 32 * 2048;
    const auto write_rows0 = [&](u16 *to, i64 rows_left, i64 columns_left, int first) INLINED {
        WARP_BARRIER;
        const int row = THREAD % 32 / 8, column = THREAD % 8 * 8;
        const int rows = min(rows_left, (i64)1024) - THREAD / 32 * 16 - row;
        const int columns = min(columns_left, (i64)1024) - column;
        u16 *const start = to + (i64)(THREAD / 32 * 16 + row) * 64 + column;
        UNROLLED for (int some = 0; some < 128; some += 128) {
            uint4 chunks[4];
            UNROLLED for (int i = 0; i < 4; i++)
                chunks[i] = *(const uint4 *)(lines0 + (row + (some + 32 * i) / 8) * 128 + ((column + (some + 32 * i) % 8 * 8) * 2 ^ (row + (some + 32 * i) / 8) % 8 << 4));
            UNROLLED for (int i = 0; i < 4; i++)
                if ((some + 32 * i) / 8 < rows && first + (some + 32 * i) % 8 * 8 < columns) store_chunk(start + (i64)((some + 32 * i) / 8) * 64 + first + (some + 32 * i) % 8 * 8, chunks[i]);
        }
        WARP_BARRIER;
    };
    for (u32 taken = 0, done = 0;; taken++) {
        while (!phase_has_ended(drawn + taken % 4, taken / 4 & 1)) {}
        const u32 ticket = __shfl_sync(~0u, *(drawn_tickets + taken % 4), 0);
        if (ticket >= 16) break;
        const u32 start = ticket / 512 * 256;
        const u32 rest = ticket % 512;
        const u32 arrays = min(256u, 8 - start), row = rest / arrays;
        const u32 tile = (start + rest % arrays) * 2 + 1 - row;
        const i32 row_tile = 0;
        const i32 column_tile = 0;
        const i32 column_band = 0;
        const i32 row_band = tile % 2;
        const i32 batch = (tile / 2) % 8;
        const i32 lowest0 = 128 * (-1 * row_band + -1 * row_tile) + 0 + -127;
        const i32 group_lowest0 = lowest0 + -64 * (group - 1);
        const i32 first = min(0, 3), stop = max(min(4, (64 - lowest0) / 64), first + 1);
        const i32 from = min(first, stop - 1), to = max(min(stop, (64 - group_lowest0) / 64), from + 1);
        f32 inner0[32];
        f32 totals0[32];
        f32 parts0[32];
        u32 left0[16];
        f32 row_sums0[2];
        f32 row_max[2];
        f32 shift[2];
        f32 factor[2];
        const auto elements = [&](const i32 k1_tile, auto ready) INLINED {
            if (128 * (-1 * row_band + -1 * row_tile) + 0 + 63 + -64 * group + 64 * k1_tile > 0) {
                ready();
                const _Bool lt_1 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 0));
                const auto where_2 = (lt_1 ? -inf_f32 : inner0[0]);
                const _Bool lt_3 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 1));
                const auto where_4 = (lt_3 ? -inf_f32 : inner0[1]);
                const _Bool lt_5 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 8));
                const auto where_6 = (lt_5 ? -inf_f32 : inner0[4]);
                const _Bool lt_7 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 9));
                const auto where_8 = (lt_7 ? -inf_f32 : inner0[5]);
                const _Bool lt_9 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 16));
                const auto where_10 = (lt_9 ? -inf_f32 : inner0[8]);
                const _Bool lt_11 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 17));
                const auto where_12 = (lt_11 ? -inf_f32 : inner0[9]);
                const _Bool lt_13 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 24));
                const auto where_14 = (lt_13 ? -inf_f32 : inner0[12]);
                const _Bool lt_15 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 25));
                const auto where_16 = (lt_15 ? -inf_f32 : inner0[13]);
                const _Bool lt_17 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 32));
                const auto where_18 = (lt_17 ? -inf_f32 : inner0[16]);
                const _Bool lt_19 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 33));
                const auto where_20 = (lt_19 ? -inf_f32 : inner0[17]);
                const _Bool lt_21 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 40));
                const auto where_22 = (lt_21 ? -inf_f32 : inner0[20]);
                const _Bool lt_23 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 41));
                const auto where_24 = (lt_23 ? -inf_f32 : inner0[21]);
                const _Bool lt_25 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 48));
                const auto where_26 = (lt_25 ? -inf_f32 : inner0[24]);
                const _Bool lt_27 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 49));
                const auto where_28 = (lt_27 ? -inf_f32 : inner0[25]);
                const _Bool lt_29 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 56));
                const auto where_30 = (lt_29 ? -inf_f32 : inner0[28]);
                const _Bool lt_31 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane) < (i64)(2 * (32 * k1_tile + k1_lane) + 57));
                const auto where_32 = (lt_31 ? -inf_f32 : inner0[29]);
                const auto max_33 = max_f32(where_2, where_4);
                const auto max_34 = max_f32(where_6, where_8);
                const auto max_35 = max_f32(where_10, where_12);
                const auto max_36 = max_f32(where_14, where_16);
                const auto max_37 = max_f32(where_18, where_20);
                const auto max_38 = max_f32(where_22, where_24);
                const auto max_39 = max_f32(where_26, where_28);
                const auto max_40 = max_f32(where_30, where_32);
                const auto max_41 = max_f32(max_33, max_34);
                const auto max_42 = max_f32(max_35, max_36);
                const auto max_43 = max_f32(max_37, max_38);
                const auto max_44 = max_f32(max_39, max_40);
                const auto max_45 = max_f32(max_41, max_42);
                const auto max_46 = max_f32(max_43, max_44);
                const auto max_47 = max_f32(max_45, max_46);
                row_max[0] = max_f32(row_max[0], max_of_row(max_47));
                const f32 max_48 = row_max[0] * 0.125f;
                const _Bool eq_49 = (max_48 == -inf_f32);
                const auto where_50 = (eq_49 ? 0.0f : max_48);
                const bool none_51 = row_max[0] == -inff();
                const bool stays_52 = where_50 - shift[0] <= 6.0f && shift[0] - where_50 <= 6.0f || none_51;
                factor[0] = stays_52 ? 1 : short_exp(shift[0] - where_50);
                shift[0] = stays_52 ? shift[0] : where_50;
                const auto shift_53 = (none_51 ? 0.0f : shift[0]);
                const _Bool lt_54 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 0));
                const auto where_55 = (lt_54 ? -inf_f32 : inner0[2]);
                const _Bool lt_56 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 1));
                const auto where_57 = (lt_56 ? -inf_f32 : inner0[3]);
                const _Bool lt_58 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 8));
                const auto where_59 = (lt_58 ? -inf_f32 : inner0[6]);
                const _Bool lt_60 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 9));
                const auto where_61 = (lt_60 ? -inf_f32 : inner0[7]);
                const _Bool lt_62 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 16));
                const auto where_63 = (lt_62 ? -inf_f32 : inner0[10]);
                const _Bool lt_64 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 17));
                const auto where_65 = (lt_64 ? -inf_f32 : inner0[11]);
                const _Bool lt_66 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 24));
                const auto where_67 = (lt_66 ? -inf_f32 : inner0[14]);
                const _Bool lt_68 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 25));
                const auto where_69 = (lt_68 ? -inf_f32 : inner0[15]);
                const _Bool lt_70 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 32));
                const auto where_71 = (lt_70 ? -inf_f32 : inner0[18]);
                const _Bool lt_72 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 33));
                const auto where_73 = (lt_72 ? -inf_f32 : inner0[19]);
                const _Bool lt_74 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 40));
                const auto where_75 = (lt_74 ? -inf_f32 : inner0[22]);
                const _Bool lt_76 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 41));
                const auto where_77 = (lt_76 ? -inf_f32 : inner0[23]);
                const _Bool lt_78 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 48));
                const auto where_79 = (lt_78 ? -inf_f32 : inner0[26]);
                const _Bool lt_80 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 49));
                const auto where_81 = (lt_80 ? -inf_f32 : inner0[27]);
                const _Bool lt_82 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 56));
                const auto where_83 = (lt_82 ? -inf_f32 : inner0[30]);
                const _Bool lt_84 = ((i64)(128 * row_band + 128 * row_tile + 64 * row_group + 16 * row_warp + row_lane + 8) < (i64)(2 * (32 * k1_tile + k1_lane) + 57));
                const auto where_85 = (lt_84 ? -inf_f32 : inner0[31]);
                const auto max_86 = max_f32(where_55, where_57);
                const auto max_87 = max_f32(where_59, where_61);
                const auto max_88 = max_f32(where_63, where_65);
                const auto max_89 = max_f32(where_67, where_69);
                const auto max_90 = max_f32(where_71, where_73);
                const auto max_91 = max_f32(where_75, where_77);
                const auto max_92 = max_f32(where_79, where_81);
                const auto max_93 = max_f32(where_83, where_85);
                const auto max_94 = max_f32(max_86, max_87);
                const auto max_95 = max_f32(max_88, max_89);
                const auto max_96 = max_f32(max_90, max_91);
                const auto max_97 = max_f32(max_92, max_93);
                const auto max_98 = max_f32(max_94, max_95);
                const auto max_99 = max_f32(max_96, max_97);
                const auto max_100 = max_f32(max_98, max_99);
                row_max[1] = max_f32(row_max[1], max_of_row(max_100));
                const f32 max_101 = row_max[1] * 0.125f;
                const _Bool eq_102 = (max_101 == -inf_f32);
                const auto where_103 = (eq_102 ? 0.0f : max_101);
                const bool none_104 = row_max[1] == -inff();
                const bool stays_105 = where_103 - shift[1] <= 6.0f && shift[1] - where_103 <= 6.0f || none_104;
                factor[1] = stays_105 ? 1 : short_exp(shift[1] - where_103);
                shift[1] = stays_105 ? shift[1] : where_103;
                const auto shift_106 = (none_104 ? 0.0f : shift[1]);
                const auto mul_107 = (where_2 * 0.1803368777036667f);
                const auto mul_108 = (shift_53 * 1.4426950216293335f);
                const auto neg_109 = (- mul_108);
                const auto add_110 = (mul_107 + neg_109);
                const auto exp2_111 = short_exp2(add_110);
                const auto mul_112 = (where_4 * 0.1803368777036667f);
                const auto add_113 = (mul_112 + neg_109);
                const auto exp2_114 = short_exp2(add_113);
                const auto mul_115 = (where_6 * 0.1803368777036667f);
                const auto add_116 = (mul_115 + neg_109);
                const auto exp2_117 = short_exp2(add_116);
                const auto mul_118 = (where_8 * 0.1803368777036667f);
                const auto add_119 = (mul_118 + neg_109);
                const auto exp2_120 = short_exp2(add_119);
                const auto mul_121 = (where_10 * 0.1803368777036667f);
                const auto add_122 = (mul_121 + neg_109);
                const auto exp2_123 = short_exp2(add_122);
                const auto mul_124 = (where_12 * 0.1803368777036667f);
                const auto add_125 = (mul_124 + neg_109);
                const auto exp2_126 = short_exp2(add_125);
                const auto mul_127 = (where_14 * 0.1803368777036667f);
                const auto add_128 = (mul_127 + neg_109);
                const auto exp2_129 = short_exp2(add_128);
                const auto mul_130 = (where_16 * 0.1803368777036667f);
                const auto add_131 = (mul_130 + neg_109);
                const auto exp2_132 = short_exp2(add_131);
                const auto mul_133 = (where_18 * 0.1803368777036667f);
                const auto add_134 = (mul_133 + neg_109);
                const auto exp2_135 = short_exp2(add_134);
                const auto mul_136 = (where_20 * 0.1803368777036667f);
                const auto add_137 = (mul_136 + neg_109);
                const auto exp2_138 = short_exp2(add_137);
                const auto mul_139 = (where_22 * 0.1803368777036667f);
                const auto add_140 = (mul_139 + neg_109);
                const auto exp2_141 = short_exp2(add_140);
                const auto mul_142 = (where_24 * 0.1803368777036667f);
                const auto add_143 = (mul_142 + neg_109);
                const auto exp2_144 = short_exp2(add_143);
                const auto mul_145 = (where_26 * 0.1803368777036667f);
                const auto add_146 = (mul_145 + neg_109);
                const auto exp2_147 = short_exp2(add_146);
                const auto mul_148 = (where_28 * 0.1803368777036667f);
                const auto add_149 = (mul_148 + neg_109);
                const auto exp2_150 = short_exp2(add_149);
                const auto mul_151 = (where_30 * 0.1803368777036667f);
                const auto add_152 = (mul_151 + neg_109);
                const auto exp2_153 = short_exp2(add_152);
                const auto mul_154 = (where_32 * 0.1803368777036667f);
                const auto add_155 = (mul_154 + neg_109);
                const auto exp2_156 = short_exp2(add_155);
                const auto sum_157 = (exp2_111 + exp2_114);
                const auto sum_158 = (exp2_117 + exp2_120);
                const auto sum_159 = (exp2_123 + exp2_126);
                const auto sum_160 = (exp2_129 + exp2_132);
                const auto sum_161 = (exp2_135 + exp2_138);
                const auto sum_162 = (exp2_141 + exp2_144);
                const auto sum_163 = (exp2_147 + exp2_150);
                const auto sum_164 = (exp2_153 + exp2_156);
                const auto sum_165 = (sum_157 + sum_158);
                const auto sum_166 = (sum_159 + sum_160);
                const auto sum_167 = (sum_161 + sum_162);
                const auto sum_168 = (sum_163 + sum_164);
                const auto sum_169 = (sum_165 + sum_166);
                const auto sum_170 = (sum_167 + sum_168);
                const auto sum_171 = (sum_169 + sum_170);
                row_sums0[0] = row_sums0[0] * factor[0] + sum_171;
                const auto mul_172 = (where_55 * 0.1803368777036667f);
                const auto mul_173 = (shift_106 * 1.4426950216293335f);
                const auto neg_174 = (- mul_173);
                const auto add_175 = (mul_172 + neg_174);
                const auto exp2_176 = short_exp2(add_175);
                const auto mul_177 = (where_57 * 0.1803368777036667f);
                const auto add_178 = (mul_177 + neg_174);
                const auto exp2_179 = short_exp2(add_178);
                const auto mul_180 = (where_59 * 0.1803368777036667f);
                const auto add_181 = (mul_180 + neg_174);
                const auto exp2_182 = short_exp2(add_181);
                const auto mul_183 = (where_61 * 0.1803368777036667f);
                const auto add_184 = (mul_183 + neg_174);
                const auto exp2_185 = short_exp2(add_184);
                const auto mul_186 = (where_63 * 0.1803368777036667f);
                const auto add_187 = (mul_186 + neg_174);
                const auto exp2_188 = short_exp2(add_187);
                const auto mul_189 = (where_65 * 0.1803368777036667f);
                const auto add_190 = (mul_189 + neg_174);
                const auto exp2_191 = short_exp2(add_190);
                const auto mul_192 = (where_67 * 0.1803368777036667f);
                const auto add_193 = (mul_192 + neg_174);
                const auto exp2_194 = short_exp2(add_193);
                const auto mul_195 = (where_69 * 0.1803368777036667f);
                const auto add_196 = (mul_195 + neg_174);
                const auto exp2_197 = short_exp2(add_196);
                const auto mul_198 = (where_71 * 0.1803368777036667f);
                const auto add_199 = (mul_198 + neg_174);
                const auto exp2_200 = short_exp2(add_199);
                const auto mul_201 = (where_73 * 0.1803368777036667f);
                const auto add_202 = (mul_201 + neg_174);
                const auto exp2_203 = short_exp2(add_202);
                const auto mul_204 = (where_75 * 0.1803368777036667f);
                const auto add_205 = (mul_204 + neg_174);
                const auto exp2_206 = short_exp2(add_205);
                const auto mul_207 = (where_77 * 0.1803368777036667f);
                const auto add_208 = (mul_207 + neg_174);
                const auto exp2_209 = short_exp2(add_208);
                const auto mul_210 = (where_79 * 0.1803368777036667f);
                const auto add_211 = (mul_210 + neg_174);
                const auto exp2_212 = short_exp2(add_211);
                const auto mul_213 = (where_81 * 0.1803368777036667f);
                const auto add_214 = (mul_213 + neg_174);
                const auto exp2_215 = short_exp2(add_214);
                const auto mul_216 = (where_83 * 0.1803368777036667f);
                const auto add_217 = (mul_216 + neg_174);
                const auto exp2_218 = short_exp2(add_217);
                const auto mul_219 = (where_85 * 0.1803368777036667f);
                const auto add_220 = (mul_219 + neg_174);
                const auto exp2_221 = short_exp2(add_220);
                const auto sum_222 = (exp2_176 + exp2_179);
                const auto sum_223 = (exp2_182 + exp2_185);
                const auto sum_224 = (exp2_188 + exp2_191);
                const auto sum_225 = (exp2_194 + exp2_197);
                const auto sum_226 = (exp2_200 + exp2_203);
                const auto sum_227 = (exp2_206 + exp2_209);
                const auto sum_228 = (exp2_212 + exp2_215);
                const auto sum_229 = (exp2_218 + exp2_221);
                const auto sum_230 = (sum_222 + sum_223);
                const auto sum_231 = (sum_224 + sum_225);
                const auto sum_232 = (sum_226 + sum_227);
                const auto sum_233 = (sum_228 + sum_229);
                const auto sum_234 = (sum_230 + sum_231);
                const auto sum_235 = (sum_232 + sum_233);
                const auto sum_236 = (sum_234 + sum_235);
                row_sums0[1] = row_sums0[1] * factor[1] + sum_236;
                parts0[0] = exp2_111;
                parts0[1] = exp2_114;
                parts0[4] = exp2_117;
                parts0[5] = exp2_120;
                parts0[8] = exp2_123;
                parts0[9] = exp2_126;
                parts0[12] = exp2_129;
                parts0[13] = exp2_132;
                parts0[16] = exp2_135;
                parts0[17] = exp2_138;
                parts0[20] = exp2_141;
                parts0[21] = exp2_144;
                parts0[24] = exp2_147;
                parts0[25] = exp2_150;
                parts0[28] = exp2_153;
                parts0[29] = exp2_156;
                parts0[2] = exp2_176;
                parts0[3] = exp2_179;
                parts0[6] = exp2_182;
                parts0[7] = exp2_185;
                parts0[10] = exp2_188;
                parts0[11] = exp2_191;
                parts0[14] = exp2_194;
                parts0[15] = exp2_197;
                parts0[18] = exp2_200;
                parts0[19] = exp2_203;
                parts0[22] = exp2_206;
                parts0[23] = exp2_209;
                parts0[26] = exp2_212;
                parts0[27] = exp2_215;
                parts0[30] = exp2_218;
                parts0[31] = exp2_221;
            }
            else {
                ready();
                const auto where_237 = ((_Bool)0 ? -inf_f32 : inner0[0]);
                const auto where_238 = ((_Bool)0 ? -inf_f32 : inner0[1]);
                const auto where_239 = ((_Bool)0 ? -inf_f32 : inner0[4]);
                const auto where_240 = ((_Bool)0 ? -inf_f32 : inner0[5]);
                const auto where_241 = ((_Bool)0 ? -inf_f32 : inner0[8]);
                const auto where_242 = ((_Bool)0 ? -inf_f32 : inner0[9]);
                const auto where_243 = ((_Bool)0 ? -inf_f32 : inner0[12]);
                const auto where_244 = ((_Bool)0 ? -inf_f32 : inner0[13]);
                const auto where_245 = ((_Bool)0 ? -inf_f32 : inner0[16]);
                const auto where_246 = ((_Bool)0 ? -inf_f32 : inner0[17]);
                const auto where_247 = ((_Bool)0 ? -inf_f32 : inner0[20]);
                const auto where_248 = ((_Bool)0 ? -inf_f32 : inner0[21]);
                const auto where_249 = ((_Bool)0 ? -inf_f32 : inner0[24]);
                const auto where_250 = ((_Bool)0 ? -inf_f32 : inner0[25]);
                const auto where_251 = ((_Bool)0 ? -inf_f32 : inner0[28]);
                const auto where_252 = ((_Bool)0 ? -inf_f32 : inner0[29]);
                const auto max_253 = max_f32(where_237, where_238);
                const auto max_254 = max_f32(where_239, where_240);
                const auto max_255 = max_f32(where_241, where_242);
                const auto max_256 = max_f32(where_243, where_244);
                const auto max_257 = max_f32(where_245, where_246);
                const auto max_258 = max_f32(where_247, where_248);
                const auto max_259 = max_f32(where_249, where_250);
                const auto max_260 = max_f32(where_251, where_252);
                const auto max_261 = max_f32(max_253, max_254);
                const auto max_262 = max_f32(max_255, max_256);
                const auto max_263 = max_f32(max_257, max_258);
                const auto max_264 = max_f32(max_259, max_260);
                const auto max_265 = max_f32(max_261, max_262);
                const auto max_266 = max_f32(max_263, max_264);
                const auto max_267 = max_f32(max_265, max_266);
                row_max[0] = max_f32(row_max[0], max_of_row(max_267));
                const f32 max_268 = row_max[0] * 0.125f;
                const _Bool eq_269 = (max_268 == -inf_f32);
                const auto where_270 = (eq_269 ? 0.0f : max_268);
                const bool none_271 = row_max[0] == -inff();
                const bool stays_272 = where_270 - shift[0] <= 6.0f && shift[0] - where_270 <= 6.0f || none_271;
                factor[0] = stays_272 ? 1 : short_exp(shift[0] - where_270);
                shift[0] = stays_272 ? shift[0] : where_270;
                const auto shift_273 = (none_271 ? 0.0f : shift[0]);
                const auto where_274 = ((_Bool)0 ? -inf_f32 : inner0[2]);
                const auto where_275 = ((_Bool)0 ? -inf_f32 : inner0[3]);
                const auto where_276 = ((_Bool)0 ? -inf_f32 : inner0[6]);
                const auto where_277 = ((_Bool)0 ? -inf_f32 : inner0[7]);
                const auto where_278 = ((_Bool)0 ? -inf_f32 : inner0[10]);
                const auto where_279 = ((_Bool)0 ? -inf_f32 : inner0[11]);
                const auto where_280 = ((_Bool)0 ? -inf_f32 : inner0[14]);
                const auto where_281 = ((_Bool)0 ? -inf_f32 : inner0[15]);
                const auto where_282 = ((_Bool)0 ? -inf_f32 : inner0[18]);
                const auto where_283 = ((_Bool)0 ? -inf_f32 : inner0[19]);
                const auto where_284 = ((_Bool)0 ? -inf_f32 : inner0[22]);
                const auto where_285 = ((_Bool)0 ? -inf_f32 : inner0[23]);
                const auto where_286 = ((_Bool)0 ? -inf_f32 : inner0[26]);
                const auto where_287 = ((_Bool)0 ? -inf_f32 : inner0[27]);
                const auto where_288 = ((_Bool)0 ? -inf_f32 : inner0[30]);
                const auto where_289 = ((_Bool)0 ? -inf_f32 : inner0[31]);
                const auto max_290 = max_f32(where_274, where_275);
                const auto max_291 = max_f32(where_276, where_277);
                const auto max_292 = max_f32(where_278, where_279);
                const auto max_293 = max_f32(where_280, where_281);
                const auto max_294 = max_f32(where_282, where_283);
                const auto max_295 = max_f32(where_284, where_285);
                const auto max_296 = max_f32(where_286, where_287);
                const auto max_297 = max_f32(where_288, where_289);
                const auto max_298 = max_f32(max_290, max_291);
                const auto max_299 = max_f32(max_292, max_293);
                const auto max_300 = max_f32(max_294, max_295);
                const auto max_301 = max_f32(max_296, max_297);
                const auto max_302 = max_f32(max_298, max_299);
                const auto max_303 = max_f32(max_300, max_301);
                const auto max_304 = max_f32(max_302, max_303);
                row_max[1] = max_f32(row_max[1], max_of_row(max_304));
                const f32 max_305 = row_max[1] * 0.125f;
                const _Bool eq_306 = (max_305 == -inf_f32);
                const auto where_307 = (eq_306 ? 0.0f : max_305);
                const bool none_308 = row_max[1] == -inff();
                const bool stays_309 = where_307 - shift[1] <= 6.0f && shift[1] - where_307 <= 6.0f || none_308;
                factor[1] = stays_309 ? 1 : short_exp(shift[1] - where_307);
                shift[1] = stays_309 ? shift[1] : where_307;
                const auto shift_310 = (none_308 ? 0.0f : shift[1]);
                const auto mul_311 = (where_237 * 0.1803368777036667f);
                const auto mul_312 = (shift_273 * 1.4426950216293335f);
                const auto neg_313 = (- mul_312);
                const auto add_314 = (mul_311 + neg_313);
                const auto exp2_315 = short_exp2(add_314);
                const auto mul_316 = (where_238 * 0.1803368777036667f);
                const auto add_317 = (mul_316 + neg_313);
                const auto exp2_318 = short_exp2(add_317);
                const auto mul_319 = (where_239 * 0.1803368777036667f);
                const auto add_320 = (mul_319 + neg_313);
                const auto exp2_321 = short_exp2(add_320);
                const auto mul_322 = (where_240 * 0.1803368777036667f);
                const auto add_323 = (mul_322 + neg_313);
                const auto exp2_324 = short_exp2(add_323);
                const auto mul_325 = (where_241 * 0.1803368777036667f);
                const auto add_326 = (mul_325 + neg_313);
                const auto exp2_327 = short_exp2(add_326);
                const auto mul_328 = (where_242 * 0.1803368777036667f);
                const auto add_329 = (mul_328 + neg_313);
                const auto exp2_330 = short_exp2(add_329);
                const auto mul_331 = (where_243 * 0.1803368777036667f);
                const auto add_332 = (mul_331 + neg_313);
                const auto exp2_333 = short_exp2(add_332);
                const auto mul_334 = (where_244 * 0.1803368777036667f);
                const auto add_335 = (mul_334 + neg_313);
                const auto exp2_336 = short_exp2(add_335);
                const auto mul_337 = (where_245 * 0.1803368777036667f);
                const auto add_338 = (mul_337 + neg_313);
                const auto exp2_339 = short_exp2(add_338);
                const auto mul_340 = (where_246 * 0.1803368777036667f);
                const auto add_341 = (mul_340 + neg_313);
                const auto exp2_342 = short_exp2(add_341);
                const auto mul_343 = (where_247 * 0.1803368777036667f);
                const auto add_344 = (mul_343 + neg_313);
                const auto exp2_345 = short_exp2(add_344);
                const auto mul_346 = (where_248 * 0.1803368777036667f);
                const auto add_347 = (mul_346 + neg_313);
                const auto exp2_348 = short_exp2(add_347);
                const auto mul_349 = (where_249 * 0.1803368777036667f);
                const auto add_350 = (mul_349 + neg_313);
                const auto exp2_351 = short_exp2(add_350);
                const auto mul_352 = (where_250 * 0.1803368777036667f);
                const auto add_353 = (mul_352 + neg_313);
                const auto exp2_354 = short_exp2(add_353);
                const auto mul_355 = (where_251 * 0.1803368777036667f);
                const auto add_356 = (mul_355 + neg_313);
                const auto exp2_357 = short_exp2(add_356);
                const auto mul_358 = (where_252 * 0.1803368777036667f);
                const auto add_359 = (mul_358 + neg_313);
                const auto exp2_360 = short_exp2(add_359);
                const auto sum_361 = (exp2_315 + exp2_318);
                const auto sum_362 = (exp2_321 + exp2_324);
                const auto sum_363 = (exp2_327 + exp2_330);
                const auto sum_364 = (exp2_333 + exp2_336);
                const auto sum_365 = (exp2_339 + exp2_342);
                const auto sum_366 = (exp2_345 + exp2_348);
                const auto sum_367 = (exp2_351 + exp2_354);
                const auto sum_368 = (exp2_357 + exp2_360);
                const auto sum_369 = (sum_361 + sum_362);
                const auto sum_370 = (sum_363 + sum_364);
                const auto sum_371 = (sum_365 + sum_366);
                const auto sum_372 = (sum_367 + sum_368);
                const auto sum_373 = (sum_369 + sum_370);
                const auto sum_374 = (sum_371 + sum_372);
                const auto sum_375 = (sum_373 + sum_374);
                row_sums0[0] = row_sums0[0] * factor[0] + sum_375;
                const auto mul_376 = (where_274 * 0.1803368777036667f);
                const auto mul_377 = (shift_310 * 1.4426950216293335f);
                const auto neg_378 = (- mul_377);
                const auto add_379 = (mul_376 + neg_378);
                const auto exp2_380 = short_exp2(add_379);
                const auto mul_381 = (where_275 * 0.1803368777036667f);
                const auto add_382 = (mul_381 + neg_378);
                const auto exp2_383 = short_exp2(add_382);
                const auto mul_384 = (where_276 * 0.1803368777036667f);
                const auto add_385 = (mul_384 + neg_378);
                const auto exp2_386 = short_exp2(add_385);
                const auto mul_387 = (where_277 * 0.1803368777036667f);
                const auto add_388 = (mul_387 + neg_378);
                const auto exp2_389 = short_exp2(add_388);
                const auto mul_390 = (where_278 * 0.1803368777036667f);
                const auto add_391 = (mul_390 + neg_378);
                const auto exp2_392 = short_exp2(add_391);
                const auto mul_393 = (where_279 * 0.1803368777036667f);
                const auto add_394 = (mul_393 + neg_378);
                const auto exp2_395 = short_exp2(add_394);
                const auto mul_396 = (where_280 * 0.1803368777036667f);
                const auto add_397 = (mul_396 + neg_378);
                const auto exp2_398 = short_exp2(add_397);
                const auto mul_399 = (where_281 * 0.1803368777036667f);
                const auto add_400 = (mul_399 + neg_378);
                const auto exp2_401 = short_exp2(add_400);
                const auto mul_402 = (where_282 * 0.1803368777036667f);
                const auto add_403 = (mul_402 + neg_378);
                const auto exp2_404 = short_exp2(add_403);
                const auto mul_405 = (where_283 * 0.1803368777036667f);
                const auto add_406 = (mul_405 + neg_378);
                const auto exp2_407 = short_exp2(add_406);
                const auto mul_408 = (where_284 * 0.1803368777036667f);
                const auto add_409 = (mul_408 + neg_378);
                const auto exp2_410 = short_exp2(add_409);
                const auto mul_411 = (where_285 * 0.1803368777036667f);
                const auto add_412 = (mul_411 + neg_378);
                const auto exp2_413 = short_exp2(add_412);
                const auto mul_414 = (where_286 * 0.1803368777036667f);
                const auto add_415 = (mul_414 + neg_378);
                const auto exp2_416 = short_exp2(add_415);
                const auto mul_417 = (where_287 * 0.1803368777036667f);
                const auto add_418 = (mul_417 + neg_378);
                const auto exp2_419 = short_exp2(add_418);
                const auto mul_420 = (where_288 * 0.1803368777036667f);
                const auto add_421 = (mul_420 + neg_378);
                const auto exp2_422 = short_exp2(add_421);
                const auto mul_423 = (where_289 * 0.1803368777036667f);
                const auto add_424 = (mul_423 + neg_378);
                const auto exp2_425 = short_exp2(add_424);
                const auto sum_426 = (exp2_380 + exp2_383);
                const auto sum_427 = (exp2_386 + exp2_389);
                const auto sum_428 = (exp2_392 + exp2_395);
                const auto sum_429 = (exp2_398 + exp2_401);
                const auto sum_430 = (exp2_404 + exp2_407);
                const auto sum_431 = (exp2_410 + exp2_413);
                const auto sum_432 = (exp2_416 + exp2_419);
                const auto sum_433 = (exp2_422 + exp2_425);
                const auto sum_434 = (sum_426 + sum_427);
                const auto sum_435 = (sum_428 + sum_429);
                const auto sum_436 = (sum_430 + sum_431);
                const auto sum_437 = (sum_432 + sum_433);
                const auto sum_438 = (sum_434 + sum_435);
                const auto sum_439 = (sum_436 + sum_437);
                const auto sum_440 = (sum_438 + sum_439);
                row_sums0[1] = row_sums0[1] * factor[1] + sum_440;
                parts0[0] = exp2_315;
                parts0[1] = exp2_318;
                parts0[4] = exp2_321;
                parts0[5] = exp2_324;
                parts0[8] = exp2_327;
                parts0[9] = exp2_330;
                parts0[12] = exp2_333;
                parts0[13] = exp2_336;
                parts0[16] = exp2_339;
                parts0[17] = exp2_342;
                parts0[20] = exp2_345;
                parts0[21] = exp2_348;
                parts0[24] = exp2_351;
                parts0[25] = exp2_354;
                parts0[28] = exp2_357;
                parts0[29] = exp2_360;
                parts0[2] = exp2_380;
                parts0[3] = exp2_383;
                parts0[6] = exp2_386;
                parts0[7] = exp2_389;
                parts0[10] = exp2_392;
                parts0[11] = exp2_395;
                parts0[14] = exp2_398;
                parts0[15] = exp2_401;
                parts0[18] = exp2_404;
                parts0[19] = exp2_407;
                parts0[22] = exp2_410;
                parts0[23] = exp2_413;
                parts0[26] = exp2_416;
                parts0[27] = exp2_419;
                parts0[30] = exp2_422;
                parts0[31] = exp2_425;
            }
        };
        const u32 before = done - first;
        done += stop - first;
        UNROLLED for (f32 &x : totals0) x = 0;
        UNROLLED for (f32 &x : row_sums0) x = 0;
        UNROLLED for (f32 &x : row_max) x = -inff();
        UNROLLED for (f32 &x : shift) x = -inff();
        UNROLLED for (f32 &x : factor) x = 1;
        while (!phase_has_ended(full_rows + taken % 2, taken / 2 & 1)) {}
        NOT_UNROLLED for (u32 number = before + first; number < before + from; number++) {
            const i32 k1_tile = number - before;
            while (!phase_has_ended(full_tile1 + number % 8, number / 8 & 1)) {}
            while (!phase_has_ended(full_tile2 + number % 8, number / 8 & 1)) {}
            if (THREAD % 32 == 0) arrive(empty_tile1 + number % 8);
            if (THREAD % 32 == 0) arrive(empty_tile2 + number % 8);
        }
        {
            const u32 number = before + from;
            const i32 k1_tile = number - before;
            while (!phase_has_ended(full_tile1 + number % 8, number / 8 & 1)) {}
            wgmma_fence();
            {
                const u32 columns = (tile1 + 8192 * (number % 8)) / 16 + (512 << 16);
                const u32 rows = (tile0 + 16384 * (taken % 2) + 8192 * group) / 16 + (1024 << 16);
                wgmma_bf16<0, 0>(inner0, descriptor_of(rows + 0), descriptor_of(columns + 0), false);
                wgmma_bf16<0, 0>(inner0, descriptor_of(rows + 2), descriptor_of(columns + 2), true);
                wgmma_bf16<0, 0>(inner0, descriptor_of(rows + 4), descriptor_of(columns + 4), true);
                wgmma_bf16<0, 0>(inner0, descriptor_of(rows + 6), descriptor_of(columns + 6), true);
            }
            wgmma_commit();
            elements(k1_tile, [&]() INLINED {
                wgmma_wait<0>();
                UNROLLED for (f32 &x : inner0) hold(x);
                if (THREAD % 32 == 0) arrive(empty_tile1 + number % 8);
            });
            if (__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) {
                UNROLLED for (int i = 0; i < 32; i++) totals0[i] *= factor[i / 2 % 2];
            }
            UNROLLED for (int i = 0; i < 16; i++) left0[i] = pack_bf16(parts0[2 * i], parts0[2 * i + 1]);
        }
        NOT_UNROLLED for (u32 number = before + from + 1; number < before + to; number++) {
            const i32 k1_tile = number - before;
            while (!phase_has_ended(full_tile1 + number % 8, number / 8 & 1)) {}
            wgmma_fence();
            {
                const u32 columns = (tile1 + 8192 * (number % 8)) / 16 + (512 << 16);
                const u32 rows = (tile0 + 16384 * (taken % 2) + 8192 * group) / 16 + (1024 << 16);
                wgmma_bf16<0, 0>(inner0, descriptor_of(rows + 0), descriptor_of(columns + 0), false);
                wgmma_bf16<0, 0>(inner0, descriptor_of(rows + 2), descriptor_of(columns + 2), true);
                wgmma_bf16<0, 0>(inner0, descriptor_of(rows + 4), descriptor_of(columns + 4), true);
                wgmma_bf16<0, 0>(inner0, descriptor_of(rows + 6), descriptor_of(columns + 6), true);
            }
            wgmma_commit();
            while (!phase_has_ended(full_tile2 + (number - 1) % 8, (number - 1) / 8 & 1)) {}
            wgmma_fence();
            {
                const u32 columns = (tile2 + 8192 * ((number - 1) % 8)) / 16 + (512 << 16);
                wgmma_of_registers_bf16<1>(totals0, left0 + 0, descriptor_of(columns + 0));
                wgmma_of_registers_bf16<1>(totals0, left0 + 4, descriptor_of(columns + 128));
                wgmma_of_registers_bf16<1>(totals0, left0 + 8, descriptor_of(columns + 256));
                wgmma_of_registers_bf16<1>(totals0, left0 + 12, descriptor_of(columns + 384));
            }
            wgmma_commit();
            elements(k1_tile, [&]() INLINED {
                wgmma_wait<1>();
                UNROLLED for (f32 &x : inner0) hold(x);
                if (THREAD % 32 == 0) arrive(empty_tile1 + number % 8);
            });
            UNROLLED for (f32 &x : parts0) hold(x);
            while (!phase_has_ended(full_tile2 + number % 8, number / 8 & 1)) {}
            wgmma_wait<0>();
            UNROLLED for (f32 &x : totals0) hold(x);
            if (THREAD % 32 == 0) arrive(empty_tile2 + (number - 1) % 8);
            if (__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) {
                UNROLLED for (int i = 0; i < 32; i++) totals0[i] *= factor[i / 2 % 2];
            }
            UNROLLED for (int i = 0; i < 16; i++) left0[i] = pack_bf16(parts0[2 * i], parts0[2 * i + 1]);
        }
        WARP_BARRIER;  // after which all lanes have read the ticket
        if (THREAD % 32 == 0) arrive(empty_rows + taken % 2);
        {
            const u32 number = before + to - 1;
            const i32 k1_tile = number - before;
            while (!phase_has_ended(full_tile2 + number % 8, number / 8 & 1)) {}
            wgmma_fence();
            {
                const u32 columns = (tile2 + 8192 * (number % 8)) / 16 + (512 << 16);
                wgmma_of_registers_bf16<1>(totals0, left0 + 0, descriptor_of(columns + 0));
                wgmma_of_registers_bf16<1>(totals0, left0 + 4, descriptor_of(columns + 128));
                wgmma_of_registers_bf16<1>(totals0, left0 + 8, descriptor_of(columns + 256));
                wgmma_of_registers_bf16<1>(totals0, left0 + 12, descriptor_of(columns + 384));
            }
            wgmma_commit();
            wgmma_wait<0>();
            UNROLLED for (f32 &x : totals0) hold(x);
            if (THREAD % 32 == 0) arrive(empty_tile2 + number % 8);
        }
        NOT_UNROLLED for (u32 number = before + to; number < before + stop; number++) {
            const i32 k1_tile = number - before;
            while (!phase_has_ended(full_tile1 + number % 8, number / 8 & 1)) {}
            while (!phase_has_ended(full_tile2 + number % 8, number / 8 & 1)) {}
            if (THREAD % 32 == 0) arrive(empty_tile1 + number % 8);
            if (THREAD % 32 == 0) arrive(empty_tile2 + number % 8);
        }
        const f32 max_441 = row_max[0] * 0.125f;
        const _Bool eq_442 = (max_441 == -inf_f32);
        const auto where_443 = (eq_442 ? 0.0f : max_441);
        factor[0] = short_exp(shift[0] - where_443);
        const f32 max_444 = row_max[1] * 0.125f;
        const _Bool eq_445 = (max_444 == -inf_f32);
        const auto where_446 = (eq_445 ? 0.0f : max_444);
        factor[1] = short_exp(shift[1] - where_446);
        UNROLLED for (int i = 0; i < 32; i++) totals0[i] *= factor[i / 2 % 2];
        row_sums0[0] = sum_of_row(row_sums0[0] * factor[0]);
        row_sums0[1] = sum_of_row(row_sums0[1] * factor[1]);
        const _Bool eq_447 = (row_sums0[0] == 0.0f);
        const auto where_448 = (eq_447 ? 1.0f : row_sums0[0]);
        const auto div_449 = (totals0[0] * (1.0f / where_448));
        const auto cast_450 = f32_to_bf16(div_449);
        const auto div_451 = (totals0[1] * (1.0f / where_448));
        const auto cast_452 = f32_to_bf16(div_451);
        const _Bool eq_453 = (row_sums0[1] == 0.0f);
        const auto where_454 = (eq_453 ? 1.0f : row_sums0[1]);
        const auto div_455 = (totals0[2] * (1.0f / where_454));
        const auto cast_456 = f32_to_bf16(div_455);
        const auto div_457 = (totals0[3] * (1.0f / where_454));
        const auto cast_458 = f32_to_bf16(div_457);
        const auto div_459 = (totals0[4] * (1.0f / where_448));
        const auto cast_460 = f32_to_bf16(div_459);
        const auto div_461 = (totals0[5] * (1.0f / where_448));
        const auto cast_462 = f32_to_bf16(div_461);
        const auto div_463 = (totals0[6] * (1.0f / where_454));
        const auto cast_464 = f32_to_bf16(div_463);
        const auto div_465 = (totals0[7] * (1.0f / where_454));
        const auto cast_466 = f32_to_bf16(div_465);
        const auto div_467 = (totals0[8] * (1.0f / where_448));
        const auto cast_468 = f32_to_bf16(div_467);
        const auto div_469 = (totals0[9] * (1.0f / where_448));
        const auto cast_470 = f32_to_bf16(div_469);
        const auto div_471 = (totals0[10] * (1.0f / where_454));
        const auto cast_472 = f32_to_bf16(div_471);
        const auto div_473 = (totals0[11] * (1.0f / where_454));
        const auto cast_474 = f32_to_bf16(div_473);
        const auto div_475 = (totals0[12] * (1.0f / where_448));
        const auto cast_476 = f32_to_bf16(div_475);
        const auto div_477 = (totals0[13] * (1.0f / where_448));
        const auto cast_478 = f32_to_bf16(div_477);
        const auto div_479 = (totals0[14] * (1.0f / where_454));
        const auto cast_480 = f32_to_bf16(div_479);
        const auto div_481 = (totals0[15] * (1.0f / where_454));
        const auto cast_482 = f32_to_bf16(div_481);
        const auto div_483 = (totals0[16] * (1.0f / where_448));
        const auto cast_484 = f32_to_bf16(div_483);
        const auto div_485 = (totals0[17] * (1.0f / where_448));
        const auto cast_486 = f32_to_bf16(div_485);
        const auto div_487 = (totals0[18] * (1.0f / where_454));
        const auto cast_488 = f32_to_bf16(div_487);
        const auto div_489 = (totals0[19] * (1.0f / where_454));
        const auto cast_490 = f32_to_bf16(div_489);
        const auto div_491 = (totals0[20] * (1.0f / where_448));
        const auto cast_492 = f32_to_bf16(div_491);
        const auto div_493 = (totals0[21] * (1.0f / where_448));
        const auto cast_494 = f32_to_bf16(div_493);
        const auto div_495 = (totals0[22] * (1.0f / where_454));
        const auto cast_496 = f32_to_bf16(div_495);
        const auto div_497 = (totals0[23] * (1.0f / where_454));
        const auto cast_498 = f32_to_bf16(div_497);
        const auto div_499 = (totals0[24] * (1.0f / where_448));
        const auto cast_500 = f32_to_bf16(div_499);
        const auto div_501 = (totals0[25] * (1.0f / where_448));
        const auto cast_502 = f32_to_bf16(div_501);
        const auto div_503 = (totals0[26] * (1.0f / where_454));
        const auto cast_504 = f32_to_bf16(div_503);
        const auto div_505 = (totals0[27] * (1.0f / where_454));
        const auto cast_506 = f32_to_bf16(div_505);
        const auto div_507 = (totals0[28] * (1.0f / where_448));
        const auto cast_508 = f32_to_bf16(div_507);
        const auto div_509 = (totals0[29] * (1.0f / where_448));
        const auto cast_510 = f32_to_bf16(div_509);
        const auto div_511 = (totals0[30] * (1.0f / where_454));
        const auto cast_512 = f32_to_bf16(div_511);
        const auto div_513 = (totals0[31] * (1.0f / where_454));
        const auto cast_514 = f32_to_bf16(div_513);
        store_matrices(lines0 + (THREAD % 16) * 128 + (0 + THREAD % 32 / 16 * 16 ^ (THREAD % 16) % 8 << 4), (u16)cast_450, (u16)cast_452, (u16)cast_456, (u16)cast_458, (u16)cast_460, (u16)cast_462, (u16)cast_464, (u16)cast_466);
        store_matrices(lines0 + (THREAD % 16) * 128 + (32 + THREAD % 32 / 16 * 16 ^ (THREAD % 16) % 8 << 4), (u16)cast_468, (u16)cast_470, (u16)cast_472, (u16)cast_474, (u16)cast_476, (u16)cast_478, (u16)cast_480, (u16)cast_482);
        store_matrices(lines0 + (THREAD % 16) * 128 + (64 + THREAD % 32 / 16 * 16 ^ (THREAD % 16) % 8 << 4), (u16)cast_484, (u16)cast_486, (u16)cast_488, (u16)cast_490, (u16)cast_492, (u16)cast_494, (u16)cast_496, (u16)cast_498);
        store_matrices(lines0 + (THREAD % 16) * 128 + (96 + THREAD % 32 / 16 * 16 ^ (THREAD % 16) % 8 << 4), (u16)cast_500, (u16)cast_502, (u16)cast_504, (u16)cast_506, (u16)cast_508, (u16)cast_510, (u16)cast_512, (u16)cast_514);
        write_rows0(p3 + 64 * (256 * batch + 128 * row_band + 128 * row_tile + column_band + column_tile) + 0, 256 - (128 * (row_band + row_tile) + 0), 64 - (0), 0);
    }
}