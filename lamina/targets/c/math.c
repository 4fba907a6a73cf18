/* Transcendental functions of float32, for vectors of N lanes: see `vectors.c`.

   Everything is float32, except for the argument reduction of large sines and cosines, which uses
   float64 and 64-bit integers where float32 has too few bits. Special values are IEEE 754's, subnormals
   included; `tests/transcendental` bounds the errors. A compiler may contract a * b + c or not, but
   must not reorder sums.

   The polynomials are minimax fits: the largest error, relative to the function, over Chebyshev
   points of the interval is least. Coefficients are rounded one at a time from the lowest, the
   others being fitted again after each. */

/* Exponentials: x = n * ln 2 + r with an integer n and |r| <= ln(2) / 2, so that e**x is 2**n times a
   polynomial of r. For 2**x, x = n + r with |r| <= 1/2.

   - n: float32 from 2**23 to 2**24 are integers. So adding 1.5 * 2**23 to x / ln 2 rounds it to n, and
     the low bits of the sum (`shifted`) are n. Subtracting the same number again gives n as a float.
   - 2**n: -150 <= n <= 128, and float32 has no 2**-150 and no 2**128, though it may have the product.
     So 2**n is two factors. A float32 whose exponent field is e is 2**(e - 127). ROUND adds 254 =
     2 * 127 more, and half of n + 254 and the rest of it are the two exponent fields: n = 11 gives 265,
     fields 132 and 133, and factors 2**5 and 2**6.
   - Below `low` the result is 0: e**-104 = 6.8e-46 is less than half of the smallest float32, 1.4e-45.
     It is selected, not computed: processors take 100 clocks and more for a product that underflows,
     and masked attention has many. `limited` bounds x from above, so that n is at most 128; without
     AVX-512 it also replaces x below `low`, whose n would be no exponent field.

   AVX-512 has an instruction that multiplies by 2**n with any n, and gives 0 in lanes outside of a
   mask. */

#if defined __AVX512F__ && !defined __clang__
#if N == 16 /* vectors of 512 bits are told how to round; 4: as always */
#define MASKED(name, ...) BUILTIN(ia32_##name##512_mask)(__VA_ARGS__, 4)
#elif defined __AVX512VL__ && N == 8
#define MASKED(name, ...) BUILTIN(ia32_##name##256_mask)(__VA_ARGS__)
#elif defined __AVX512VL__ && N == 4
#define MASKED(name, ...) BUILTIN(ia32_##name##128_mask)(__VA_ARGS__)
#endif
#endif
#define ROUND (12582912.0f + 254.0f)
#ifdef MASKED
INLINE f32xN limited_f32xN(f32xN x, f32 low, f32 high) {
    return smaller_f32xN(splat_f32xN(high), x);
}
INLINE f32xN scaled_f32xN(f32xN value, f32xN shifted, f32xN x, f32 low) {
    const u16 rest = MASKED(cmpps, x, splat_f32xN(low), 5, -1); /* 5: not below, or NaN */
    return MASKED(scalefps, value, shifted - ROUND, splat_f32xN(0.0f), rest);
}
#else
INLINE f32xN limited_f32xN(f32xN x, f32 low, f32 high) { /* 0 for x below `low` */
    const f32xN zero = splat_f32xN(0.0f);
    return smaller_f32xN(splat_f32xN(high), where_f32xN((i32xN)(x < low), zero, x)); /* NaN stays */
}
INLINE f32xN scaled_f32xN(f32xN value, f32xN shifted, f32xN x, f32 low) { /* 0 for x below `low` */
    const u32xN bits = (u32xN)shifted, half = bits >> 1, rest = bits - half;
    value = value * (f32xN)(half << 23) * (f32xN)(rest << 23);
    return where_f32xN((i32xN)(x < low), splat_f32xN(0.0f), value);
}
#endif
INLINE f32xN exp_f32xN(f32xN x) {
    const f32 low = -104.0f;
    const f32xN inside = limited_f32xN(x, low, 89.0f);
    const f32xN shifted = inside * 1.44269504f + ROUND, n = shifted - ROUND;
    /* ln 2 in two parts (Cody and Waite), of which the first has 15 bits: exact times any n */
    const f32xN r = inside - n * 0.693145751953125f - n * 1.42860682e-6f;
    const f32xN tail = 0.49999994f + r * (0.16666517f + r * (0.04166828f + r * (
        0.008369248f + r * 0.0013820746f)));
    return scaled_f32xN(r * r * tail + r + 1.0f, shifted, x, low);
}
INLINE f32xN exp2_f32xN(f32xN x) {
    const f32 low = -150.0f;
    const f32xN inside = limited_f32xN(x, low, 128.0f);
    const f32xN shifted = inside + ROUND, r = inside - (shifted - ROUND);
    const f32xN slope = 0.6931472f + r * (0.24022648f + r * (0.055503596f + r * (
        0.009618506f + r * (0.0013391024f + r * 0.00015326796f))));
    return scaled_f32xN(r * slope + 1.0f, shifted, x, low);
}
#undef ROUND

