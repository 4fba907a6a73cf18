/* Random bits as PyTorch's generator of the CPU draws them, a block of 624 words at a time.

   M. Matsumoto, T. Nishimura: Mersenne Twister, a 623-dimensionally equidistributed uniform
   pseudorandom number generator (1998), MT19937. PyTorch takes a word at a time from it. */

#pragma GCC optimize("O3")
#include <stdint.h>

enum { WORDS = 624, AHEAD = 397 };

/* The state as PyTorch gives it: 32 bits in each of `words`. `next`: the word to be taken. `left`:
   1 when all are taken, else WORDS + 1 - next. */
typedef struct {
    uint64_t seed;
    int32_t left, is_seeded;
    uint64_t next, words[WORDS];
} generator;

static inline uint32_t twisted(uint32_t word, uint32_t next, uint32_t ahead)
{
    uint32_t both = (word & 0x80000000u) | (next & 0x7fffffffu);
    return ahead ^ (both >> 1) ^ (-(next & 1u) & 0x9908b0dfu);
}

static void next_block(uint32_t *words)
{
    int k = 0;
    for (; k < WORDS - AHEAD; k++)
        words[k] = twisted(words[k], words[k + 1], words[k + AHEAD]);
    for (; k < WORDS - 1; k++)
        words[k] = twisted(words[k], words[k + 1], words[k + AHEAD - WORDS]);
    words[k] = twisted(words[k], words[0], words[AHEAD - 1]);
}

static inline uint32_t tempered(uint32_t word)
{
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680u;
    word ^= (word << 15) & 0xefc60000u;
    return word ^ (word >> 18);
}

/* `count` times whether the lowest 53 bits of two words, the first of which is the upper one, are
   below `limit`. */
void lamina_bernoulli(generator *state, uint8_t *results, int64_t count, uint64_t limit)
{
    if (count == 0)
        return;
    uint32_t words[WORDS];
    uint32_t drawn[1 + WORDS]; /* the first word of a pair that the block before began, and others */
    int position = state->left == 1 ? WORDS : (int)state->next, begun = 0;
    for (int k = 0; k < WORDS; k++)
        words[k] = (uint32_t)state->words[k];
    while (count > 0) {
        if (position == WORDS) {
            next_block(words);
            position = 0;
        }
        int taken = WORDS - position;
        if (taken > 2 * count - begun)
            taken = (int)(2 * count) - begun;
        for (int k = 0; k < taken; k++)
            drawn[begun + k] = tempered(words[position + k]);
        position += taken;
        int total = begun + taken, pairs = total / 2;
        for (int k = 0; k < pairs; k++) {
            uint64_t both = (uint64_t)drawn[2 * k] << 32 | drawn[2 * k + 1];
            results[k] = (both & 0x1fffffffffffffu) < limit;
        }
        results += pairs;
        count -= pairs;
        begun = total % 2;
        if (begun)
            drawn[0] = drawn[total - 1];
    }
    for (int k = 0; k < WORDS; k++)
        state->words[k] = words[k];
    state->next = (uint64_t)position;
    state->left = WORDS + 1 - position;
}
