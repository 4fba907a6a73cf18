/* Single instructions that C++ has no words for, and the types that they need. There is no loop here:
   what is done several times is in the text of the kernel. */

#define INLINED __attribute__((always_inline))  // else ptxas makes products wait for each other
#define NOT_UNROLLED _Pragma("unroll 1")
#if __CUDA_ARCH__ < 900
#define HAS_TMA 0
#else
#define HAS_TMA 1
#endif
INLINE u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
/* The number of a thread's warpgroup. A shuffle tells the compiler that it is equal in all
   lanes of a warp: descriptors of tiles have to be. */
INLINE u32 warp_group() { return __shfl_sync(~0u, threadIdx.x / 128, 0); }

/* Barriers in shared memory (mbarrier). A phase ends once all have arrived, and all bytes have come
   that the copy engine was asked for. */
INLINE void start_barrier(u64 *barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :: "r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
INLINE void publish_barriers() {  // to the copy engine
#if HAS_TMA
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
INLINE void arrive(u64 *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared_address(barrier)) : "memory");
}
/* Makes what the threads have written visible to tensor cores and the copy engine, after the next
   barrier. */
INLINE void publish() {
#if HAS_TMA
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/* Barriers of the block by number: all of `threads` arrive, of which some wait. */
template <int barrier, int threads> INLINE void wait_at() {
    asm volatile("bar.sync %0, %1;" :: "n"(barrier), "n"(threads) : "memory");
}
template <int barrier, int threads> INLINE void arrive_at() {
    asm volatile("bar.arrive %0, %1;" :: "n"(barrier), "n"(threads) : "memory");
}

/* Copies by the copy engine (TMA), as a map describes the array, from these places on. */
struct __align__(64) Map { u64 words[16]; };
#define MAP(name) const __grid_constant__ Map name
#if HAS_TMA
INLINE void expect_bytes(u64 *full, u32 bytes) {  // and arrives
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(shared_address(full)), "r"(bytes) : "memory");
}
INLINE bool phase_has_ended(u64 *barrier, u32 parity) {  // waits for a while
    u32 done;
    asm volatile("{\n .reg .pred p;\n"
                 " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 " selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done) : "r"(shared_address(barrier)), "r"(parity) : "memory");
    return done;
}
#define COPY_BOX(rank, places, ...) \
    asm volatile("cp.async.bulk.tensor." rank ".shared::cluster.global.mbarrier::complete_tx::bytes" \
                 " [%0], [%1, {" places "}], [%2];" \
                 :: "r"(to), "l"(map), "r"(shared_address(full)), __VA_ARGS__ \
                 : "memory")
INLINE void copy_box(u32 to, const Map *map, u64 *full, int a, int b) {
    COPY_BOX("2d", "%3, %4", "r"(a), "r"(b));
}
INLINE void copy_box(u32 to, const Map *map, u64 *full, int a, int b, int c) {
    COPY_BOX("3d", "%3, %4, %5", "r"(a), "r"(b), "r"(c));
}
INLINE void copy_box(u32 to, const Map *map, u64 *full, int a, int b, int c, int d) {
    COPY_BOX("4d", "%3, %4, %5, %6", "r"(a), "r"(b), "r"(c), "r"(d));
}
INLINE void copy_box(u32 to, const Map *map, u64 *full, int a, int b, int c, int d, int e) {
    COPY_BOX("5d", "%3, %4, %5, %6, %7", "r"(a), "r"(b), "r"(c), "r"(d), "r"(e));
}
/* In im2col mode, of images of one to three axes: the corner of the first pixel's window, then the
   place in the window. */
#define COPY_IM2COL(rank, places, offsets, ...) \
    asm volatile("cp.async.bulk.tensor." rank ".shared::cluster.global.im2col.mbarrier::complete_tx" \
                 "::bytes [%0], [%1, {" places "}], [%2], {" offsets "};" \
                 :: "r"(to), "l"(map), "r"(shared_address(full)), __VA_ARGS__ \
                 : "memory")
INLINE void copy_im2col(u32 to, const Map *map, u64 *full, int a, int b, int c, u16 x) {
    COPY_IM2COL("3d", "%3, %4, %5", "%6", "r"(a), "r"(b), "r"(c), "h"(x));
}
INLINE void copy_im2col(u32 to, const Map *map, u64 *full, int a, int b, int c, int d, u16 x, u16 y) {
    COPY_IM2COL("4d", "%3, %4, %5, %6", "%7, %8", "r"(a), "r"(b), "r"(c), "r"(d), "h"(x), "h"(y));
}
INLINE void copy_im2col(u32 to, const Map *map, u64 *full, int a, int b, int c, int d, int e,
                        u16 x, u16 y, u16 z) {
    COPY_IM2COL("5d", "%3, %4, %5, %6, %7", "%8, %9, %10", "r"(a), "r"(b), "r"(c), "r"(d), "r"(e),
                "h"(x), "h"(y), "h"(z));
}
#endif

