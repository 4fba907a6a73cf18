/*
reduce0_64x100:
split(a1, 64) -> a2, a3
split(a3, 16) -> a4, a5
bind(a5, vector)
bind(a4, unroll)
bind(a0, parallel)
stage(%4, a0)
*/

KERNEL(reduce0_64x100) {
    POINTER(const f32, 0);
    POINTER(f32, 1);
    f32 p2[128] SCRATCH;
    const i64 a0 = chunk % 64;
    {
        f32x16 t2 = splat_f32x16(-inf_f32);
        f32x16 t4 = splat_f32x16(-inf_f32);
        f32x16 t6 = splat_f32x16(-inf_f32);
        f32x16 t8 = splat_f32x16(-inf_f32);
        for (i64 a2 = 0; a2 < 1; a2++) {
            const f32x16 t1 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2);
            t2 = max_f32x16(t2, t1);
            const f32x16 t3 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 16);
            t4 = max_f32x16(t4, t3);
            const f32x16 t5 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 32);
            t6 = max_f32x16(t6, t5);
            const f32x16 t7 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 48);
            t8 = max_f32x16(t8, t7);
        }
        const f32x16 t9 = *(f32x16r *)(p0 + 100 * a0 + 64 * 1);
        t2 = max_f32x16(t2, t9);
        const f32x16 t10 = *(f32x16r *)(p0 + 100 * a0 + 64 * 1 + 16);
        t4 = max_f32x16(t4, t10);
        const f32x16 t11 = max_f32x16(t2, t4);
        const f32x16 t12 = max_f32x16(t6, t8);
        const f32x16 t13 = max_f32x16(t11, t12);
        const f32x8 t14 = (f32x8){t13[0], t13[1], t13[2], t13[3], t13[4], t13[5], t13[6], t13[7]};
        const f32x8 t15 = (f32x8){t13[8], t13[9], t13[10], t13[11], t13[12], t13[13], t13[14], t13[15]};
        const f32x8 t16 = max_f32x8(t14, t15);
        const f32x4 t17 = (f32x4){t16[0], t16[1], t16[2], t16[3]};
        const f32x4 t18 = (f32x4){t16[4], t16[5], t16[6], t16[7]};
        const f32x4 t19 = max_f32x4(t17, t18);
        const f32x2 t20 = (f32x2){t19[0], t19[1]};
        const f32x2 t21 = (f32x2){t19[2], t19[3]};
        const f32x2 t22 = max_f32x2(t20, t21);
        const f32 t23 = t22[0];
        const f32 t24 = t22[1];
        const f32 t25 = max_f32(t23, t24);
        f32 t26 = t25;
        const f32x4 t27 = *(f32x4r *)(p0 + 100 * a0 + 64 * 1 + 16 * 2);
        f32x4 t28 = splat_f32x4(-inf_f32);
        t28 = max_f32x4(t28, t27);
        const f32x2 t29 = (f32x2){t28[0], t28[1]};
        const f32x2 t30 = (f32x2){t28[2], t28[3]};
        const f32x2 t31 = max_f32x2(t29, t30);
        const f32 t32 = t31[0];
        const f32 t33 = t31[1];
        const f32 t34 = max_f32(t32, t33);
        const f32 t35 = max_f32(t26, t34);
        f32 t36 = t35;
        const f32 t37 = (- t36);
        f32x16 t41 = splat_f32x16(0.0f);
        f32x16 t45 = splat_f32x16(0.0f);
        f32x16 t49 = splat_f32x16(0.0f);
        f32x16 t53 = splat_f32x16(0.0f);
        for (i64 a2 = 0; a2 < 1; a2++) {
            const f32x16 t38 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2);
            const f32x16 t39 = (t38 + t37);
            const f32x16 t40 = exp_f32x16(t39);
            *(f32x16u *)(p2 + 64 * a2) = t40;
            t41 = (t41 + t40);
            const f32x16 t42 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 16);
            const f32x16 t43 = (t42 + t37);
            const f32x16 t44 = exp_f32x16(t43);
            *(f32x16u *)(p2 + 64 * a2 + 16) = t44;
            t45 = (t45 + t44);
            const f32x16 t46 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 32);
            const f32x16 t47 = (t46 + t37);
            const f32x16 t48 = exp_f32x16(t47);
            *(f32x16u *)(p2 + 64 * a2 + 32) = t48;
            t49 = (t49 + t48);
            const f32x16 t50 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 48);
            const f32x16 t51 = (t50 + t37);
            const f32x16 t52 = exp_f32x16(t51);
            *(f32x16u *)(p2 + 64 * a2 + 48) = t52;
            t53 = (t53 + t52);
        }
        const f32x16 t54 = (t9 + t37);
        const f32x16 t55 = exp_f32x16(t54);
        *(f32x16u *)(p2 + 64 * 1) = t55;
        t41 = (t41 + t55);
        const f32x16 t56 = (t10 + t37);
        const f32x16 t57 = exp_f32x16(t56);
        *(f32x16u *)(p2 + 64 * 1 + 16) = t57;
        t45 = (t45 + t57);
        const f32x16 t58 = (t41 + t45);
        const f32x16 t59 = (t49 + t53);
        const f32x16 t60 = (t58 + t59);
        const f32x8 t61 = (f32x8){t60[0], t60[1], t60[2], t60[3], t60[4], t60[5], t60[6], t60[7]};
        const f32x8 t62 = (f32x8){t60[8], t60[9], t60[10], t60[11], t60[12], t60[13], t60[14], t60[15]};
        const f32x8 t63 = (t61 + t62);
        const f32x4 t64 = (f32x4){t63[0], t63[1], t63[2], t63[3]};
        const f32x4 t65 = (f32x4){t63[4], t63[5], t63[6], t63[7]};
        const f32x4 t66 = (t64 + t65);
        const f32x2 t67 = (f32x2){t66[0], t66[1]};
        const f32x2 t68 = (f32x2){t66[2], t66[3]};
        const f32x2 t69 = (t67 + t68);
        const f32 t70 = t69[0];
        const f32 t71 = t69[1];
        const f32 t72 = (t70 + t71);
        f32 t73 = t72;
        const f32x4 t74 = (t27 + t37);
        const f32x4 t75 = exp_f32x4(t74);
        *(f32x4u *)(p2 + 64 * 1 + 16 * 2) = t75;
        f32x4 t76 = splat_f32x4(0.0f);
        t76 = (t76 + t75);
        const f32x2 t77 = (f32x2){t76[0], t76[1]};
        const f32x2 t78 = (f32x2){t76[2], t76[3]};
        const f32x2 t79 = (t77 + t78);
        const f32 t80 = t79[0];
        const f32 t81 = t79[1];
        const f32 t82 = (t80 + t81);
        const f32 t83 = (t73 + t82);
        f32 t84 = t83;
        for (i64 a2 = 0; a2 < 1; a2++) {
            const f32x16 t85 = *(f32x16r *)(p2 + 64 * a2);
            const f32x16 t86 = (t85 / t84);
            const f32x16 t87 = *(f32x16r *)(p2 + 64 * a2 + 16);
            const f32x16 t88 = (t87 / t84);
            const f32x16 t89 = *(f32x16r *)(p2 + 64 * a2 + 32);
            const f32x16 t90 = (t89 / t84);
            const f32x16 t91 = *(f32x16r *)(p2 + 64 * a2 + 48);
            const f32x16 t92 = (t91 / t84);
            *(f32x16u *)(p1 + 100 * a0 + 64 * a2) = t86;
            *(f32x16u *)(p1 + 100 * a0 + 64 * a2 + 16) = t88;
            *(f32x16u *)(p1 + 100 * a0 + 64 * a2 + 32) = t90;
            *(f32x16u *)(p1 + 100 * a0 + 64 * a2 + 48) = t92;
        }
        const f32x16 t93 = (t55 / t84);
        const f32x16 t94 = (t57 / t84);
        *(f32x16u *)(p1 + 100 * a0 + 64 * 1) = t93;
        *(f32x16u *)(p1 + 100 * a0 + 64 * 1 + 16) = t94;
        const f32x4 t95 = (t75 / t84);
        *(f32x4u *)(p1 + 100 * a0 + 64 * 1 + 16 * 2) = t95;
    }
}
RUN {
    LAUNCH(0, parallel(64, reduce0_64x100, b), AT(2, 0), AT(1, 0))
}
