/* Transcendental functions of float64, for vectors of N lanes: see `vectors.c`. Scalars are left to the
   C library, which is as fast for one of them.

   The methods are those of `math.c`, which explains what is the same here. Polynomials are minimax
   fits, relative to the function (Remez), with coefficients rounded to float64. `tests/transcendental`
   bounds the errors. A compiler may contract a * b + c or not, but must not reorder sums. */

/* Adding 1.5 * 2**52 rounds to an integer; 2 * 1023 more make the low bits the biased exponents of two
   factors of 2**n, -1077 <= n <= 1025. */

#define ROUND (6755399441055744.0 + 2046.0)
#if defined __AVX512F__ && N == 8 && !defined __clang__
INLINE f64xN limited_f64xN(f64xN x, f64 low, f64 high) {
    return smaller_f64xN(splat_f64xN(high), x);
}
INLINE f64xN scaled_f64xN(f64xN value, f64xN shifted, f64xN x, f64 low) {
    const u8 rest = BUILTIN(ia32_cmppd512_mask)(x, splat_f64xN(low), 5, -1, 4); /* or NaN */
    return BUILTIN(ia32_scalefpd512_mask)(value, shifted - ROUND, splat_f64xN(0.0), rest, 4);
}
#else
INLINE f64xN limited_f64xN(f64xN x, f64 low, f64 high) {
    const f64xN zero = splat_f64xN(0.0);
    return smaller_f64xN(splat_f64xN(high), where_f64xN((i64xN)(x < low), zero, x));
}
INLINE f64xN scaled_f64xN(f64xN value, f64xN shifted, f64xN x, f64 low) {
    const u64xN bits = (u64xN)shifted, half = bits >> 1, rest = bits - half;
    value = value * (f64xN)(half << 52) * (f64xN)(rest << 52);
    return where_f64xN((i64xN)(x < low), splat_f64xN(0.0), value);
}
#endif
INLINE f64xN exp_f64xN(f64xN x) {
    const f64 low = -746.0;
    const f64xN inside = limited_f64xN(x, low, 710.0);
    const f64xN shifted = inside * 1.4426950408889634 + ROUND, n = shifted - ROUND;
    /* ln 2 in two parts, of which the first has 42 bits: exact times any n */
    const f64xN r = inside - n * 0x1.62e42fefa38p-1 - n * 5.497923018708371e-14;
    const f64xN tail = 0.5 + r * (0.16666666666666685 + r * (0.04166666666666673 + r * (
        0.008333333333316621 + r * (0.0013888888888858447 + r * (0.00019841269897360252 + r * (
        2.4801587373691727e-05 + r * (2.7557233929431177e-06 + r * (2.7557233410152486e-07 + r * (
        2.5112348864949155e-08 + r * 2.092692839223569e-09)))))))));
    return scaled_f64xN(r * r * tail + r + 1.0, shifted, x, low);
}
INLINE f64xN exp2_f64xN(f64xN x) {
    const f64 low = -1075.0;
    const f64xN inside = limited_f64xN(x, low, 1024.0);
    const f64xN shifted = inside + ROUND, r = inside - (shifted - ROUND);
    const f64xN slope = 0.6931471805599453 + r * (0.24022650695910072 + r * (
        0.0555041086648217 + r * (0.009618129107628496 + r * (0.0013333558146390177 + r * (
        0.00015403530393340976 + r * (1.5252733856505572e-05 + r * (1.3215486833125906e-06 + r * (
        1.0178051089845093e-07 + r * (7.054888234065486e-09 + r * (4.45669278931925e-10
        + r * 2.5741822749028296e-11))))))))));
    return scaled_f64xN(r * slope + 1.0, shifted, x, low);
}
#undef ROUND

INLINE f64xN logistic_f64xN(f64xN x) {
    const i64xN negative = x < 0.0;
    const f64xN small = exp_f64xN(where_f64xN(negative, x, -x)), one = splat_f64xN(1.0);
    return where_f64xN(negative, small, one) / (small + 1.0);
}

INLINE f64xN tanh_f64xN(f64xN x) {
    const f64 round = 6755399441055744.0 + 1023.0;
    const u64xN sign = (u64xN)x & (1ULL << 63);
    const f64xN size = smaller_f64xN(splat_f64xN(19.1), (f64xN)((u64xN)x ^ sign));
    const f64xN shifted = size * 2.8853900817779268 + round, n = shifted - round;
    const f64xN power = (f64xN)((u64xN)shifted << 52);
    const f64xN r = size - n * 0x1.62e42fefa38p-2 - n * 2.7489615093541855e-14;
    const f64xN tail = 1.0 + r * (0.6666666666666671 + r * (0.3333333333333321 + r * (
        0.1333333333331471 + r * (0.044444444444678634 + r * (0.012698412727014016 + r * (
        0.0031746031581549863 + r * (0.0007054654561464038 + r * (0.0001410938992674271 + r * (
        2.571159209104794e-05 + r * 4.275294273626487e-06)))))))));
    const f64xN half = (r * r * tail + r) * power + (power * 0.5 - 0.5);
    return (f64xN)((u64xN)(half / (half + 1.0)) | sign);
}

