/* The thread pool: made once in a process, shared by every program.

   A job is n calls of body(arg, i). The caller and the workers each have a share of the calls with
   a counter, from which they take blocks, and from those of others once theirs has none left; which
   thread makes which call is open, so a body may write only what belongs to its i.

   One 32-bit word says everything the workers need: a generation that counts jobs, a bit that
   is set while the job can be joined, and the number of workers inside. A worker joins by adding
   one to the word while the bit is set, and the caller clears the bit in the same step in which
   it sees nobody inside. A worker that wakes up late thus finds the job closed, and the caller
   never waits for a thread that the system has not yet scheduled. */

#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#if defined(__linux__)
#define LAMINA_POOL_MOVES
#endif

#if defined(__linux__) && !defined(LAMINA_POOL_CONDVAR)
#define LAMINA_POOL_FUTEX
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#define MOST_THREADS 512
#define MOST_CORES 1024          /* of a cpu_set_t */
#define INSIDE 0x3ffu            /* bits 0-9: workers in the job */
#define OPEN 0x400u              /* bit 10: the job can be joined */
#define GENERATION 0xfffff800u   /* bits 11-31: which job it is */
#define NEXT_GENERATION 0x800u
#define SPIN_NANOSECONDS 10000000
#define SPINS_A_CLOCK 128
#define SPINS_A_YIELD 4096
#define BLOCKS_A_THREAD 32
#define STACK_BYTES (8u << 20)   /* bodies keep scratch arrays there; macOS gives 512 KiB */

/* What a program exports as `lamina_run`. `seconds` is null, or has room for the time of each of its
   kernels; parallel(n, body, arg) calls body(arg, i) for every i below n. */
typedef void (*lamina_body)(void *arg, long i);
typedef void (*lamina_parallel_fn)(long n, lamina_body body, void *arg);
typedef void (*lamina_program)(void **buffers, lamina_parallel_fn parallel, double *seconds);

/* One call of a program, laid out by the caller in one piece: a foreign call pays for each of
   its arguments. The program's parallel loops use `threads` threads of a machine with `cores`. */
typedef struct {
    lamina_program program;
    int64_t threads, cores;
    double *seconds;
    void *buffers[];
} lamina_job;

static struct {
    _Alignas(64) _Atomic uint32_t word;
    _Alignas(64) _Atomic int parked;
    _Alignas(64) lamina_body body;
    void *arg;
    long n, block;
    _Atomic int wanted;          /* threads of the job, the caller included */
    _Atomic int cores;
    int created;                 /* workers that exist */
} pool;

/* The first call of each thread's share that is not taken. */
static struct { _Alignas(64) _Atomic long next; } shares[MOST_THREADS];

static pthread_mutex_t job_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static _Thread_local int busy;        /* this thread is inside a job: calls nest inline */
static _Thread_local int threads = 1; /* what the running program asked for */

#ifdef LAMINA_POOL_FUTEX

