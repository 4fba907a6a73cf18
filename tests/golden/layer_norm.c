/*
reduce0_64x100:
split(a1, 64) -> a2, a3
split(a3, 16) -> a4, a5
bind(a5, vector)
bind(a4, unroll)
*/

/* v1 = p0[row, column] - (sum_column p0[row, column]) * 0.01
   p1[row, column] = v1 / sqrt((sum_column v1 * v1) * 0.01 + 0.001) */
KERNEL(reduce0_64x100) {
    POINTER(const f32, 0);
    POINTER(f32, 1);
    {
        for (i64 row = 0; row < 64; row++) {
            f32x16 sum_2 = splat_f32x16(0.0f);
            f32x16 sum_4 = splat_f32x16(0.0f);
            f32x16 sum_6 = splat_f32x16(0.0f);
            f32x16 sum_8 = splat_f32x16(0.0f);
            for (i64 column_outer = 0; column_outer < 1; column_outer++) {
                const f32x16 load_1 = *(f32x16r *)(p0 + 100 * row + 64 * column_outer);
                sum_2 = (sum_2 + load_1);
                const f32x16 load_3 = *(f32x16r *)(p0 + 100 * row + 64 * column_outer + 16);
                sum_4 = (sum_4 + load_3);
                const f32x16 load_5 = *(f32x16r *)(p0 + 100 * row + 64 * column_outer + 32);
                sum_6 = (sum_6 + load_5);
                const f32x16 load_7 = *(f32x16r *)(p0 + 100 * row + 64 * column_outer + 48);
                sum_8 = (sum_8 + load_7);
            }
            const f32x16 load_9 = *(f32x16r *)(p0 + 100 * row + 64 * 1);
            sum_2 = (sum_2 + load_9);
            const f32x16 load_10 = *(f32x16r *)(p0 + 100 * row + 64 * 1 + 16);
            sum_4 = (sum_4 + load_10);
            const f32x16 sum_11 = (sum_2 + sum_4);
            const f32x16 sum_12 = (sum_6 + sum_8);
            const f32x16 sum_13 = (sum_11 + sum_12);
            const f32x8 half_14 = (f32x8){sum_13[0], sum_13[1], sum_13[2], sum_13[3], sum_13[4], sum_13[5], sum_13[6], sum_13[7]};
            const f32x8 half_15 = (f32x8){sum_13[8], sum_13[9], sum_13[10], sum_13[11], sum_13[12], sum_13[13], sum_13[14], sum_13[15]};
            const f32x8 sum_16 = (half_14 + half_15);
            const f32x4 half_17 = (f32x4){sum_16[0], sum_16[1], sum_16[2], sum_16[3]};
            const f32x4 half_18 = (f32x4){sum_16[4], sum_16[5], sum_16[6], sum_16[7]};
            const f32x4 sum_19 = (half_17 + half_18);
            const f32x2 half_20 = (f32x2){sum_19[0], sum_19[1]};
            const f32x2 half_21 = (f32x2){sum_19[2], sum_19[3]};
            const f32x2 sum_22 = (half_20 + half_21);
            const f32 half_23 = sum_22[0];
            const f32 half_24 = sum_22[1];
            const f32 sum_25 = (half_23 + half_24);
            f32 sum_26 = sum_25;
            const f32x4 load_27 = *(f32x4r *)(p0 + 100 * row + 64 * 1 + 16 * 2);
            f32x4 sum_28 = splat_f32x4(0.0f);
            sum_28 = (sum_28 + load_27);
            const f32x2 half_29 = (f32x2){sum_28[0], sum_28[1]};
            const f32x2 half_30 = (f32x2){sum_28[2], sum_28[3]};
            const f32x2 sum_31 = (half_29 + half_30);
            const f32 half_32 = sum_31[0];
            const f32 half_33 = sum_31[1];
            const f32 sum_34 = (half_32 + half_33);
            const f32 sum_35 = (sum_26 + sum_34);
            f32 sum_36 = sum_35;
            const f32 mul_37 = (sum_36 * 0.009999999776482582f);
            const f32 neg_38 = (- mul_37);
            f32x16 sum_42 = splat_f32x16(0.0f);
            f32x16 sum_46 = splat_f32x16(0.0f);
            f32x16 sum_50 = splat_f32x16(0.0f);
            f32x16 sum_54 = splat_f32x16(0.0f);
            for (i64 column_outer = 0; column_outer < 1; column_outer++) {
                const f32x16 load_39 = *(f32x16r *)(p0 + 100 * row + 64 * column_outer);
                const f32x16 add_40 = (load_39 + neg_38);
                const f32x16 mul_41 = (add_40 * add_40);
                sum_42 = (sum_42 + mul_41);
                const f32x16 load_43 = *(f32x16r *)(p0 + 100 * row + 64 * column_outer + 16);
                const f32x16 add_44 = (load_43 + neg_38);
                const f32x16 mul_45 = (add_44 * add_44);
                sum_46 = (sum_46 + mul_45);
                const f32x16 load_47 = *(f32x16r *)(p0 + 100 * row + 64 * column_outer + 32);
                const f32x16 add_48 = (load_47 + neg_38);
                const f32x16 mul_49 = (add_48 * add_48);
                sum_50 = (sum_50 + mul_49);
                const f32x16 load_51 = *(f32x16r *)(p0 + 100 * row + 64 * column_outer + 48);
                const f32x16 add_52 = (load_51 + neg_38);
                const f32x16 mul_53 = (add_52 * add_52);
                sum_54 = (sum_54 + mul_53);
            }
            const f32x16 add_55 = (load_9 + neg_38);
            const f32x16 mul_56 = (add_55 * add_55);
            sum_42 = (sum_42 + mul_56);
            const f32x16 add_57 = (load_10 + neg_38);
            const f32x16 mul_58 = (add_57 * add_57);
            sum_46 = (sum_46 + mul_58);
            const f32x16 sum_59 = (sum_42 + sum_46);
            const f32x16 sum_60 = (sum_50 + sum_54);
            const f32x16 sum_61 = (sum_59 + sum_60);
            const f32x8 half_62 = (f32x8){sum_61[0], sum_61[1], sum_61[2], sum_61[3], sum_61[4], sum_61[5], sum_61[6], sum_61[7]};
            const f32x8 half_63 = (f32x8){sum_61[8], sum_61[9], sum_61[10], sum_61[11], sum_61[12], sum_61[13], sum_61[14], sum_61[15]};
            const f32x8 sum_64 = (half_62 + half_63);
            const f32x4 half_65 = (f32x4){sum_64[0], sum_64[1], sum_64[2], sum_64[3]};
            const f32x4 half_66 = (f32x4){sum_64[4], sum_64[5], sum_64[6], sum_64[7]};
            const f32x4 sum_67 = (half_65 + half_66);
            const f32x2 half_68 = (f32x2){sum_67[0], sum_67[1]};
            const f32x2 half_69 = (f32x2){sum_67[2], sum_67[3]};
            const f32x2 sum_70 = (half_68 + half_69);
            const f32 half_71 = sum_70[0];
            const f32 half_72 = sum_70[1];
            const f32 sum_73 = (half_71 + half_72);
            f32 sum_74 = sum_73;
            const f32x4 add_75 = (load_27 + neg_38);
            const f32x4 mul_76 = (add_75 * add_75);
            f32x4 sum_77 = splat_f32x4(0.0f);
            sum_77 = (sum_77 + mul_76);
            const f32x2 half_78 = (f32x2){sum_77[0], sum_77[1]};
            const f32x2 half_79 = (f32x2){sum_77[2], sum_77[3]};
            const f32x2 sum_80 = (half_78 + half_79);
            const f32 half_81 = sum_80[0];
            const f32 half_82 = sum_80[1];
            const f32 sum_83 = (half_81 + half_82);
            const f32 sum_84 = (sum_74 + sum_83);
            f32 sum_85 = sum_84;
            const f32 mul_88 = (sum_85 * 0.009999999776482582f);
            const f32 add_89 = (mul_88 + 0.0010000000474974513f);
            const f32 sqrt_90 = sqrt_f32(add_89);
            for (i64 column_outer = 0; column_outer < 1; column_outer++) {
                const f32x16 load_86 = *(f32x16r *)(p0 + 100 * row + 64 * column_outer);
                const f32x16 add_87 = (load_86 + neg_38);
                const f32x16 div_91 = (add_87 / sqrt_90);
                const f32x16 load_92 = *(f32x16r *)(p0 + 100 * row + 64 * column_outer + 16);
                const f32x16 add_93 = (load_92 + neg_38);
                const f32x16 div_94 = (add_93 / sqrt_90);
                const f32x16 load_95 = *(f32x16r *)(p0 + 100 * row + 64 * column_outer + 32);
                const f32x16 add_96 = (load_95 + neg_38);
                const f32x16 div_97 = (add_96 / sqrt_90);
                const f32x16 load_98 = *(f32x16r *)(p0 + 100 * row + 64 * column_outer + 48);
                const f32x16 add_99 = (load_98 + neg_38);
                const f32x16 div_100 = (add_99 / sqrt_90);
                *(f32x16u *)(p1 + 100 * row + 64 * column_outer) = div_91;
                *(f32x16u *)(p1 + 100 * row + 64 * column_outer + 16) = div_94;
                *(f32x16u *)(p1 + 100 * row + 64 * column_outer + 32) = div_97;
                *(f32x16u *)(p1 + 100 * row + 64 * column_outer + 48) = div_100;
            }
            const f32x16 div_101 = (add_55 / sqrt_90);
            const f32x16 div_102 = (add_57 / sqrt_90);
            *(f32x16u *)(p1 + 100 * row + 64 * 1) = div_101;
            *(f32x16u *)(p1 + 100 * row + 64 * 1 + 16) = div_102;
            const f32x4 div_103 = (add_75 / sqrt_90);
            *(f32x4u *)(p1 + 100 * row + 64 * 1 + 16 * 2) = div_103;
        }
    }
}
RUN {
    LAUNCH(0, reduce0_64x100(b, 0), AT(2, 0), AT(1, 0))
}
