/* Collectives among processes are steps that the runtime carries out: `exchange`, which it sets before
   the program first runs, does the one of a number, and says 0 if it failed. Then the program ends. */

#define EXCHANGES \
    static _Bool (*exchange)(long number, void *operand, void *result); \
    void lamina_set_exchange(_Bool (*function)(long, void *, void *)) { exchange = function; }
#define EXCHANGE(number, at, operand, result) { \
        const double started = seconds ? lamina_clock() : 0; \
        if (!exchange(at, operand, result)) return; \
        if (seconds) seconds[number] = lamina_clock() - started; \
    }
