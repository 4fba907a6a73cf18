/*
reduce0_64x100:
split(a1, 64) -> a2, a3
split(a3, 16) -> a4, a5
bind(a5, vector)
bind(a4, unroll)
split(a0, 32) -> a6, a7
bind(a6, parallel)
stage(%4, a7)
*/

/* v1 = exp(p0[row, column] - (max_column p0[row, column]))
   p1[row, column] = v1 / (sum_column v1) */
KERNEL(reduce0_64x100) {
    POINTER(const f32, 0);
    POINTER(f32, 1);
    f32 p2[128] SCRATCH;
    const i64 row_outer = chunk % 2;
    {
        for (i64 row_inner = 0; row_inner < 32; row_inner++) {
            f32x16 max_2 = splat_f32x16(-inf_f32);
            f32x16 max_4 = splat_f32x16(-inf_f32);
            f32x16 max_6 = splat_f32x16(-inf_f32);
            f32x16 max_8 = splat_f32x16(-inf_f32);
            for (i64 column_outer = 0; column_outer < 1; column_outer++) {
                const f32x16 load_1 = *(f32x16r *)(p0 + 64 * column_outer + 3200 * row_outer + 100 * row_inner);
                max_2 = max_f32x16(max_2, load_1);
                const f32x16 load_3 = *(f32x16r *)(p0 + 64 * column_outer + 3200 * row_outer + 100 * row_inner + 16);
                max_4 = max_f32x16(max_4, load_3);
                const f32x16 load_5 = *(f32x16r *)(p0 + 64 * column_outer + 3200 * row_outer + 100 * row_inner + 32);
                max_6 = max_f32x16(max_6, load_5);
                const f32x16 load_7 = *(f32x16r *)(p0 + 64 * column_outer + 3200 * row_outer + 100 * row_inner + 48);
                max_8 = max_f32x16(max_8, load_7);
            }
            const f32x16 load_9 = *(f32x16r *)(p0 + 64 * 1 + 3200 * row_outer + 100 * row_inner);
            max_2 = max_f32x16(max_2, load_9);
            const f32x16 load_10 = *(f32x16r *)(p0 + 64 * 1 + 3200 * row_outer + 100 * row_inner + 16);
            max_4 = max_f32x16(max_4, load_10);
            const f32x16 max_11 = max_f32x16(max_2, max_4);
            const f32x16 max_12 = max_f32x16(max_6, max_8);
            const f32x16 max_13 = max_f32x16(max_11, max_12);
            const f32x8 half_14 = (f32x8){max_13[0], max_13[1], max_13[2], max_13[3], max_13[4], max_13[5], max_13[6], max_13[7]};
            const f32x8 half_15 = (f32x8){max_13[8], max_13[9], max_13[10], max_13[11], max_13[12], max_13[13], max_13[14], max_13[15]};
            const f32x8 max_16 = max_f32x8(half_14, half_15);
            const f32x4 half_17 = (f32x4){max_16[0], max_16[1], max_16[2], max_16[3]};
            const f32x4 half_18 = (f32x4){max_16[4], max_16[5], max_16[6], max_16[7]};
            const f32x4 max_19 = max_f32x4(half_17, half_18);
            const f32x2 half_20 = (f32x2){max_19[0], max_19[1]};
            const f32x2 half_21 = (f32x2){max_19[2], max_19[3]};
            const f32x2 max_22 = max_f32x2(half_20, half_21);
            const f32 half_23 = max_22[0];
            const f32 half_24 = max_22[1];
            const f32 max_25 = max_f32(half_23, half_24);
            f32 max_26 = max_25;
            const f32x4 load_27 = *(f32x4r *)(p0 + 64 * 1 + 16 * 2 + 3200 * row_outer + 100 * row_inner);
            f32x4 max_28 = splat_f32x4(-inf_f32);
            max_28 = max_f32x4(max_28, load_27);
            const f32x2 half_29 = (f32x2){max_28[0], max_28[1]};
            const f32x2 half_30 = (f32x2){max_28[2], max_28[3]};
            const f32x2 max_31 = max_f32x2(half_29, half_30);
            const f32 half_32 = max_31[0];
            const f32 half_33 = max_31[1];
            const f32 max_34 = max_f32(half_32, half_33);
            const f32 max_35 = max_f32(max_26, max_34);
            f32 max_36 = max_35;
            const f32 neg_37 = (- max_36);
            f32x16 sum_41 = splat_f32x16(0.0f);
            f32x16 sum_45 = splat_f32x16(0.0f);
            f32x16 sum_49 = splat_f32x16(0.0f);
            f32x16 sum_53 = splat_f32x16(0.0f);
            for (i64 column_outer = 0; column_outer < 1; column_outer++) {
                const f32x16 load_38 = *(f32x16r *)(p0 + 64 * column_outer + 3200 * row_outer + 100 * row_inner);
                const f32x16 add_39 = (load_38 + neg_37);
                const f32x16 exp_40 = exp_f32x16(add_39);
                *(f32x16u *)(p2 + 64 * column_outer) = exp_40;
                sum_41 = (sum_41 + exp_40);
                const f32x16 load_42 = *(f32x16r *)(p0 + 64 * column_outer + 3200 * row_outer + 100 * row_inner + 16);
                const f32x16 add_43 = (load_42 + neg_37);
                const f32x16 exp_44 = exp_f32x16(add_43);
                *(f32x16u *)(p2 + 64 * column_outer + 16) = exp_44;
                sum_45 = (sum_45 + exp_44);
                const f32x16 load_46 = *(f32x16r *)(p0 + 64 * column_outer + 3200 * row_outer + 100 * row_inner + 32);
                const f32x16 add_47 = (load_46 + neg_37);
                const f32x16 exp_48 = exp_f32x16(add_47);
                *(f32x16u *)(p2 + 64 * column_outer + 32) = exp_48;
                sum_49 = (sum_49 + exp_48);
                const f32x16 load_50 = *(f32x16r *)(p0 + 64 * column_outer + 3200 * row_outer + 100 * row_inner + 48);
                const f32x16 add_51 = (load_50 + neg_37);
                const f32x16 exp_52 = exp_f32x16(add_51);
                *(f32x16u *)(p2 + 64 * column_outer + 48) = exp_52;
                sum_53 = (sum_53 + exp_52);
            }
            const f32x16 add_54 = (load_9 + neg_37);
            const f32x16 exp_55 = exp_f32x16(add_54);
            *(f32x16u *)(p2 + 64 * 1) = exp_55;
            sum_41 = (sum_41 + exp_55);
            const f32x16 add_56 = (load_10 + neg_37);
            const f32x16 exp_57 = exp_f32x16(add_56);
            *(f32x16u *)(p2 + 64 * 1 + 16) = exp_57;
            sum_45 = (sum_45 + exp_57);
            const f32x16 sum_58 = (sum_41 + sum_45);
            const f32x16 sum_59 = (sum_49 + sum_53);
            const f32x16 sum_60 = (sum_58 + sum_59);
            const f32x8 half_61 = (f32x8){sum_60[0], sum_60[1], sum_60[2], sum_60[3], sum_60[4], sum_60[5], sum_60[6], sum_60[7]};
            const f32x8 half_62 = (f32x8){sum_60[8], sum_60[9], sum_60[10], sum_60[11], sum_60[12], sum_60[13], sum_60[14], sum_60[15]};
            const f32x8 sum_63 = (half_61 + half_62);
            const f32x4 half_64 = (f32x4){sum_63[0], sum_63[1], sum_63[2], sum_63[3]};
            const f32x4 half_65 = (f32x4){sum_63[4], sum_63[5], sum_63[6], sum_63[7]};
            const f32x4 sum_66 = (half_64 + half_65);
            const f32x2 half_67 = (f32x2){sum_66[0], sum_66[1]};
            const f32x2 half_68 = (f32x2){sum_66[2], sum_66[3]};
            const f32x2 sum_69 = (half_67 + half_68);
            const f32 half_70 = sum_69[0];
            const f32 half_71 = sum_69[1];
            const f32 sum_72 = (half_70 + half_71);
            f32 sum_73 = sum_72;
            const f32x4 add_74 = (load_27 + neg_37);
            const f32x4 exp_75 = exp_f32x4(add_74);
            *(f32x4u *)(p2 + 64 * 1 + 16 * 2) = exp_75;
            f32x4 sum_76 = splat_f32x4(0.0f);
            sum_76 = (sum_76 + exp_75);
            const f32x2 half_77 = (f32x2){sum_76[0], sum_76[1]};
            const f32x2 half_78 = (f32x2){sum_76[2], sum_76[3]};
            const f32x2 sum_79 = (half_77 + half_78);
            const f32 half_80 = sum_79[0];
            const f32 half_81 = sum_79[1];
            const f32 sum_82 = (half_80 + half_81);
            const f32 sum_83 = (sum_73 + sum_82);
            f32 sum_84 = sum_83;
            for (i64 column_outer = 0; column_outer < 1; column_outer++) {
                const f32x16 load_85 = *(f32x16r *)(p2 + 64 * column_outer);
                const f32x16 div_86 = (load_85 / sum_84);
                const f32x16 load_87 = *(f32x16r *)(p2 + 64 * column_outer + 16);
                const f32x16 div_88 = (load_87 / sum_84);
                const f32x16 load_89 = *(f32x16r *)(p2 + 64 * column_outer + 32);
                const f32x16 div_90 = (load_89 / sum_84);
                const f32x16 load_91 = *(f32x16r *)(p2 + 64 * column_outer + 48);
                const f32x16 div_92 = (load_91 / sum_84);
                *(f32x16u *)(p1 + 64 * column_outer + 3200 * row_outer + 100 * row_inner) = div_86;
                *(f32x16u *)(p1 + 64 * column_outer + 3200 * row_outer + 100 * row_inner + 16) = div_88;
                *(f32x16u *)(p1 + 64 * column_outer + 3200 * row_outer + 100 * row_inner + 32) = div_90;
                *(f32x16u *)(p1 + 64 * column_outer + 3200 * row_outer + 100 * row_inner + 48) = div_92;
            }
            const f32x16 div_93 = (exp_55 / sum_84);
            const f32x16 div_94 = (exp_57 / sum_84);
            *(f32x16u *)(p1 + 64 * 1 + 3200 * row_outer + 100 * row_inner) = div_93;
            *(f32x16u *)(p1 + 64 * 1 + 3200 * row_outer + 100 * row_inner + 16) = div_94;
            const f32x4 div_95 = (exp_75 / sum_84);
            *(f32x4u *)(p1 + 64 * 1 + 16 * 2 + 3200 * row_outer + 100 * row_inner) = div_95;
        }
    }
}
RUN {
    LAUNCH(0, parallel(2, reduce0_64x100, b), AT(2, 0), AT(1, 0))
}
