/* Sums of products of bytes by tiles. A tile of sums has up to 16 rows of `lanes` int32; to it the product
   of a tile of rows, of up to 16 words of four bytes each, and of a tile of words, one for each lane, is
   added. Tiles 0 to 3 are of sums, 4 of rows, and 5 to 7 of words. */

#if defined __AMX_INT8__ && defined __linux__
/* A process has to ask for the registers of tiles; see `lamina/runtime/tile_registers.py`. */
long syscall(long, ...);
__attribute__((constructor)) static void lamina_ask_for_tiles(void) { syscall(158, 0x1023, 18); }

typedef struct { u8 palette, unused[15]; u16 row_bytes[16]; u8 rows[16]; } tile_shapes;
#define TILES(row_count, words, lanes) \
    static const tile_shapes shapes = { \
        1, {0}, \
        {4 * lanes, 4 * lanes, 4 * lanes, 4 * lanes, 4 * words, 4 * lanes, 4 * lanes, 4 * lanes}, \
        {row_count, row_count, row_count, row_count, row_count, words, words, words}, \
    }; \
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes));
#define ZERO_TILE(t) __asm__ volatile("tilezero %%tmm" #t : :);
#define LOAD_TILE(t, p, step) \
    __asm__ volatile("tileloadd (%0, %1), %%tmm" #t : : "r"(p), "r"((i64)(step)) : "memory");
#define LOAD_ROWS LOAD_TILE
#define LOAD_WORDS LOAD_TILE
#define STORE_TILE(t, p) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0, %1)" : : "r"(p), "r"((i64)sizeof(*p)) : "memory");
#define TILE_DOT_i8_i8 "tdpbssd"
#define TILE_DOT_i8_u8 "tdpbsud"
#define TILE_DOT_u8_i8 "tdpbusd"
#define TILE_DOT_u8_u8 "tdpbuud"
#define TILE_DOT(t, A, a, B, b) \
    __asm__ volatile(TILE_DOT_##A##_##B " %%tmm" #b ", %%tmm" #a ", %%tmm" #t : :);
#define END_TILES __asm__ volatile("tilerelease" : :);

#else
#define TILES(row_count, words, lanes) \
    enum { TILE_ROWS = row_count, TILE_WORDS = words, TILE_LANES = lanes }; \
    u8 tile[8][16][64];
#define ZERO_TILE(t) \
    for (int i = 0; i < 16; i++) for (int j = 0; j < 64; j++) tile[t][i][j] = 0;
#define LOAD_ROWS(t, p, step) COPY_TILE(t, TILE_ROWS, TILE_WORDS, p, step)
#define LOAD_WORDS(t, p, step) COPY_TILE(t, TILE_WORDS, TILE_LANES, p, step)
#define COPY_TILE(t, rows, words, p, step) \
    for (int i = 0; i < rows; i++) \
        for (int j = 0; j < 4 * words; j++) tile[t][i][j] = ((const u8 *)(p))[i * (i64)(step) + j];
#define STORE_TILE(t, p) \
    for (int i = 0; i < TILE_ROWS; i++) \
        for (int j = 0; j < 4 * TILE_LANES; j++) ((u8 *)(p + i))[j] = tile[t][i][j];
#define TILE_DOT(t, A, a, B, b) \
    for (int i = 0; i < TILE_ROWS; i++) \
        for (int j = 0; j < TILE_LANES; j++) \
            for (int k = 0; k < 4 * TILE_WORDS; k++) \
                ((i32 *)tile[t][i])[j] += (A)tile[a][i][k] * (B)tile[b][k / 4][4 * j + k % 4];
#define END_TILES
#endif
