/*
reduce0_512x512:
tensorize(mma_bf16_64x64)
order(whole, 64)
depth(12)
roles(producer)
overlap(0)

reduce0_512x512<<<64, 256>>>
*/

/* v1 = bf16(sum_k f32(p0[row, k]) * f32(p1[k, column])) + p2[column]
   p3[row, column] = (0 if v1 < 0 else (0 if v1 == 0 else v1)) */
KERNEL(256) reduce0_512x512(POINTER(const u16, 0), POINTER(const u16, 1), POINTER(const u16, 2), POINTER(u16, 3), MAP(left_map), MAP(right_map) PLACE) {
    ALIGNED(const u16, 0, 524288, 524288);
    ALIGNED(const u16, 1, 524288, 524288);
    ALIGNED(const u16, 2, 1024, 524288);
    ALIGNED(u16, 3, 524288, 524288);
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
            NOT_UNROLLED for (u32 step = 0; step < 8; step++) {
                const i64 k = 64 * (step % 8);
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
        const u16 load_1 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 0];
        const u16 load_2 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 1];
        const u16 load_3 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 8];
        const u16 load_4 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 9];
        const u16 load_5 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 16];
        const u16 load_6 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 17];
        const u16 load_7 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 24];
        const u16 load_8 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 25];
        const u16 load_9 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 32];
        const u16 load_10 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 33];
        const u16 load_11 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 40];
        const u16 load_12 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 41];
        const u16 load_13 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 48];
        const u16 load_14 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 49];
        const u16 load_15 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 56];
        const u16 load_16 = p2[2 * (32 * column_band + 32 * column_tile + column_lane) + 57];
        for (u32 step = 0; step < 8; step++) {
            while (!phase_has_ended(full + slot, parity)) {}
            const u32 rows = (left + 8192 * slot) / 16, columns = (right + 8192 * slot) / 16;
            wgmma_fence();
            wgmma_bf16<0, 1>(sums, descriptor(rows + 0), descriptor(columns + 0), step > 0);
            wgmma_bf16<0, 1>(sums, descriptor(rows + 2), descriptor(columns + 128), true);
            wgmma_bf16<0, 1>(sums, descriptor(rows + 4), descriptor(columns + 256), true);
            wgmma_bf16<0, 1>(sums, descriptor(rows + 6), descriptor(columns + 384), true);
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
        const auto cast_17 = f32_to_bf16(sums[0]);
        const auto cast_18 = bf16_to_f32(cast_17);
        const auto cast_19 = bf16_to_f32(load_1);
        const auto add_20 = (cast_18 + cast_19);
        const auto cast_21 = f32_to_bf16(add_20);
        const auto cast_22 = bf16_to_f32(cast_21);
        const _Bool lt_23 = (cast_22 < 0.0f);
        const _Bool eq_24 = (cast_22 == 0.0f);
        const auto where_25 = (eq_24 ? (u16)0 : cast_21);
        const auto where_26 = (lt_23 ? (u16)0 : where_25);
        const auto cast_27 = f32_to_bf16(sums[1]);
        const auto cast_28 = bf16_to_f32(cast_27);
        const auto cast_29 = bf16_to_f32(load_2);
        const auto add_30 = (cast_28 + cast_29);
        const auto cast_31 = f32_to_bf16(add_30);
        const auto cast_32 = bf16_to_f32(cast_31);
        const _Bool lt_33 = (cast_32 < 0.0f);
        const _Bool eq_34 = (cast_32 == 0.0f);
        const auto where_35 = (eq_34 ? (u16)0 : cast_31);
        const auto where_36 = (lt_33 ? (u16)0 : where_35);
        const auto cast_37 = f32_to_bf16(sums[2]);
        const auto cast_38 = bf16_to_f32(cast_37);
        const auto add_39 = (cast_38 + cast_19);
        const auto cast_40 = f32_to_bf16(add_39);
        const auto cast_41 = bf16_to_f32(cast_40);
        const _Bool lt_42 = (cast_41 < 0.0f);
        const _Bool eq_43 = (cast_41 == 0.0f);
        const auto where_44 = (eq_43 ? (u16)0 : cast_40);
        const auto where_45 = (lt_42 ? (u16)0 : where_44);
        const auto cast_46 = f32_to_bf16(sums[3]);
        const auto cast_47 = bf16_to_f32(cast_46);
        const auto add_48 = (cast_47 + cast_29);
        const auto cast_49 = f32_to_bf16(add_48);
        const auto cast_50 = bf16_to_f32(cast_49);
        const _Bool lt_51 = (cast_50 < 0.0f);
        const _Bool eq_52 = (cast_50 == 0.0f);
        const auto where_53 = (eq_52 ? (u16)0 : cast_49);
        const auto where_54 = (lt_51 ? (u16)0 : where_53);
        const auto cast_55 = f32_to_bf16(sums[4]);
        const auto cast_56 = bf16_to_f32(cast_55);
        const auto cast_57 = bf16_to_f32(load_3);
        const auto add_58 = (cast_56 + cast_57);
        const auto cast_59 = f32_to_bf16(add_58);
        const auto cast_60 = bf16_to_f32(cast_59);
        const _Bool lt_61 = (cast_60 < 0.0f);
        const _Bool eq_62 = (cast_60 == 0.0f);
        const auto where_63 = (eq_62 ? (u16)0 : cast_59);
        const auto where_64 = (lt_61 ? (u16)0 : where_63);
        const auto cast_65 = f32_to_bf16(sums[5]);
        const auto cast_66 = bf16_to_f32(cast_65);
        const auto cast_67 = bf16_to_f32(load_4);
        const auto add_68 = (cast_66 + cast_67);
        const auto cast_69 = f32_to_bf16(add_68);
        const auto cast_70 = bf16_to_f32(cast_69);
        const _Bool lt_71 = (cast_70 < 0.0f);
        const _Bool eq_72 = (cast_70 == 0.0f);
        const auto where_73 = (eq_72 ? (u16)0 : cast_69);
        const auto where_74 = (lt_71 ? (u16)0 : where_73);
        const auto cast_75 = f32_to_bf16(sums[6]);
        const auto cast_76 = bf16_to_f32(cast_75);
        const auto add_77 = (cast_76 + cast_57);
        const auto cast_78 = f32_to_bf16(add_77);
        const auto cast_79 = bf16_to_f32(cast_78);
        const _Bool lt_80 = (cast_79 < 0.0f);
        const _Bool eq_81 = (cast_79 == 0.0f);
        const auto where_82 = (eq_81 ? (u16)0 : cast_78);
        const auto where_83 = (lt_80 ? (u16)0 : where_82);
        const auto cast_84 = f32_to_bf16(sums[7]);
        const auto cast_85 = bf16_to_f32(cast_84);
        const auto add_86 = (cast_85 + cast_67);
        const auto cast_87 = f32_to_bf16(add_86);
        const auto cast_88 = bf16_to_f32(cast_87);
        const _Bool lt_89 = (cast_88 < 0.0f);
        const _Bool eq_90 = (cast_88 == 0.0f);
        const auto where_91 = (eq_90 ? (u16)0 : cast_87);
        const auto where_92 = (lt_89 ? (u16)0 : where_91);
        store_matrices(lines0 + (THREAD % 16) * 128 + (0 + THREAD % 32 / 16 * 16 ^ (THREAD % 16) % 8 << 4), (u16)where_26, (u16)where_36, (u16)where_45, (u16)where_54, (u16)where_64, (u16)where_74, (u16)where_83, (u16)where_92);
        const auto cast_93 = f32_to_bf16(sums[8]);
        const auto cast_94 = bf16_to_f32(cast_93);
        const auto cast_95 = bf16_to_f32(load_5);
        const auto add_96 = (cast_94 + cast_95);
        const auto cast_97 = f32_to_bf16(add_96);
        const auto cast_98 = bf16_to_f32(cast_97);
        const _Bool lt_99 = (cast_98 < 0.0f);
        const _Bool eq_100 = (cast_98 == 0.0f);
        const auto where_101 = (eq_100 ? (u16)0 : cast_97);
        const auto where_102 = (lt_99 ? (u16)0 : where_101);
        const auto cast_103 = f32_to_bf16(sums[9]);
        const auto cast_104 = bf16_to_f32(cast_103);
        const auto cast_105 = bf16_to_f32(load_6);
        const auto add_106 = (cast_104 + cast_105);
        const auto cast_107 = f32_to_bf16(add_106);
        const auto cast_108 = bf16_to_f32(cast_107);
        const _Bool lt_109 = (cast_108 < 0.0f);
        const _Bool eq_110 = (cast_108 == 0.0f);
        const auto where_111 = (eq_110 ? (u16)0 : cast_107);
        const auto where_112 = (lt_109 ? (u16)0 : where_111);
        const auto cast_113 = f32_to_bf16(sums[10]);
        const auto cast_114 = bf16_to_f32(cast_113);
        const auto add_115 = (cast_114 + cast_95);
        const auto cast_116 = f32_to_bf16(add_115);
        const auto cast_117 = bf16_to_f32(cast_116);
        const _Bool lt_118 = (cast_117 < 0.0f);
        const _Bool eq_119 = (cast_117 == 0.0f);
        const auto where_120 = (eq_119 ? (u16)0 : cast_116);
        const auto where_121 = (lt_118 ? (u16)0 : where_120);
        const auto cast_122 = f32_to_bf16(sums[11]);
        const auto cast_123 = bf16_to_f32(cast_122);
        const auto add_124 = (cast_123 + cast_105);
        const auto cast_125 = f32_to_bf16(add_124);
        const auto cast_126 = bf16_to_f32(cast_125);
        const _Bool lt_127 = (cast_126 < 0.0f);
        const _Bool eq_128 = (cast_126 == 0.0f);
        const auto where_129 = (eq_128 ? (u16)0 : cast_125);
        const auto where_130 = (lt_127 ? (u16)0 : where_129);
        const auto cast_131 = f32_to_bf16(sums[12]);
        const auto cast_132 = bf16_to_f32(cast_131);
        const auto cast_133 = bf16_to_f32(load_7);
        const auto add_134 = (cast_132 + cast_133);
        const auto cast_135 = f32_to_bf16(add_134);
        const auto cast_136 = bf16_to_f32(cast_135);
        const _Bool lt_137 = (cast_136 < 0.0f);
        const _Bool eq_138 = (cast_136 == 0.0f);
        const auto where_139 = (eq_138 ? (u16)0 : cast_135);
        const auto where_140 = (lt_137 ? (u16)0 : where_139);
        const auto cast_141 = f32_to_bf16(sums[13]);
        const auto cast_142 = bf16_to_f32(cast_141);
        const auto cast_143 = bf16_to_f32(load_8);
        const auto add_144 = (cast_142 + cast_143);
        const auto cast_145 = f32_to_bf16(add_144);
        const auto cast_146 = bf16_to_f32(cast_145);
        const _Bool lt_147 = (cast_146 < 0.0f);
        const _Bool eq_148 = (cast_146 == 0.0f);
        const auto where_149 = (eq_148 ? (u16)0 : cast_145);
        const auto where_150 = (lt_147 ? (u16)0 : where_149);
        const auto cast_151 = f32_to_bf16(sums[14]);
        const auto cast_152 = bf16_to_f32(cast_151);
        const auto add_153 = (cast_152 + cast_133);
        const auto cast_154 = f32_to_bf16(add_153);
        const auto cast_155 = bf16_to_f32(cast_154);
        const _Bool lt_156 = (cast_155 < 0.0f);
        const _Bool eq_157 = (cast_155 == 0.0f);
        const auto where_158 = (eq_157 ? (u16)0 : cast_154);
        const auto where_159 = (lt_156 ? (u16)0 : where_158);
        const auto cast_160 = f32_to_bf16(sums[15]);
        const auto cast_161 = bf16_to_f32(cast_160);
        const auto add_162 = (cast_161 + cast_143);
        const auto cast_163 = f32_to_bf16(add_162);
        const auto cast_164 = bf16_to_f32(cast_163);
        const _Bool lt_165 = (cast_164 < 0.0f);
        const _Bool eq_166 = (cast_164 == 0.0f);
        const auto where_167 = (eq_166 ? (u16)0 : cast_163);
        const auto where_168 = (lt_165 ? (u16)0 : where_167);
        store_matrices(lines0 + (THREAD % 16) * 128 + (32 + THREAD % 32 / 16 * 16 ^ (THREAD % 16) % 8 << 4), (u16)where_102, (u16)where_112, (u16)where_121, (u16)where_130, (u16)where_140, (u16)where_150, (u16)where_159, (u16)where_168);
        const auto cast_169 = f32_to_bf16(sums[16]);
        const auto cast_170 = bf16_to_f32(cast_169);
        const auto cast_171 = bf16_to_f32(load_9);
        const auto add_172 = (cast_170 + cast_171);
        const auto cast_173 = f32_to_bf16(add_172);
        const auto cast_174 = bf16_to_f32(cast_173);
        const _Bool lt_175 = (cast_174 < 0.0f);
        const _Bool eq_176 = (cast_174 == 0.0f);
        const auto where_177 = (eq_176 ? (u16)0 : cast_173);
        const auto where_178 = (lt_175 ? (u16)0 : where_177);
        const auto cast_179 = f32_to_bf16(sums[17]);
        const auto cast_180 = bf16_to_f32(cast_179);
        const auto cast_181 = bf16_to_f32(load_10);
        const auto add_182 = (cast_180 + cast_181);
        const auto cast_183 = f32_to_bf16(add_182);
        const auto cast_184 = bf16_to_f32(cast_183);
        const _Bool lt_185 = (cast_184 < 0.0f);
        const _Bool eq_186 = (cast_184 == 0.0f);
        const auto where_187 = (eq_186 ? (u16)0 : cast_183);
        const auto where_188 = (lt_185 ? (u16)0 : where_187);
        const auto cast_189 = f32_to_bf16(sums[18]);
        const auto cast_190 = bf16_to_f32(cast_189);
        const auto add_191 = (cast_190 + cast_171);
        const auto cast_192 = f32_to_bf16(add_191);
        const auto cast_193 = bf16_to_f32(cast_192);
        const _Bool lt_194 = (cast_193 < 0.0f);
        const _Bool eq_195 = (cast_193 == 0.0f);
        const auto where_196 = (eq_195 ? (u16)0 : cast_192);
        const auto where_197 = (lt_194 ? (u16)0 : where_196);
        const auto cast_198 = f32_to_bf16(sums[19]);
        const auto cast_199 = bf16_to_f32(cast_198);
        const auto add_200 = (cast_199 + cast_181);
        const auto cast_201 = f32_to_bf16(add_200);
        const auto cast_202 = bf16_to_f32(cast_201);
        const _Bool lt_203 = (cast_202 < 0.0f);
        const _Bool eq_204 = (cast_202 == 0.0f);
        const auto where_205 = (eq_204 ? (u16)0 : cast_201);
        const auto where_206 = (lt_203 ? (u16)0 : where_205);
        const auto cast_207 = f32_to_bf16(sums[20]);
        const auto cast_208 = bf16_to_f32(cast_207);
        const auto cast_209 = bf16_to_f32(load_11);
        const auto add_210 = (cast_208 + cast_209);
        const auto cast_211 = f32_to_bf16(add_210);
        const auto cast_212 = bf16_to_f32(cast_211);
        const _Bool lt_213 = (cast_212 < 0.0f);
        const _Bool eq_214 = (cast_212 == 0.0f);
        const auto where_215 = (eq_214 ? (u16)0 : cast_211);
        const auto where_216 = (lt_213 ? (u16)0 : where_215);
        const auto cast_217 = f32_to_bf16(sums[21]);
        const auto cast_218 = bf16_to_f32(cast_217);
        const auto cast_219 = bf16_to_f32(load_12);
        const auto add_220 = (cast_218 + cast_219);
        const auto cast_221 = f32_to_bf16(add_220);
        const auto cast_222 = bf16_to_f32(cast_221);
        const _Bool lt_223 = (cast_222 < 0.0f);
        const _Bool eq_224 = (cast_222 == 0.0f);
        const auto where_225 = (eq_224 ? (u16)0 : cast_221);
        const auto where_226 = (lt_223 ? (u16)0 : where_225);
        const auto cast_227 = f32_to_bf16(sums[22]);
        const auto cast_228 = bf16_to_f32(cast_227);
        const auto add_229 = (cast_228 + cast_209);
        const auto cast_230 = f32_to_bf16(add_229);
        const auto cast_231 = bf16_to_f32(cast_230);
        const _Bool lt_232 = (cast_231 < 0.0f);
        const _Bool eq_233 = (cast_231 == 0.0f);
        const auto where_234 = (eq_233 ? (u16)0 : cast_230);
        const auto where_235 = (lt_232 ? (u16)0 : where_234);
        const auto cast_236 = f32_to_bf16(sums[23]);
        const auto cast_237 = bf16_to_f32(cast_236);
        const auto add_238 = (cast_237 + cast_219);
        const auto cast_239 = f32_to_bf16(add_238);
        const auto cast_240 = bf16_to_f32(cast_239);
        const _Bool lt_241 = (cast_240 < 0.0f);
        const _Bool eq_242 = (cast_240 == 0.0f);
        const auto where_243 = (eq_242 ? (u16)0 : cast_239);
        const auto where_244 = (lt_241 ? (u16)0 : where_243);
        store_matrices(lines0 + (THREAD % 16) * 128 + (64 + THREAD % 32 / 16 * 16 ^ (THREAD % 16) % 8 << 4), (u16)where_178, (u16)where_188, (u16)where_197, (u16)where_206, (u16)where_216, (u16)where_226, (u16)where_235, (u16)where_244);
        const auto cast_245 = f32_to_bf16(sums[24]);
        const auto cast_246 = bf16_to_f32(cast_245);
        const auto cast_247 = bf16_to_f32(load_13);
        const auto add_248 = (cast_246 + cast_247);
        const auto cast_249 = f32_to_bf16(add_248);
        const auto cast_250 = bf16_to_f32(cast_249);
        const _Bool lt_251 = (cast_250 < 0.0f);
        const _Bool eq_252 = (cast_250 == 0.0f);
        const auto where_253 = (eq_252 ? (u16)0 : cast_249);
        const auto where_254 = (lt_251 ? (u16)0 : where_253);
        const auto cast_255 = f32_to_bf16(sums[25]);
        const auto cast_256 = bf16_to_f32(cast_255);
        const auto cast_257 = bf16_to_f32(load_14);
        const auto add_258 = (cast_256 + cast_257);
        const auto cast_259 = f32_to_bf16(add_258);
        const auto cast_260 = bf16_to_f32(cast_259);
        const _Bool lt_261 = (cast_260 < 0.0f);
        const _Bool eq_262 = (cast_260 == 0.0f);
        const auto where_263 = (eq_262 ? (u16)0 : cast_259);
        const auto where_264 = (lt_261 ? (u16)0 : where_263);
        const auto cast_265 = f32_to_bf16(sums[26]);
        const auto cast_266 = bf16_to_f32(cast_265);
        const auto add_267 = (cast_266 + cast_247);
        const auto cast_268 = f32_to_bf16(add_267);
        const auto cast_269 = bf16_to_f32(cast_268);
        const _Bool lt_270 = (cast_269 < 0.0f);
        const _Bool eq_271 = (cast_269 == 0.0f);
        const auto where_272 = (eq_271 ? (u16)0 : cast_268);
        const auto where_273 = (lt_270 ? (u16)0 : where_272);
        const auto cast_274 = f32_to_bf16(sums[27]);
        const auto cast_275 = bf16_to_f32(cast_274);
        const auto add_276 = (cast_275 + cast_257);
        const auto cast_277 = f32_to_bf16(add_276);
        const auto cast_278 = bf16_to_f32(cast_277);
        const _Bool lt_279 = (cast_278 < 0.0f);
        const _Bool eq_280 = (cast_278 == 0.0f);
        const auto where_281 = (eq_280 ? (u16)0 : cast_277);
        const auto where_282 = (lt_279 ? (u16)0 : where_281);
        const auto cast_283 = f32_to_bf16(sums[28]);
        const auto cast_284 = bf16_to_f32(cast_283);
        const auto cast_285 = bf16_to_f32(load_15);
        const auto add_286 = (cast_284 + cast_285);
        const auto cast_287 = f32_to_bf16(add_286);
        const auto cast_288 = bf16_to_f32(cast_287);
        const _Bool lt_289 = (cast_288 < 0.0f);
        const _Bool eq_290 = (cast_288 == 0.0f);
        const auto where_291 = (eq_290 ? (u16)0 : cast_287);
        const auto where_292 = (lt_289 ? (u16)0 : where_291);
        const auto cast_293 = f32_to_bf16(sums[29]);
        const auto cast_294 = bf16_to_f32(cast_293);
        const auto cast_295 = bf16_to_f32(load_16);
        const auto add_296 = (cast_294 + cast_295);
        const auto cast_297 = f32_to_bf16(add_296);
        const auto cast_298 = bf16_to_f32(cast_297);
        const _Bool lt_299 = (cast_298 < 0.0f);
        const _Bool eq_300 = (cast_298 == 0.0f);
        const auto where_301 = (eq_300 ? (u16)0 : cast_297);
        const auto where_302 = (lt_299 ? (u16)0 : where_301);
        const auto cast_303 = f32_to_bf16(sums[30]);
        const auto cast_304 = bf16_to_f32(cast_303);
        const auto add_305 = (cast_304 + cast_285);
        const auto cast_306 = f32_to_bf16(add_305);
        const auto cast_307 = bf16_to_f32(cast_306);
        const _Bool lt_308 = (cast_307 < 0.0f);
        const _Bool eq_309 = (cast_307 == 0.0f);
        const auto where_310 = (eq_309 ? (u16)0 : cast_306);
        const auto where_311 = (lt_308 ? (u16)0 : where_310);
        const auto cast_312 = f32_to_bf16(sums[31]);
        const auto cast_313 = bf16_to_f32(cast_312);
        const auto add_314 = (cast_313 + cast_295);
        const auto cast_315 = f32_to_bf16(add_314);
        const auto cast_316 = bf16_to_f32(cast_315);
        const _Bool lt_317 = (cast_316 < 0.0f);
        const _Bool eq_318 = (cast_316 == 0.0f);
        const auto where_319 = (eq_318 ? (u16)0 : cast_315);
        const auto where_320 = (lt_317 ? (u16)0 : where_319);
        store_matrices(lines0 + (THREAD % 16) * 128 + (96 + THREAD % 32 / 16 * 16 ^ (THREAD % 16) % 8 << 4), (u16)where_254, (u16)where_264, (u16)where_273, (u16)where_282, (u16)where_292, (u16)where_302, (u16)where_311, (u16)where_320);
        write_rows0(p3 + 64 * (4096 * row_band + 512 * row_tile + column_band + column_tile) + 0, 512 - (64 * (8 * row_band + row_tile) + 0), 512 - (64 * (column_band + column_tile) + 0), 0);
    }
}