/* Products of tensor cores that run while threads do other things (wgmma): of 64 rows by n columns
   and 16 k of 16 bits, or 8 of tf32, by a warpgroup. `more`: there are sums already. */
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* The descriptor of a tile in units of 16 bytes: its address, from bit 16 on the bytes from panel to
   panel, 8192 of 64 lines, and from bit 32 on those of a swizzle atom, 1024. Bit 62 says that the
   swizzle has 128 bytes. */
INLINE u64 descriptor_of(u32 chunk_and_panel) {
    u64 where;
    asm("mov.b64 %0, {%1, %2};" : "=l"(where) : "r"(chunk_and_panel), "n"(1024 >> 4 | 1 << 30));
    return where;
}
INLINE u64 descriptor(u32 chunk) { return descriptor_of(chunk | 8192 >> 4 << 16); }
#define OUT8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), \
                "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define OUT32(i) OUT8(i), OUT8(i + 8), OUT8(i + 16), OUT8(i + 24)
#define OUT_64 OUT32(0)
#define OUT_128 OUT32(0), OUT32(32)
#define OUT_256 OUT32(0), OUT32(32), OUT32(64), OUT32(96)
#define IN_64 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define IN_128 IN_64 ", " "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define IN_256 IN_128 ", " "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA(type, n, A, B, TA, TB, MORE) \
    template <int transposed_a, int transposed_b> \
    INLINE void wgmma_##type(f32 (&d)[n / 2], u64 a, u64 b, bool more) { \
        asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " MORE ", 0;\n" \
                     " wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type \
                     " {" IN_##n "}, " A ", " B ", p, 1, 1, " TA ", " TB ";\n}" \
                     : OUT_##n : "l"(a), "l"(b), "n"(transposed_a), "n"(transposed_b), "r"((int)more)); \
    }
#define WGMMA_SIZES(type) \
    WGMMA(type, 64, "%32", "%33", "%34", "%35", "%36") \
    WGMMA(type, 128, "%64", "%65", "%66", "%67", "%68") \
    WGMMA(type, 256, "%128", "%129", "%130", "%131", "%132")
WGMMA_SIZES(bf16)
WGMMA_SIZES(f16)
/* The left factor out of registers, which lie as sums do; the product is added to the sums. */
#define WGMMA_OF_REGISTERS(type, n, A, B, C, D, E, TB) \
    template <int transposed_b> \
    INLINE void wgmma_of_registers_##type(f32 (&d)[n / 2], const u32 *a, u64 b) { \
        asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, 1, 0;\n" \
                     " wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." #type "." #type \
                     " {" IN_##n "}, {" A ", " B ", " C ", " D "}, " E ", p, 1, 1, " TB ";\n}" \
                     : OUT_##n \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(transposed_b)); \
    }
#define WGMMA_OF_REGISTERS_SIZES(type) \
    WGMMA_OF_REGISTERS(type, 64, "%32", "%33", "%34", "%35", "%36", "%37") \
    WGMMA_OF_REGISTERS(type, 128, "%64", "%65", "%66", "%67", "%68", "%69")
WGMMA_OF_REGISTERS_SIZES(bf16)
WGMMA_OF_REGISTERS_SIZES(f16)
#define WGMMA_TF32(n, A, B, C, D, E, F) \
    INLINE void wgmma_tf32(f32 (&d)[n / 2], u64 a, u64 b, bool more) { \
        asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " C ", 0;\n" \
                     " wgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32" \
                     " {" IN_##n "}, " A ", " B ", p, 1, 1;\n}" \
                     : OUT_##n : "l"(a), "l"(b), "r"((int)more)); \
    } \
    INLINE void wgmma_tf32(f32 (&d)[n / 2], const u32 (&x)[4], u64 b, bool more) { \
        asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " F ", 0;\n" \
                     " wgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32" \
                     " {" IN_##n "}, {" A ", " B ", " C ", " D "}, " E ", p, 1, 1;\n}" \
                     : OUT_##n : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(b), "r"((int)more)); \
    }
WGMMA_TF32(64, "%32", "%33", "%34", "%35", "%36", "%37")
WGMMA_TF32(128, "%64", "%65", "%66", "%67", "%68", "%69")
WGMMA_TF32(256, "%128", "%129", "%130", "%131", "%132", "%133")
/* Before the products of a step, and behind them. */
INLINE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Waits until the products of all but the last `running` steps have ended. */
template <int running> INLINE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(running) : "memory");
}
/* Keeps compilers from moving what reads a sum above a wait, which would make all products wait for
   each other. */
INLINE void hold(f32 &sum) { asm volatile("" : "+f"(sum) :: "memory"); }
/* The registers of a thread, which warpgroups give away and take. */
template <int count> INLINE void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(count));
}
template <int count> INLINE void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(count));
}
#endif

/* Products of 16 rows by 8 columns of tensor cores for which threads wait (mma.sync), of 16 k of
   16 bits, or 8 of tf32, which a warp has in registers; and loads of four matrices of 8 x 8 elements
   of 16 bits into these. */