/* 1 / (1 + e**-x) is e**x / (e**x + 1). Both are computed from small = e**-|x|, which is at most 1: it
   does not overflow as e**100 would, and for x < 0 the result small / (small + 1) keeps its relative
   accuracy down to the smallest float32. */
INLINE f32xN logistic_f32xN(f32xN x) {
    const i32xN negative = x < 0.0f;
    const f32xN small = exp_f32xN(where_f32xN(negative, x, -x)), one = splat_f32xN(1.0f);
    return where_f32xN(negative, small, one) / (small + 1.0f);
}

/* tanh |x| = h / (h + 1) with h = (e**(2|x|) - 1) / 2. To subtract 1 from e**(2|x|) would cancel where x
   is small. So |x| = n * ln(2) / 2 + r with an integer n, and as e**(2|x|) = 2**n * e**(2r)

       h = 2**n * (e**(2r) - 1) / 2  +  (2**n - 1) / 2

   where (e**(2r) - 1) / 2 is the polynomial r + r * r * tail, and for small x, where n = 0, the second
   term is 0. `round` is the 1.5 * 2**23 of the exponentials and 127, so that the low bits of `shifted`
   are the exponent field of 2**n. From 9.02 on tanh rounds to 1; so n is at most 26. */
INLINE f32xN tanh_f32xN(f32xN x) {
    const f32 round = 12582912.0f + 127.0f;
    const u32xN sign = (u32xN)x & 0x80000000;
    const f32xN size = smaller_f32xN(splat_f32xN(9.02f), (f32xN)((u32xN)x ^ sign)); /* NaN stays */
    const f32xN shifted = size * 2.88539008f + round, n = shifted - round;
    const f32xN power = (f32xN)((u32xN)shifted << 23);
    const f32xN r = size - n * 0.3465728759765625f - n * 7.1430341e-07f;
    const f32xN tail = 0.99999994f + r * (0.66666156f + r * (0.33334205f + r * (
        0.1338739f + r * 0.04427371f)));
    const f32xN half = (r * r * tail + r) * power + (power * 0.5f - 0.5f);
    return (f32xN)((u32xN)(half / (half + 1.0f)) | sign);
}

/* Logarithms are the exponent plus a polynomial of the mantissa around 1: for finite x > 0 it is
   2**n * (1 + f), 1 + f between sqrt(1/2) and sqrt(2). */

#ifdef MASKED
/* Instructions give the exponent and the mantissa, from 1 to 2: infinite and 1 of zero and infinity,
   and NaN for x < 0 (the 12). So what follows needs no special cases. */
