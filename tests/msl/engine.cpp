// Runs one grid of a compute kernel on the host: the threads of a threadgroup interleave, its
// memory starts as garbage, and what Metal leaves undefined is an error with a place.
//
// Two builds. By default a thread of the grid is a fiber; those that can run do so in an order
// drawn from a seed, until the next barrier or simdgroup operation. With -DMSL_THREADS each is a
// thread of the machine, so that ThreadSanitizer sees every access that no barrier orders.
//
// As a library, msl_run is called with addresses. As a program (-DMSL_MAIN, for the sanitizers)
// a file of jobs says which buffers there are and what to launch; each buffer is an allocation of
// exactly its size.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include <sys/mman.h>

static const uint32_t WIDTH = 32, MOST_THREADS = 1024, SLOT = 64;

// What a thread knows of its place; the generated entry points read it by name.
struct Context {
    uint32_t thread[3], group[3], threads[3], groups[3];
    uint32_t number, lane, simdgroup, simdgroups;
};
struct Region { char *start; uint64_t size; };  // of threadgroup memory
struct Launch {
    void (*entry)(uint64_t *, const Context *);
    uint64_t *buffers;
    uint32_t groups[3], threads[3];
    const Region *regions;
    uint32_t region_count, seed;
};

static char failure[512];

static void place_threads(std::vector<Context> &contexts, const Launch &launch, uint32_t group) {
    const uint32_t *groups = launch.groups, *threads = launch.threads;
    const uint32_t count = threads[0] * threads[1] * threads[2];
    contexts.resize(count);
    for (uint32_t number = 0; number < count; number++) {
        Context &one = contexts[number];
        uint32_t in_group = number, in_grid = group;
        for (int side = 0; side < 3; side++) {
            one.thread[side] = in_group % threads[side], in_group /= threads[side];
            one.group[side] = in_grid % groups[side], in_grid /= groups[side];
            one.threads[side] = threads[side], one.groups[side] = groups[side];
        }
        one.number = number, one.lane = number % WIDTH, one.simdgroup = number / WIDTH;
        one.simdgroups = (count + WIDTH - 1) / WIDTH;
    }
}

// Signalling patterns: a float read too early is NaN, an index far out of range.
__attribute__((no_sanitize("address", "thread", "undefined")))
static void poison(const Launch &launch) {
    static volatile const uint32_t pattern = 0x7FE0DEAD;
    for (uint32_t i = 0; i < launch.region_count; i++)
        for (uint64_t at = 0; at < launch.regions[i].size; at++)
            launch.regions[i].start[at] = ((const volatile char *)&pattern)[at % 4];
}

// clang calls it for bfloat; GCC's library of version 12 lacks it.
extern "C" __bf16 __truncsfbf2(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    const bool nan = (bits & 0x7FFFFFFF) > 0x7F800000;
    const uint16_t top = nan ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    __bf16 result;
    memcpy(&result, &top, 2);
    return result;
}

#ifndef MSL_THREADS

#include <setjmp.h>
#include <ucontext.h>
#if __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#endif

enum State { READY, AT_BARRIER, IN_SIMDGROUP, DONE };

struct Fiber {
    ucontext_t context;
    jmp_buf jump;
    char *stack = nullptr;
    void *fake_stack = nullptr;
    bool ready = false, started = false;
    Context *at;
    State state;
    const void *site;  // where it waits
    char given[SLOT];  // to the others of its simdgroup
};

static const size_t STACK = 256 << 10;
static std::deque<Fiber> fibers;  // which stay where they are
static Fiber *current;
[[maybe_unused]] static ucontext_t scheduler;
static const Launch *running;
static uint32_t population;
static char exchanged[MOST_THREADS / WIDTH][WIDTH][SLOT];
static uint32_t present[MOST_THREADS / WIDTH];

// Switches go through jumps: unlike swapcontext they make no system call. AddressSanitizer follows
// the stacks only if it is told.

#if __has_feature(address_sanitizer)

static void leave_fiber() {
    static const void *bottom;
    static size_t size;
    Fiber *self = current;
    __sanitizer_start_switch_fiber(&self->fake_stack, bottom, size);
    swapcontext(&self->context, &scheduler);
    __sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &size);
}

static void enter_fiber(Fiber &fiber) {
    void *own = nullptr;
    current = &fiber;
    __sanitizer_start_switch_fiber(&own, fiber.stack, STACK);
    swapcontext(&scheduler, &fiber.context);
    __sanitizer_finish_switch_fiber(own, nullptr, nullptr);
}

#else

static jmp_buf scheduler_jump;

static void leave_fiber() {
    if (!_setjmp(current->jump)) _longjmp(scheduler_jump, 1);
}

static void enter_fiber(Fiber &fiber) {
    current = &fiber;
    if (_setjmp(scheduler_jump)) return;
    if (fiber.started) _longjmp(fiber.jump, 1);
    fiber.started = true;
    setcontext(&fiber.context);
}

#endif