#if __CUDA_ARCH__ >= 800
#define MMA(type, shape) \
    INLINE void mma_##type(f32 *to, const u32 (&x)[4], u32 a, u32 b) { \
        asm("mma.sync.aligned." shape ".row.col.f32." #type "." #type ".f32 " \
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
            : "+f"(to[0]), "+f"(to[1]), "+f"(to[2]), "+f"(to[3]) \
            : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(a), "r"(b)); \
    }
MMA(bf16, "m16n8k16")
MMA(f16, "m16n8k16")
MMA(tf32, "m16n8k8")
INLINE void load_matrices(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}
INLINE void load_matrices_transposed(u32 (&to)[4], u32 from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(from) : "memory");
}
#endif
/* Four factors of fused multiply-adds. */
INLINE void load_chunk(f32 *to, u32 from) {
    asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]) : "r"(from));
}
/* The same number, of which compilers do not know which it is (an optimisation barrier). */
INLINE f32 opaque(f32 x) { asm("" : "+f"(x)); return x; }

/* A number rounded to tf32 as the copy engine rounds it. */
INLINE u32 rounded_to_tf32(f32 x) {
#if __CUDA_ARCH__ >= 800
    u32 word;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(word) : "f"(x));
    return word;
#else
    return bits<u32>(x);  // no tensor core reads it
#endif
}
/* The left factor of tf32, which tensor cores read out of registers where its tile is transposed. Of
   the 16 rows of a warp and eight steps from 8 * `step` on, lane 4 * i + j has rows i and i + 8 and
   steps j and j + 4. Lanes with i >= 4, whose rows are in the second chunk, read step j + 4 first, so
   that no two lanes meet in a bank. */
INLINE u32 load_word(u32 from) {
    u32 x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
    return x;
}
INLINE void load_transposed(u32 (&to)[4], u32 tile, int step) {
    const int i = threadIdx.x % 32 / 4, high = i / 4, warp = threadIdx.x / 32 % 4;
    const int line = threadIdx.x % 4 + high * 4;
    const u32 from = tile + warp / 2 * 4096 + line * 128
        + (((warp % 2 * 4 + high) ^ line) << 4) + i % 4 * 4;
    const u32 a = load_word(from + step * 1024), b = load_word((from ^ 32) + step * 1024);
    const u32 c = load_word((from ^ 576) + step * 1024), d = load_word((from ^ 608) + step * 1024);
    to[0] = high ? c : a;
    to[1] = high ? d : b;
    to[2] = high ? a : c;
    to[3] = high ? b : d;
}

/* Two numbers rounded to 16 bits, side by side. */
INLINE u32 pack_bf16(f32 first, f32 second) {
    u32 y; asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(y) : "f"(first), "f"(second)); return y;
}
INLINE u32 pack_f16(f32 first, f32 second) {
    u32 y; asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(y) : "f"(first), "f"(second)); return y;
}

/* What the four threads of a row of sums have: the maximum of their values, and the sum. */
INLINE f32 max_of_row(f32 x) {
    x = max_f32(x, __shfl_xor_sync(~0u, x, 1));
    return max_f32(x, __shfl_xor_sync(~0u, x, 2));
}
INLINE f32 sum_of_row(f32 x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

/* Tickets that blocks have drawn, beyond the first one of each. */
__device__ u32 tickets;

/* Results on their way to memory: two neighbours of a row, which registers hold; or of a warp four
   matrices of eight rows by 16 bytes, of which lane i has the address of row i. */
template <class T> struct __align__(2 * sizeof(T)) Pair { T first, second; };
#if HAS_TMA
INLINE void store_matrices(u8 *to, u16 a, u16 b, u16 c, u16 d, u16 e, u16 f, u16 g, u16 h) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(shared_address(to)), "r"(a | b << 16), "r"(c | d << 16), "r"(e | f << 16),
                    "r"(g | h << 16) : "memory");
}
#endif
/* A compiler may take a plain store of 16 bytes apart, and none of a number. */
INLINE void store_chunk(void *to, uint4 chunk) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :: "l"(__cvta_generic_to_global(to)), "r"(chunk.x), "r"(chunk.y), "r"(chunk.z),
                    "r"(chunk.w) : "memory");
}
template <class C> INLINE void store_chunk(void *to, C chunk) { *(C *)to = chunk; }

/* What threads keep of their sums until the next tile: 16 bits of each. */
struct KeptSums {
    u32 pairs[64];
    INLINED __device__ void put(int i, u16 x) { pairs[i / 2] = i % 2 ? pairs[i / 2] | x << 16 : x; }
    INLINED __device__ u16 operator[](int i) const { return pairs[i / 2] >> i % 2 * 16; }
};

/* Partial sums that blocks have written for another one, and for each warp whether they are there. */
template <int places, int count, int threads> struct PartialSums {
    float4 sums[places][count / 4][threads];
    u32 ready[places][threads / 32];
};
template <int places, int count, int threads> __device__ PartialSums<places, count, threads> partial_sums;
INLINE void set_ready(u32 *ready) {
    asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(__cvta_generic_to_global(ready)) : "memory");
}
INLINE u32 is_ready(const u32 *ready) {
    u32 x;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                 : "=r"(x) : "l"(__cvta_generic_to_global(ready)) : "memory");
    return x;
}