static void park(uint32_t seen) {
    syscall(SYS_futex, &pool.word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void wake(void) {
    syscall(SYS_futex, &pool.word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void reset_parking(void) {}

#else

static pthread_mutex_t park_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t park_condition = PTHREAD_COND_INITIALIZER;

static void park(uint32_t seen) {
    pthread_mutex_lock(&park_lock);
    while (atomic_load(&pool.word) == seen) pthread_cond_wait(&park_condition, &park_lock);
    pthread_mutex_unlock(&park_lock);
}

static void wake(void) {
    pthread_mutex_lock(&park_lock);
    pthread_cond_broadcast(&park_condition);
    pthread_mutex_unlock(&park_lock);
}

static void reset_parking(void) {
    pthread_mutex_init(&park_lock, NULL);
    pthread_cond_init(&park_condition, NULL);
}

#endif

static void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

#ifdef LAMINA_POOL_MOVES

/* Threads of a job that share a core take turns. The system moves one of them to an idle core, but
   on a machine of many cores it looks for such threads no more than ten times a second: after a
   process was stopped and continued, its threads may well wait that long on one core. So a worker
   that finds another thread of the job on its core moves itself. */

static _Atomic int core_of[MOST_THREADS];   /* where each thread was last, plus 1; 0: unknown */
static _Atomic int last_on[MOST_CORES];     /* the number of the thread that was last on each core */

static void note_core(int number, int core) {
    if (atomic_load_explicit(&last_on[core], memory_order_relaxed) != number)
        atomic_store_explicit(&last_on[core], number, memory_order_relaxed);
    if (atomic_load_explicit(&core_of[number], memory_order_relaxed) != core + 1)
        atomic_store_explicit(&core_of[number], core + 1, memory_order_relaxed);
}

/* Move this thread to a core that no other thread of the job is on, if it may use one. What it may
   use stays the same. */
static void move_from_others(int number, int count) {
    cpu_set_t usable;
    if (sched_getaffinity(0, sizeof usable, &usable)) return;
    cpu_set_t vacant = usable;
    for (int i = 0; i < count; i++) {
        int core = atomic_load_explicit(&core_of[i], memory_order_relaxed) - 1;
        if (i != number && core >= 0) CPU_CLR(core, &vacant);
    }
    if (!CPU_COUNT(&vacant) || sched_setaffinity(0, sizeof vacant, &vacant)) return;
    sched_setaffinity(0, sizeof usable, &usable);
}

/* Note where this thread is; a worker that is on the core of another thread leaves it. */
static void settle(int number) {
    int core = sched_getcpu();
    if (core < 0 || core >= MOST_CORES) return;
    int count = atomic_load_explicit(&pool.wanted, memory_order_relaxed);
    int other = atomic_load_explicit(&last_on[core], memory_order_relaxed);
    int meets_other = other != number && other < count &&
                      atomic_load_explicit(&core_of[other], memory_order_relaxed) == core + 1;
    if (number && meets_other) {
        move_from_others(number, count);
        core = sched_getcpu();
        if (core < 0 || core >= MOST_CORES) return;
    }
    note_core(number, core);
}

#else

static void settle(int number) { (void)number; }

#endif

/* With more threads than cores some share one, and a spinning one keeps a working one from it. */
static int is_crowded(void) {
    return atomic_load_explicit(&pool.wanted, memory_order_relaxed) >
           atomic_load_explicit(&pool.cores, memory_order_relaxed);
}

/* The first call of a thread's share. */
static long share(int number, int count) {
    return pool.n / count * number + pool.n % count * number / count;
}

/* Take blocks of thread `number`'s own share, whose memory its caches may hold from the job before
   and whose counter nobody else is at, and then of what is left of the others'. */
static void take_blocks(int number) {
    lamina_body body = pool.body;
    void *arg = pool.arg;
    long block = pool.block;
    int count = atomic_load_explicit(&pool.wanted, memory_order_relaxed);
    for (int turn = 0; turn < count; turn++) {
        int whose = (number + turn) % count;
        long end = share(whose + 1, count);
        for (;;) {
            long first = atomic_fetch_add_explicit(&shares[whose].next, block, memory_order_relaxed);
            if (first >= end) break;
            long last = end - first < block ? end : first + block;
            for (long i = first; i < last; i++) body(arg, i);
        }
    }
}

/* Wait until a job other than `generation` is there; return the word that says so. */
static uint32_t await_job(uint32_t generation) {
    int64_t deadline = 0;
    for (uint32_t spins = 1;; spins++) {
        uint32_t word = atomic_load_explicit(&pool.word, memory_order_acquire);
        if ((word & GENERATION) != generation) return word;
        pause_core();
        if (spins % SPINS_A_CLOCK) continue;
        int64_t time = now();
        if (!deadline) deadline = time + SPIN_NANOSECONDS;
        if (!is_crowded() && time < deadline) continue;
        /* Counting first and reading the word again pairs with the caller, which changes the
           word first and then reads the count: one of the two sees the other. */
        atomic_fetch_add(&pool.parked, 1);
        word = atomic_load(&pool.word);
        if ((word & GENERATION) == generation) park(word);
        atomic_fetch_sub(&pool.parked, 1);
        deadline = 0;
    }
}

static void *work(void *argument) {
    int number = (int)(intptr_t)argument;
    uint32_t generation = 0;
    busy = 1;
    for (;;) {
        uint32_t word = await_job(generation);
        generation = word & GENERATION;
        if (number >= atomic_load_explicit(&pool.wanted, memory_order_relaxed)) continue;
        if (!is_crowded()) settle(number);
        while (word & OPEN) {
            if (!atomic_compare_exchange_weak(&pool.word, &word, word + 1)) continue;
            generation = word & GENERATION;
            take_blocks(number);
            atomic_fetch_sub_explicit(&pool.word, 1, memory_order_release);
            break;
        }
    }
    return NULL;
}

static void before_fork(void) { pthread_mutex_lock(&job_lock); }

static void after_fork_in_parent(void) { pthread_mutex_unlock(&job_lock); }

/* The child has none of the workers; the next job makes new ones. */
static void after_fork_in_child(void) {
    pthread_mutex_init(&job_lock, NULL);
    reset_parking();
    atomic_store(&pool.word, 0);
    atomic_store(&pool.parked, 0);
    pool.created = 0;
}

static void handle_forks(void) {
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* Make workers until `count` exist. Fewer are fine: the caller can do all the work itself. */
static void create_workers(int count) {
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own threads */
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (; pool.created < count; pool.created++) {
        pthread_t thread;
        void *number = (void *)(intptr_t)(pool.created + 1);
        if (pthread_create(&thread, &attributes, work, number)) break;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void run_job(long n, lamina_body body, void *arg) {
    long block = n / ((long)threads * BLOCKS_A_THREAD);
    pool.body = body;
    pool.arg = arg;
    pool.n = n;
    pool.block = block > 1 ? block : 1;
    for (int i = 0; i < threads; i++)
        atomic_store_explicit(&shares[i].next, share(i, threads), memory_order_relaxed);
    atomic_store_explicit(&pool.wanted, threads, memory_order_relaxed);
    if (!is_crowded()) settle(0);
    uint32_t word = (atomic_load(&pool.word) & GENERATION) + NEXT_GENERATION;
    if (!(word & GENERATION)) word = NEXT_GENERATION; /* 0 is what new workers have seen */
    atomic_store(&pool.word, word | OPEN);
    if (atomic_load(&pool.parked)) wake();
    take_blocks(0);
    uint32_t alone = word | OPEN;
    for (uint32_t spins = 1; !atomic_compare_exchange_weak(&pool.word, &alone, word); spins++) {
        alone = word | OPEN;
        if (spins % SPINS_A_YIELD == 0) sched_yield();
        pause_core();
    }
}

/* Call body(arg, i) for every i in 0 .. n - 1 and return when all calls have. */
void lamina_parallel(long n, lamina_body body, void *arg) {
    if (n <= 1 || threads <= 1 || busy) {
        for (long i = 0; i < n; i++) body(arg, i);
        return;
    }
    pthread_once(&fork_once, handle_forks);
    pthread_mutex_lock(&job_lock);
    if (pool.created < threads - 1) create_workers(threads - 1);
    busy = 1;
    run_job(n, body, arg);
    busy = 0;
    pthread_mutex_unlock(&job_lock);
}

void lamina_call(lamina_job *job) {
    threads = job->threads > MOST_THREADS ? MOST_THREADS : (int)job->threads;
    atomic_store_explicit(&pool.cores, (int)job->cores, memory_order_relaxed);
    job->program(job->buffers, lamina_parallel, job->seconds);
}