/* For x = 2**n * (1 + f) the logarithm of 1 + f is f - f**2 / 2 + s (f**2 / 2 + R(s**2)), where
   s = f / (2 + f); `logarithm_rest` is the last term. */

#define SQRT_HALF 0x3FE6A09E667F3BCD /* the bits of a float64 */
INLINE f64xN exponent_f64xN(f64xN x, f64xN *f) {
    const i64xN tiny = x < 0x1p-1022;
    const u64xN bits = (u64xN)where_f64xN(tiny, x * 0x1p54, x) - SQRT_HALF;
    *f = (f64xN)((bits & 0xFFFFFFFFFFFFF) + SQRT_HALF) - 1.0;
    return __builtin_convertvector(((i64xN)bits >> 52) - (tiny & 54), f64xN);
}
#undef SQRT_HALF
INLINE f64xN with_poles_f64xN(f64xN x, f64xN logarithm) { /* which is right for finite x > 0 */
    const f64xN nan = splat_f64xN(__builtin_nan("")), inf = splat_f64xN(__builtin_inf());
    const f64xN outside = where_f64xN(x == 0.0, -inf, nan);
    return where_f64xN(x > 0.0, where_f64xN(x < inf, logarithm, x), outside);
}
INLINE f64xN logarithm_rest_f64xN(f64xN f, f64xN half_square) {
    const f64xN s = f / (f + 2.0), square = s * s;
    const f64xN tail = square * (0.6666666666666734 + square * (0.3999999999941704
        + square * (0.2857142874189364 + square * (0.22222198621569303 + square * (
        0.1818356190586447 + square * (0.1531411046627117
        + square * 0.14795367496405423))))));
    return s * (half_square + tail);
}
INLINE f64xN log_f64xN(f64xN x) {
    f64xN f;
    const f64xN n = exponent_f64xN(x, &f), half_square = f * f * 0.5;
    const f64xN rest = logarithm_rest_f64xN(f, half_square) + n * 5.497923018708371e-14;
    return with_poles_f64xN(x, n * 0x1.62e42fefa38p-1 - ((half_square - rest) - f));
}
INLINE f64xN log2_f64xN(f64xN x) {
    f64xN f;
    const f64xN n = exponent_f64xN(x, &f), half_square = f * f * 0.5;
    /* log(1 + f) and 1 / ln 2 are sums of two parts; the product of the first ones, which have 27
       and 26 bits, is exact. */
    const f64xN high = (f64xN)((u64xN)(f - half_square) & 0xFFFFFFFFFC000000);
    const f64xN low = (f - high) - half_square + logarithm_rest_f64xN(f, half_square);
    const f64xN product = high * 0x1.7154768p+0, sum = n + product;
    const f64xN rest = (low + high) * -1.0542692476429138e-08 + low * 0x1.7154768p+0;
    return with_poles_f64xN(x, rest + ((n - sum) + product) + sum);
}

/* Below LIMIT a quadrant has 17 bits, and pi/2 is three parts, of which the first two have 36 bits, so
   that n times them is exact. So is the difference from the first one; `lost` is what the other two
   differences round away, and `low` is what r leaves of the angle. */

#define LIMIT 200000.0
#define ROUND 6755399441055744.0
INLINE f64xN wave_of_f64xN(f64xN r, f64xN low, u64xN quadrant, u64xN sign) {
    const f64xN square = r * r, half = square * 0.5, first = 1.0 - half;
    const f64xN sine = r * square * (-0.1666666666666663 + square * (
        0.00833333333332184 + square * (-0.00019841269829358525 + square * (
        2.755731353850893e-06 + square * (-2.5050734387519514e-08
        + square * 1.589543313478208e-10))))) + low + r;
    const f64xN tail = square * square * (0.041666666666666595 + square * (
        -0.0013888888888873342 + square * (2.4801587289002062e-05 + square * (
        -2.7557314217028066e-07 + square * (2.0875705393753876e-09
        + square * -1.1358749082532808e-11))))) - r * low;
    const f64xN cosine = first + ((1.0 - first) - half + tail);
    const f64xN value = where_f64xN((i64xN)((quadrant & 1) == 0), sine, cosine);
    return (f64xN)((u64xN)value ^ ((quadrant & 2) << 62) ^ sign);
}
RARE f64xN wave_of_large_f64xN(f64xN x, u64 ahead) { /* `ahead` is 1 for a cosine */
    f64xN wave;
    for (int lane = 0; lane < N; lane++)
        wave[lane] = ahead ? __builtin_cos(x[lane]) : __builtin_sin(x[lane]);
    return wave;
}
INLINE f64xN wave_f64xN(f64xN x, u64 ahead, u64xN sign) {
    const f64xN magnitude = (f64xN)((u64xN)x & ~(1ULL << 63));
    const f64xN shifted = magnitude * 0x1.45f306dc9c883p-1 + ROUND, n = shifted - ROUND;
    const f64xN first = magnitude - n * 0x1.921fb54440000p+0, second = n * 0x1.68c234c4c0000p-39;
    const f64xN third = n * 0x1.98a2e03707345p-77, most = first - second;
    const f64xN lost = (first - most) - second - third, r = most + lost;
    const f64xN near = wave_of_f64xN(r, (most - r) + lost, (u64xN)shifted + ahead, sign);
    const i64xN large = ~(magnitude < LIMIT); /* or NaN */
    i64 any = 0;
    for (int lane = 0; lane < N; lane++) any |= large[lane];
    if (__builtin_expect(!any, 1)) return near;
    return where_f64xN(large, wave_of_large_f64xN(x, ahead), near);
}
#undef LIMIT
#undef ROUND
INLINE f64xN sin_f64xN(f64xN x) { return wave_f64xN(x, 0, (u64xN)x & 1ULL << 63); }
INLINE f64xN cos_f64xN(f64xN x) { return wave_f64xN(x, 1, (u64xN){0}); }