INLINE f32xN exponent_f32xN(f32xN x, f32xN *f) {
    const f32xN mantissa = MASKED(getmantps, x, 12, x, -1), exponent = MASKED(getexpps, x, x, -1);
    const i32xN upper = mantissa >= 1.41421354f;
    *f = where_f32xN(upper, mantissa * 0.5f, mantissa) - 1.0f;
    return where_f32xN(upper, exponent + 1.0f, exponent);
}
INLINE f32xN with_poles_f32xN(f32xN x, f32xN logarithm) { return logarithm; }
#else
#define SQRT_HALF 0x3F3504F3 /* the bits of a float32 */
INLINE f32xN exponent_f32xN(f32xN x, f32xN *f) {
    const i32xN tiny = x < 0x1p-126f;
    const u32xN bits = (u32xN)where_f32xN(tiny, x * 0x1p23f, x) - SQRT_HALF;
    *f = (f32xN)((bits & 0x7FFFFF) + SQRT_HALF) - 1.0f;
    return __builtin_convertvector(((i32xN)bits >> 23) - (tiny & 23), f32xN);
}
#undef SQRT_HALF
INLINE f32xN with_poles_f32xN(f32xN x, f32xN logarithm) { /* which is right for finite x > 0 */
    const f32xN nan = splat_f32xN(__builtin_nanf("")), inf = splat_f32xN(__builtin_inff());
    const f32xN outside = where_f32xN(x == 0.0f, -inf, nan);
    return where_f32xN(x > 0.0f, where_f32xN(x < inf, logarithm, x), outside);
}
#endif
INLINE f32xN log_f32xN(f32xN x) {
    f32xN f;
    const f32xN n = exponent_f32xN(x, &f), square = f * f;
    const f32xN tail = 0.33333313f + f * (-0.2500001f + f * (0.20002073f + f * (
        -0.16667992f + f * (0.14220312f + f * (-0.12406119f + f * (
        0.11883859f + f * (-0.11671118f + f * 0.06749812f)))))));
    const f32xN rest = square * f * tail + square * -0.5f;
    return with_poles_f32xN(x, rest + n * 1.42860682e-6f + f + n * 0.693145751953125f);
}
INLINE f32xN log2_f32xN(f32xN x) {
    f32xN f;
    const f32xN n = exponent_f32xN(x, &f);
    const f32xN tail = 0.44269505f + f * (-0.7213475f + f * (0.4808965f + f * (
        -0.3606826f + f * (0.28861883f + f * (-0.23995101f + f * (
        0.20415494f + f * (-0.18826424f + f * (0.18688554f + f * -0.116394795f))))))));
    return with_poles_f32xN(x, f * tail + f + n);
}

#undef MASKED

/* Sine and cosine: |x| = quadrant * pi/2 + r, with abs(r) < 0.82. Below LIMIT the quadrant n has 12 bits
   at most, and pi/2 is four parts (Cody and Waite): n times the first three is exact, as these have 12,
   7 and 9 bits. So is the difference from the first two, whose bits are multiples of 2**-24. `lost` is
   what subtracting the third one rounds away. Adding 1.5 * 2**23 rounds to an integer, whose last two
   bits it leaves in the lowest ones. `ahead` is added to the quadrant, and `sign` changes the sign bit. */

#define LIMIT 6400.0f
#define ROUND 12582912.0f
INLINE f32xN wave_of_f32xN(f32xN r, u32xN quadrant, u32xN sign) {
    const f32xN square = r * r;
    const f32xN sine = r * square * (-0.16666651f + square * (
        0.008331925f + square * -0.00019484147f)) + r;
    const f32xN cosine = square * square * (0.04166664f + square * (
        -0.0013887112f + square * 2.4408575e-05f)) + (square * -0.5f + 1.0f);
    const f32xN value = where_f32xN((i32xN)((quadrant & 1) == 0), sine, cosine);
    return (f32xN)((u32xN)value ^ ((quadrant & 2) << 30) ^ sign);
}

/* Above LIMIT, up to whole turns: by multiplying exactly by the digits of 1 / (2 pi) that matter (Payne
   and Hanek). |x| below a limit is an integer of at most 56 bits after multiplication by a scale 2**k.
   The digits of 2**(64 - k) / (2 pi) above 2**64 make whole turns of it; the product with the next 64 is
   an integer, whose overflow drops whole turns, and four times those after the point a float64. */