// A fiber runs one thread after the other: it is not made anew for each.
static void fiber_main() {
#if __has_feature(address_sanitizer)
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
    for (;;) {
        running->entry(running->buffers, current->at);
        current->state = DONE;
        leave_fiber();
    }
}

static void prepare(Fiber &fiber) {
    if (!fiber.stack)
        fiber.stack = (char *)mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack, fiber.context.uc_stack.ss_size = STACK;
    makecontext(&fiber.context, fiber_main, 0);
    fiber.ready = true, fiber.started = false;
}

static void fail(const char *what, const Fiber *fiber) {
    if (failure[0]) return;
    const Context &one = *fiber->at;
    snprintf(failure, sizeof failure, "%s (threadgroup %u,%u,%u, thread %u)", what,
             one.group[0], one.group[1], one.group[2], one.number);
}

static void wait_in(State state, const void *site) {
    current->state = state, current->site = site;
    leave_fiber();
}

extern "C" uint32_t msl_lane() { return current->at->lane; }

extern "C" __attribute__((noinline)) void msl_barrier(int whole_threadgroup) {
    memset(current->given, 0, SLOT);
    wait_in(whole_threadgroup ? AT_BARRIER : IN_SIMDGROUP, __builtin_return_address(0));
}

extern "C" __attribute__((noinline))
uint32_t msl_exchange(const void *own, uint32_t size, void *all) {
    if (size > SLOT) return fail("a value too large for a simdgroup operation", current), 0;
    memcpy(current->given, own, size);
    wait_in(IN_SIMDGROUP, __builtin_return_address(0));
    const uint32_t mine = current->at->simdgroup;
    for (uint32_t lane = 0; lane < WIDTH; lane++)
        memcpy((char *)all + lane * size, exchanged[mine][lane], size);
    return present[mine];
}

extern "C" void msl_absent() { fail("a simdgroup operation reads a lane that has ended", current); }

// Let the simdgroups go on whose every thread has ended or waits at one and the same operation.
static bool release_simdgroups() {
    bool any = false;
    for (uint32_t first = 0; first < population; first += WIDTH) {
        const uint32_t last = std::min(population, first + WIDTH), group = first / WIDTH;
        const Fiber *waiting = nullptr;
        bool whole = true;
        for (uint32_t i = first; i < last; i++) {
            if (fibers[i].state == IN_SIMDGROUP) waiting = &fibers[i];
            else if (fibers[i].state != DONE) whole = false;
        }
        if (!waiting || !whole) continue;
        present[group] = 0;
        for (uint32_t i = first; i < last; i++) {
            if (fibers[i].state == DONE) continue;
            if (fibers[i].site != waiting->site)
                fail("a simdgroup is in two operations at once (divergent)", waiting);
            present[group] |= 1u << (i - first);
            memcpy(exchanged[group][i - first], fibers[i].given, SLOT);
            fibers[i].state = READY;
        }
        any = true;
    }
    return any;
}

// Everything waits: all of it at one barrier, or this is an error.
static void release_barrier() {
    const Fiber *waiting = nullptr;
    uint32_t done = 0, held = 0;
    bool same = true;
    for (uint32_t i = 0; i < population; i++) {
        if (fibers[i].state == DONE) done++;
        else if (fibers[i].state == IN_SIMDGROUP) held++, waiting = &fibers[i];
        else if (!waiting || waiting->state == AT_BARRIER) {
            same = same && (!waiting || waiting->site == fibers[i].site);
            waiting = &fibers[i];
        }
    }
    if (held) return fail("part of a simdgroup waits where the rest never comes", waiting);
    if (done) return fail("a barrier that threads which have ended never reach", waiting);
    if (!same) return fail("threads wait at different barriers (divergent)", waiting);
    for (uint32_t i = 0; i < population; i++) fibers[i].state = READY;
}

static void run_group(const Launch &launch, std::vector<Context> &contexts, std::mt19937 &random) {
    population = contexts.size(), running = &launch;
    if (fibers.size() < population) fibers.resize(population);
    std::vector<uint32_t> order(population);
    for (uint32_t i = 0; i < population; i++) {
        if (!fibers[i].ready) prepare(fibers[i]);
        fibers[i].at = &contexts[i], fibers[i].state = READY, order[i] = i;
    }
    for (uint32_t done = 0; done < population && !failure[0];) {
        bool any = false;
        std::shuffle(order.begin(), order.end(), random);
        for (uint32_t i : order) {
            if (fibers[i].state != READY) continue;
            any = true;
            enter_fiber(fibers[i]);
            done += fibers[i].state == DONE;
            if (failure[0]) break;
        }
        if (done < population && !release_simdgroups() && !any) release_barrier();
    }
    if (failure[0])
        for (Fiber &one : fibers) one.ready = false;  // some are in the middle of a thread
}

#else

#include <pthread.h>
#include <thread>

// A thread that leaves a barrier late would count as synchronised with those that have come to the
// next one already, were that the same object: two take turns, so that no race hides.
struct Barrier {
    pthread_barrier_t turns[2];
    void prepare(uint32_t count) {
        for (pthread_barrier_t &one : turns) pthread_barrier_init(&one, nullptr, count);
    }
    void wait(uint32_t &turn) { pthread_barrier_wait(&turns[turn++ % 2]); }
};