/* Above 2 the angle of |x| is pi/2 less that of the reciprocal, and from 1/2 on pi/4 plus that of a
   quotient, which is 1/3 at most. */

INLINE f64xN atan_f64xN(f64xN x) {
    const u64xN sign = (u64xN)x & 1ULL << 63;
    const f64xN magnitude = (f64xN)((u64xN)x ^ sign), one = splat_f64xN(1.0);
    const i64xN middle = magnitude > 0.5, large = magnitude > 2.0;
    const f64xN above = where_f64xN(large, -one, where_f64xN(middle, magnitude - 1.0, magnitude));
    const f64xN below = where_f64xN(large, magnitude, where_f64xN(middle, magnitude + 1.0, one));
    const f64xN z = above / below, square = z * z;
    const f64xN rest = z * square * (-0.3333333333333333 + square * (
        0.19999999999997733 + square * (-0.1428571428535284 + square * (0.11111111086030434
        + square * (-0.09090908130427158 + square * (0.07692284873466437 + square * (
        -0.06666307432895378 + square * (0.0587845906856012 + square * (-0.05233496840991367
        + square * (0.04602039324569115 + square * (-0.037412739313894126 + square * (
        0.024055337352688017 + square * -0.00860710511334655))))))))))));
    const f64xN eighths = where_f64xN(large, one + 1.0, where_f64xN(middle, one, one - 1.0));
    const f64xN angle = eighths * 3.061616997868383e-17 + rest + z + eighths * 0.7853981633974483;
    return (f64xN)((u64xN)angle | sign);
}

/* The error function is odd, and rounds to 1 above 5.95. From 1.5 on the eighth root of its distance
   from 1 is a polynomial of |x| - 3.5; below, x plus x times one of x**2 - 1.125. */

INLINE f64xN erf_f64xN(f64xN x) {
    const u64xN sign = (u64xN)x & 1ULL << 63;
    const f64xN whole = (f64xN)((u64xN)x ^ sign);
    const f64xN magnitude = where_f64xN(whole > 5.95, splat_f64xN(5.95), whole);
    const f64xN y = magnitude * magnitude - 1.125, z = magnitude - 3.5;
    const f64xN slope = -0.1831638252160808 + y * (-0.2002244862536007 + y * (
        0.05207608401055206 + y * (-0.01143924143645807 + y * (0.0021132788818141327 + y * (
        -0.0003338413250436717 + y * (4.588856069847414e-05 + y * (-5.571944171460879e-06 + y * (
        6.052458284904329e-07 + y * (-5.943647526813321e-08 + y * (5.323614297401826e-09 + y * (
        -4.380817381535357e-10 + y * (3.334696426793361e-11 + y * (-2.4075301813757786e-12
        + y * 1.5924408286812511e-13)))))))))))));
    const f64xN root = 0.17134869010152534 + z * (-0.1556295808267607 + z * (
        0.04996976837920447 + z * (-0.0027025332048491303 + z * (-0.00231066734484171 + z * (
        0.0005140361341094136 + z * (2.2694595203002014e-05 + z * (-2.136165521296514e-05 + z * (
        1.7116476403957775e-06 + z * (4.083289418385549e-07 + z * (-7.67808466605226e-08 + z * (
        -3.153927722169595e-09 + z * (1.8046865566004637e-09 + z * (-5.461502527348374e-11 + z * (
        -2.9682307391985106e-11 + z * (2.6695540675118918e-12 + z * (2.212441792496864e-13
        + z * -2.6508733450179887e-14))))))))))))))));
    const f64xN square = root * root, power = square * square;
    const f64xN near = magnitude + magnitude * slope, far = 1.0 - power * power;
    return (f64xN)((u64xN)where_f64xN(magnitude < 1.5, near, far) | sign);
}

/* What a kernel of many functions calls, as a compiler takes long for many copies. */
#define CALLED(f) \
    static __attribute__((noinline)) f64xN called_##f##_f64xN(f64xN x) { return f##_f64xN(x); }
CALLED(exp) CALLED(exp2) CALLED(log) CALLED(log2) CALLED(sin) CALLED(cos) CALLED(atan) CALLED(erf)
CALLED(logistic) CALLED(tanh)
#undef CALLED
