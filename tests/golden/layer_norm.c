/*
reduce0_64x100:
split(a1, 64) -> a2, a3
split(a3, 16) -> a4, a5
bind(a5, vector)
bind(a4, unroll)
bind(a0, parallel)
*/

KERNEL(reduce0_64x100) {
    POINTER(const f32, 0);
    POINTER(f32, 1);
    const i64 a0 = chunk % 64;
    {
        f32x16 t2 = splat_f32x16(0.0f);
        f32x16 t4 = splat_f32x16(0.0f);
        f32x16 t6 = splat_f32x16(0.0f);
        f32x16 t8 = splat_f32x16(0.0f);
        for (i64 a2 = 0; a2 < 1; a2++) {
            const f32x16 t1 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2);
            t2 = (t2 + t1);
            const f32x16 t3 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 16);
            t4 = (t4 + t3);
            const f32x16 t5 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 32);
            t6 = (t6 + t5);
            const f32x16 t7 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 48);
            t8 = (t8 + t7);
        }
        const f32x16 t9 = *(f32x16r *)(p0 + 100 * a0 + 64 * 1);
        t2 = (t2 + t9);
        const f32x16 t10 = *(f32x16r *)(p0 + 100 * a0 + 64 * 1 + 16);
        t4 = (t4 + t10);
        const f32x16 t11 = (t2 + t4);
        const f32x16 t12 = (t6 + t8);
        const f32x16 t13 = (t11 + t12);
        const f32x8 t14 = (f32x8){t13[0], t13[1], t13[2], t13[3], t13[4], t13[5], t13[6], t13[7]};
        const f32x8 t15 = (f32x8){t13[8], t13[9], t13[10], t13[11], t13[12], t13[13], t13[14], t13[15]};
        const f32x8 t16 = (t14 + t15);
        const f32x4 t17 = (f32x4){t16[0], t16[1], t16[2], t16[3]};
        const f32x4 t18 = (f32x4){t16[4], t16[5], t16[6], t16[7]};
        const f32x4 t19 = (t17 + t18);
        const f32x2 t20 = (f32x2){t19[0], t19[1]};
        const f32x2 t21 = (f32x2){t19[2], t19[3]};
        const f32x2 t22 = (t20 + t21);
        const f32 t23 = t22[0];
        const f32 t24 = t22[1];
        const f32 t25 = (t23 + t24);
        f32 t26 = t25;
        const f32x4 t27 = *(f32x4r *)(p0 + 100 * a0 + 64 * 1 + 16 * 2);
        f32x4 t28 = splat_f32x4(0.0f);
        t28 = (t28 + t27);
        const f32x2 t29 = (f32x2){t28[0], t28[1]};
        const f32x2 t30 = (f32x2){t28[2], t28[3]};
        const f32x2 t31 = (t29 + t30);
        const f32 t32 = t31[0];
        const f32 t33 = t31[1];
        const f32 t34 = (t32 + t33);
        const f32 t35 = (t26 + t34);
        f32 t36 = t35;
        const f32 t37 = (t36 * 0.009999999776482582f);
        const f32 t38 = (- t37);
        f32x16 t42 = splat_f32x16(0.0f);
        f32x16 t46 = splat_f32x16(0.0f);
        f32x16 t50 = splat_f32x16(0.0f);
        f32x16 t54 = splat_f32x16(0.0f);
        for (i64 a2 = 0; a2 < 1; a2++) {
            const f32x16 t39 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2);
            const f32x16 t40 = (t39 + t38);
            const f32x16 t41 = (t40 * t40);
            t42 = (t42 + t41);
            const f32x16 t43 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 16);
            const f32x16 t44 = (t43 + t38);
            const f32x16 t45 = (t44 * t44);
            t46 = (t46 + t45);
            const f32x16 t47 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 32);
            const f32x16 t48 = (t47 + t38);
            const f32x16 t49 = (t48 * t48);
            t50 = (t50 + t49);
            const f32x16 t51 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 48);
            const f32x16 t52 = (t51 + t38);
            const f32x16 t53 = (t52 * t52);
            t54 = (t54 + t53);
        }
        const f32x16 t55 = (t9 + t38);
        const f32x16 t56 = (t55 * t55);
        t42 = (t42 + t56);
        const f32x16 t57 = (t10 + t38);
        const f32x16 t58 = (t57 * t57);
        t46 = (t46 + t58);
        const f32x16 t59 = (t42 + t46);
        const f32x16 t60 = (t50 + t54);
        const f32x16 t61 = (t59 + t60);
        const f32x8 t62 = (f32x8){t61[0], t61[1], t61[2], t61[3], t61[4], t61[5], t61[6], t61[7]};
        const f32x8 t63 = (f32x8){t61[8], t61[9], t61[10], t61[11], t61[12], t61[13], t61[14], t61[15]};
        const f32x8 t64 = (t62 + t63);
        const f32x4 t65 = (f32x4){t64[0], t64[1], t64[2], t64[3]};
        const f32x4 t66 = (f32x4){t64[4], t64[5], t64[6], t64[7]};
        const f32x4 t67 = (t65 + t66);
        const f32x2 t68 = (f32x2){t67[0], t67[1]};
        const f32x2 t69 = (f32x2){t67[2], t67[3]};
        const f32x2 t70 = (t68 + t69);
        const f32 t71 = t70[0];
        const f32 t72 = t70[1];
        const f32 t73 = (t71 + t72);
        f32 t74 = t73;
        const f32x4 t75 = (t27 + t38);
        const f32x4 t76 = (t75 * t75);
        f32x4 t77 = splat_f32x4(0.0f);
        t77 = (t77 + t76);
        const f32x2 t78 = (f32x2){t77[0], t77[1]};
        const f32x2 t79 = (f32x2){t77[2], t77[3]};
        const f32x2 t80 = (t78 + t79);
        const f32 t81 = t80[0];
        const f32 t82 = t80[1];
        const f32 t83 = (t81 + t82);
        const f32 t84 = (t74 + t83);
        f32 t85 = t84;
        const f32 t88 = (t85 * 0.009999999776482582f);
        const f32 t89 = (t88 + 0.0010000000474974513f);
        const f32 t90 = sqrt_f32(t89);
        for (i64 a2 = 0; a2 < 1; a2++) {
            const f32x16 t86 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2);
            const f32x16 t87 = (t86 + t38);
            const f32x16 t91 = (t87 / t90);
            const f32x16 t92 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 16);
            const f32x16 t93 = (t92 + t38);
            const f32x16 t94 = (t93 / t90);
            const f32x16 t95 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 32);
            const f32x16 t96 = (t95 + t38);
            const f32x16 t97 = (t96 / t90);
            const f32x16 t98 = *(f32x16r *)(p0 + 100 * a0 + 64 * a2 + 48);
            const f32x16 t99 = (t98 + t38);
            const f32x16 t100 = (t99 / t90);
            *(f32x16u *)(p1 + 100 * a0 + 64 * a2) = t91;
            *(f32x16u *)(p1 + 100 * a0 + 64 * a2 + 16) = t94;
            *(f32x16u *)(p1 + 100 * a0 + 64 * a2 + 32) = t97;
            *(f32x16u *)(p1 + 100 * a0 + 64 * a2 + 48) = t100;
        }
        const f32x16 t101 = (t55 / t90);
        const f32x16 t102 = (t57 / t90);
        *(f32x16u *)(p1 + 100 * a0 + 64 * 1) = t101;
        *(f32x16u *)(p1 + 100 * a0 + 64 * 1 + 16) = t102;
        const f32x4 t103 = (t75 / t90);
        *(f32x4u *)(p1 + 100 * a0 + 64 * 1 + 16 * 2) = t103;
    }
}
RUN {
    LAUNCH(0, parallel(64, reduce0_64x100, b), AT(2, 0), AT(1, 0))
}