static thread_local const Context *current;
static thread_local uint32_t turn, part_turn;
static Barrier whole, parts[MOST_THREADS / WIDTH];
static char exchanged[MOST_THREADS / WIDTH][WIDTH][SLOT];
static uint32_t population;

extern "C" uint32_t msl_lane() { return current->lane; }

extern "C" void msl_barrier(int whole_threadgroup) {
    whole_threadgroup ? whole.wait(turn) : parts[current->simdgroup].wait(part_turn);
}

extern "C" uint32_t msl_exchange(const void *own, uint32_t size, void *all) {
    const uint32_t mine = current->simdgroup, left = population - mine * WIDTH;
    memcpy(exchanged[mine][current->lane], own, size);
    parts[mine].wait(part_turn);
    for (uint32_t lane = 0; lane < WIDTH; lane++)
        memcpy((char *)all + lane * size, exchanged[mine][lane], size);
    parts[mine].wait(part_turn);
    return left >= WIDTH ? ~0u : (1u << left) - 1;
}

extern "C" void msl_absent() {}

static void run_group(const Launch &launch, std::vector<Context> &contexts, std::mt19937 &) {
    population = contexts.size();
    whole.prepare(population);
    for (uint32_t first = 0; first < population; first += WIDTH)
        parts[first / WIDTH].prepare(std::min(WIDTH, population - first));
    std::vector<std::thread> threads;
    for (Context &one : contexts)
        threads.emplace_back([&] { current = &one, launch.entry(launch.buffers, current); });
    for (std::thread &one : threads) one.join();
}

#endif

// Runs a grid; what is wrong with it, or null.
extern "C" const char *msl_run(const Launch *launch) {
    failure[0] = 0;
    const uint32_t *groups = launch->groups;
    std::mt19937 random(launch->seed);
    std::vector<uint32_t> order(groups[0] * groups[1] * groups[2]);
    for (uint32_t i = 0; i < order.size(); i++) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    std::vector<Context> contexts;
    for (uint32_t group : order) {
        place_threads(contexts, *launch, group);
        poison(*launch);
        run_group(*launch, contexts, random);
        if (failure[0]) return failure;
    }
    return nullptr;
}

#ifdef MSL_MAIN

#include <dlfcn.h>

// One job a line, with numbers between spaces:
//   buffer BYTES FILE              read from the file, written back at the end
//   region KERNEL OFFSET BYTES     threadgroup memory, from the kernel's entry point on
//   launch KERNEL GX GY GZ TX TY TZ SEED {BUFFER OFFSET}
int main(int, char **arguments) {
    struct Memory { char *start; size_t size; std::string path; };
    struct Named { std::string kernel; Region region; };
    std::vector<Memory> memories;
    std::vector<Named> named;
    FILE *jobs = fopen(arguments[1], "r");
    char kind[16], text[256];
    while (fscanf(jobs, "%15s", kind) == 1) {
        if (!strcmp(kind, "buffer")) {
            size_t size;
            if (fscanf(jobs, "%zu %255s", &size, text) != 2) return 2;
            Memory one = {(char *)malloc(size), size, text};
            FILE *file = fopen(text, "rb");
            if (fread(one.start, 1, size, file) != size) return 2;
            fclose(file);
            memories.push_back(one);
            continue;
        }
        if (fscanf(jobs, "%255s", text) != 1) return 2;
        auto entry = (char *)dlsym(RTLD_DEFAULT, (std::string("msl_entry_") + text).c_str());
        if (!strcmp(kind, "region")) {
            long offset, size;
            if (fscanf(jobs, "%ld %ld", &offset, &size) != 2) return 2;
            named.push_back({text, {entry + offset, (uint64_t)size}});
            continue;
        }
        Launch launch = {};
        uint32_t *numbers[] = {&launch.groups[0], &launch.groups[1], &launch.groups[2],
                               &launch.threads[0], &launch.threads[1], &launch.threads[2],
                               &launch.seed};
        for (uint32_t *number : numbers)
            if (fscanf(jobs, "%u", number) != 1) return 2;
        std::vector<uint64_t> buffers;
        size_t number, offset;
        while (fscanf(jobs, "%zu %zu", &number, &offset) == 2)
            buffers.push_back((uint64_t)(memories[number].start + offset));
        std::vector<Region> regions;
        for (const Named &one : named)
            if (one.kernel == text) regions.push_back(one.region);
        launch.entry = (void (*)(uint64_t *, const Context *))entry;
        launch.buffers = buffers.data(), launch.regions = regions.data();
        launch.region_count = regions.size();
        if (const char *what = msl_run(&launch)) return fprintf(stderr, "%s: %s\n", text, what), 3;
    }
    for (const Memory &one : memories) {
        FILE *file = fopen(one.path.c_str(), "wb");
        fwrite(one.start, 1, one.size, file), free(one.start);
        fclose(file);
    }
    fflush(nullptr);
    return 0;
}

#endif
