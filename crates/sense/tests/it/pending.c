// Runs the table of events under way (../../bpf/pending.h) as a program, with threads in the place of processors: each event
// that has a place ends with the time at which it began, and each other one is counted.

#include <pthread.h>
#include <stdio.h>

typedef unsigned int u32;
typedef unsigned long long u64;

#define INLINE static inline
#define MAP(name, value, most, flags) static value name
#define map_lookup(map, key) ((void)(key), (map))

struct slots {
    u32 lost;
};

INLINE u64 mixed(u64 value) {
    value *= 0x9e3779b97f4a7c15ull;
    return value ^ value >> 32;
}

#include "pending.h"

#define THREADS 4
#define ROUNDS 2000000

// Later than the age at which an event is stale, as on a machine that runs for longer than that.
static u64 now_ns = 2 * STALE_NS;
static struct slots slots;
static u32 missing, wrong;

static void *run(void *argument) {
    u64 key = *(u64 *)argument;
    for (int round = 0; round < ROUNDS; round++) {
        u32 slot;
        u64 now = __sync_add_and_fetch(&now_ns, 1);
        begin(&slots, key, 0, now);
        u64 begun = end(key, &slot);
        if (!begun)
            __sync_fetch_and_add(&missing, 1);
        else if (begun != now)
            __sync_fetch_and_add(&wrong, 1);
    }
    return 0;
}

int main(void) {
    pthread_t threads[THREADS];
    u64 keys[THREADS], key = 0;
    // Events of one set meet in the same places.
    for (int at = 0; at < THREADS; at++) {
        do
            key += 2;
        while (mixed(key) % PENDING_SETS);
        keys[at] = key;
    }
    for (int at = 0; at < THREADS; at++)
        if (pthread_create(&threads[at], 0, run, &keys[at]))
            return 2;
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], 0);
    printf("%u events without an end, %u of them counted, %u with another time\n", missing, slots.lost,
           wrong);
    return missing != slots.lost || wrong;
}