#define SWITCH(T, I, limit, a, b) (LESS(limit) & ((I)splat_##T(a) ^ (I)splat_##T(b)))
#define BY_BAND(T, I, a, b, c, d) \
    (T)(SWITCH(T, I, 0x1p32f, a, b) ^ SWITCH(T, I, 0x1p65f, b, c) ^ SWITCH(T, I, 0x1p98f, c, d) \
        ^ (I)splat_##T(d))
RARE f32xN wave_of_large_f32xN(f32xN x, u32 ahead, u32xN sign) {
    const f32xN magnitude = (f32xN)((u32xN)x & 0x7FFFFFFF);
    const i32xN finite = magnitude < __builtin_inff();
    const f32xN safe = where_f32xN(finite, magnitude, splat_f32xN(0.0f));
#define LESS(limit) (safe < limit)
    const f32xN scale = BY_BAND(f32xN, i32xN, 0x1p24f, 0x1p-9f, 0x1p-42f, 0x1p-75f);
#undef LESS
#define LESS(limit) __builtin_convertvector(safe < limit, i64xN)
    const u64xN integer = BY_BAND(u64xN, i64xN,
        0x28BE60DB93, 0x7CC1B727220A94FE, 0x441529FC2757D1F5, 0x4EAFA3EA69BB81B6);
    const f64xN fraction = BY_BAND(f64xN, i64xN,
        2.265947937069853, 0.3073675582215696, 0.8260347502167292, 3.080761544898003);
#undef LESS
    const f64xN scaled = __builtin_convertvector(safe * scale, f64xN);
    const u64xN turns = (u64xN)__builtin_convertvector(scaled, i64xN) * integer;
    const f64xN angle = __builtin_convertvector((i64xN)(turns << 2), f64xN) + scaled * fraction;
    const f32xN turned = __builtin_convertvector(angle * 8.515303950216386e-20, f32xN);
    const f32xN r = where_f32xN(finite, turned, splat_f32xN(__builtin_nanf("")));
    const u32xN nearest = __builtin_convertvector((turns + (1ULL << 61)) >> 62, u32xN);
    return wave_of_f32xN(r, nearest + ahead, sign);
}
#undef BY_BAND
#undef SWITCH
INLINE f32xN wave_f32xN(f32xN x, u32 ahead, u32xN sign) {
    const f32xN magnitude = (f32xN)((u32xN)x & 0x7FFFFFFF);
    const f32xN shifted = magnitude * 0.63661977f + ROUND, n = shifted - ROUND;
    const f32xN rest = magnitude - n * 0x1.922p0f - n * -0x1.2cp-18f, third = n * 0x1.11p-26f;
    const f32xN most = rest - third, lost = rest - most - third;
    const f32xN r = most + (lost - n * 0x1.68c234p-39f);
    const f32xN near = wave_of_f32xN(r, (u32xN)shifted + ahead, sign);
    const i32xN large = ~(magnitude < LIMIT); /* or NaN */
    if (__builtin_expect(!any_i32xN(large), 1)) return near;
    return where_f32xN(large, wave_of_large_f32xN(x, ahead, sign), near);
}
#undef LIMIT
#undef ROUND
INLINE f32xN sin_f32xN(f32xN x) { return wave_f32xN(x, 0, (u32xN)x & 0x80000000); }
INLINE f32xN cos_f32xN(f32xN x) { return wave_f32xN(x, 1, (u32xN){0}); }

INLINE f32xN atan_f32xN(f32xN x) { /* above 1, pi/2 less the angle of the reciprocal */
    const u32xN sign = (u32xN)x & 0x80000000;
    const f32xN magnitude = (f32xN)((u32xN)x ^ sign);
    const i32xN large = magnitude > 1.0f;
    const f32xN z = where_f32xN(large, -1.0f / magnitude, magnitude), square = z * z;
    const f32xN rest = z * square * (-0.333333f + square * (0.1999853f + square * (
        -0.14264016f + square * (0.109508805f + square * (-0.08399305f + square * (
        0.057881273f + square * (-0.031096688f + square * (
        0.010868369f + square * -0.0017827011f))))))));
    const f32xN angle = where_f32xN(large, rest + -4.37113883e-08f + z + 1.57079637f, rest + z);
    return (f32xN)((u32xN)angle | sign);
}

/* The error function is odd, and rounds to 1 above 3.92. With AVX-512 it is, up to there, min(|x|, 3/16)
   plus one of 32 polynomials of r = |x| - i/8, where |r| <= 1/16: an instruction takes the coefficient
   of each lane from two registers. Adding 1.5 * 2**20 rounds |x| to i/8 and leaves i in the low bits.
   The minimum is |x| for the first two polynomials, whose coefficients are small then and round to
   little, and one number for all others. They are fits as above, within 0.81 * 2**-24; the first one
   has no constant. */

#ifdef __AVX512F__
#ifndef ERF
#define ERF erf_by_power
static const f32 ERF[5][32] __attribute__((aligned(64))) = {
    {0.0f, 0.015316201f, 0.08882639f, 0.21661691f, 0.33299989f, 0.4357409f, 0.52365565f,
     0.5965751f, 0.6552008f, 0.7008882f, 0.73540014f, 0.76067007f, 0.77860516f, 0.79094374f,
     0.7991717f, 0.80449003f, 0.8078223f, 0.809846f, 0.8110373f, 0.81171703f, 0.812093f,
     0.8122946f, 0.8123994f, 0.81245214f, 0.8124779f, 0.8124901f, 0.8124957f, 0.8124982f,
     0.8124993f, 0.8124997f, 0.8124999f, 0.81249994f},
    {0.12837915f, 0.11088479f, 1.0600138f, 0.98035276f, 0.8787826f, 0.76349956f, 0.6429311f,
     0.52474505f, 0.4151075f, 0.31827396f, 0.23652112f, 0.17035978f, 0.11893029f, 0.08047226f,
     0.052774996f, 0.03354583f, 0.020666987f, 0.01234082f, 0.0071423193f, 0.0040064775f,
     0.002178284f, 0.0011478751f, 0.0005862773f, 0.0002902283f, 0.00013925304f, 6.4758686e-5f,
     2.9189023e-5f, 1.2751446e-5f, 5.399272e-6f, 2.2158633e-6f, 8.8139774e-7f, 3.3980663e-7f},
    {7.780252e-6f, -0.13885354f, -0.265f, -0.36763418f, -0.43940434f, -0.4771958f, -0.48223078f,
     -0.45918468f, -0.41509128f, -0.35803667f, -0.29566944f, -0.23423544f, -0.17842782f,
     -0.13078485f, -0.092386074f, -0.062842816f, -0.04137746f, -0.02624996f, -0.016106937f,
     -0.0094582625f, -0.005388107f, -0.0029689062f, -0.0016309058f, -0.0008188683f, -0.0003711395f,
     -0.00020713394f, -0.000117850446f, -9.860065e-5f, -7.590748e-5f, -2.1331596e-6f, 7.919391e-6f,
     3.368379e-5f},
    {-0.37672305f, -0.35822147f, -0.30878764f, -0.23470658f, -0.14644928f, -0.055760115f,
     0.026591863f, 0.09274377f, 0.13815665f, 0.16227429f, 0.16740012f, 0.15784596f, 0.13872118f,
     0.11483512f, 0.090170324f, 0.06746404f, 0.048248634f, 0.033063337f, 0.021745924f, 0.01374797f,
     0.00836298f, 0.0048988503f, 0.002765869f, 0.0015059488f, 0.0007914124f, 0.00040116944f,
     0.0001965271f, 9.321792e-5f, 4.261627e-5f, 1.8822408e-5f, 8.041365e-6f, 3.320679e-6f},
    {0.014666695f, 0.0668014f, 0.12596777f, 0.16653916f, 0.18591094f, 0.17813878f, 0.1586527f,
     0.11946971f, 0.06596232f, 0.023539508f, -0.0022352594f, -0.03232572f, -0.036656477f,
     -0.0452506f, -0.04063957f, -0.056138743f, -0.023714606f, -0.020151919f, -0.010018819f,
     -0.027522366f, -0.023202045f, -0.016625058f, 0.0014229481f, -0.0058109574f, -0.012955246f,
     0.00064214424f, 0.0055886526f, 0.014079891f, 0.014525316f, -0.001541245f, -0.0028872169f,
     -0.008965998f},
};
#endif
#if N != 16
#define PICK(table, x) picked_f32xN(table, (u32xN)x)
#define LESSER(a, b) where_f32xN((a) < (b), a, b)
INLINE f32xN picked_f32xN(const f32 *table, u32xN places) {
    f32xN picked;
    for (int lane = 0; lane < N; lane++) picked[lane] = table[places[lane] % 32];
    return picked;
}
#elif defined __clang__
#define HALF(table, half) *(const f32xN *)(table + half * N)
#define PICK(table, x) __builtin_ia32_vpermi2varps512(HALF(table, 0), (i32xN)x, HALF(table, 1))
#define LESSER(a, b) __builtin_ia32_minps512(a, b, 4)
#else
#define HALF(table, half) *(const f32xN *)(table + half * N)
#define PICK(table, x) __builtin_shuffle(HALF(table, 0), HALF(table, 1), (i32xN)x)
#define LESSER(a, b) __builtin_ia32_minps512_mask(a, b, a, -1, 4)
#endif
INLINE f32xN erf_f32xN(f32xN x) {
    const u32xN sign = (u32xN)x & 0x80000000;
    const f32xN most = splat_f32xN(3.92f), middle = splat_f32xN(0.1875f);
    const f32xN magnitude = LESSER(most, (f32xN)((u32xN)x ^ sign)); /* or NaN, its second operand */
    const f32xN shifted = magnitude + 0x1.8p20f, r = magnitude - (shifted - 0x1.8p20f);
    const f32xN tail = PICK(ERF[1], shifted) + r * (PICK(ERF[2], shifted) + r * (
        PICK(ERF[3], shifted) + r * PICK(ERF[4], shifted)));
    const f32xN value = LESSER(magnitude, middle) + PICK(ERF[0], shifted) + r * tail;
    return (f32xN)((u32xN)value | sign);
}
#undef HALF
#undef PICK
#undef LESSER
#else /* above 1.125 the fourth root of its distance from 1, almost a line there, is a polynomial */
INLINE f32xN erf_f32xN(f32xN x) {
    const u32xN sign = (u32xN)x & 0x80000000;
    const f32xN magnitude = (f32xN)((u32xN)x ^ sign), square = x * x;
    const f32xN slope = 0.12837917f + square * (-0.37612602f + square * (
        0.11283256f + square * (-0.02683922f + square * (0.005160259f + square * (
        -0.0007765797f + square * 7.063506e-05f)))));
    const f32xN root = 1.0054985f + magnitude * (-0.3087858f + magnitude * (
        -0.063425936f + magnitude * (-0.05047935f + magnitude * (0.06612185f + magnitude * (
        -0.022213398f + magnitude * (0.0032341972f + magnitude * -0.00017949642f))))));
    const f32xN power = root * root, one = splat_f32xN(1.0f);
    const f32xN large = where_f32xN(magnitude > 3.92f, one, 1.0f - power * power);
    const f32xN near = magnitude + magnitude * slope;
    return (f32xN)((u32xN)where_f32xN(magnitude < 1.125f, near, large) | sign);
}
#endif

/* What a kernel of many functions calls, as a compiler takes long for many copies. */
#define CALLED(f) \
    static __attribute__((noinline)) f32xN called_##f##_f32xN(f32xN x) { return f##_f32xN(x); }
#define EACH(F) F(exp) F(exp2) F(log) F(log2) F(sin) F(cos) F(atan) F(erf) F(logistic) F(tanh)
EACH(CALLED)
#if N == 1
#define CALLED_SCALAR(f) SCALAR(called_##f##_f32, f32, f32)
EACH(CALLED_SCALAR)
#undef CALLED_SCALAR
SCALAR(exp_f32, f32, f32)
SCALAR(exp2_f32, f32, f32)
SCALAR(log_f32, f32, f32)
SCALAR(log2_f32, f32, f32)
SCALAR(sin_f32, f32, f32)
SCALAR(cos_f32, f32, f32)
SCALAR(atan_f32, f32, f32)
SCALAR(erf_f32, f32, f32)
SCALAR(logistic_f32, f32, f32)
SCALAR(tanh_f32, f32, f32)
#endif
#undef CALLED
#undef EACH
