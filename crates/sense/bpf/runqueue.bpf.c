// Measures in the kernel for how long tasks wait for a processor: one program where a processor changes its task.
// Compiled by `scripts/bpf`; read by ../src/runqueue.rs, which has the same layout.
//
// The scheduler keeps the time at which a task was put into a queue for its own sums, and clears it after this
// tracepoint. So no program runs at wake-ups, and nothing is kept for a task.

#include "kernel.h"
#include "histogram.h"

// Values of one processor, on cache lines of its own.
struct processor {
    struct histogram waits;
    u32 waited; // times that a task waited, measured or not
    u32 random;
    u32 unused[6];
};
MAP(PROCESSORS, struct processor, EACH_PROCESSOR, SHARED);

struct settings {
    u64 mask; // one wait in mask + 1 is measured; mask + 1 is a power of two
};
MAP(SETTINGS, struct settings, 1, SHARED);

SECTION("tp_btf/sched_switch")
int switched(u64 *arguments) {
    void *next = (void *)arguments[2];
    u64 queued = LOAD(u64, next, task_queued);
    // The idle task is not in a queue.
    if (!queued)
        return 0;
    u32 zero = 0, at = this_processor();
    struct processor *processor = map_lookup(&PROCESSORS, &at);
    struct settings *settings = map_lookup(&SETTINGS, &zero);
    if (!processor || !settings)
        return 0;
    // Only this processor writes here, and this program does not interrupt itself.
    processor->waited++;
    u32 mask = settings->mask;
    if (mask) {
        // Not each second wait: tasks that take turns would always be the same one.
        processor->random = processor->random * 1664525 + 1013904223;
        if (processor->random >> 16 & mask)
            return 0;
    }
    // The clock by which the task was queued, at this moment.
    void *group = LOAD(void *, next, task_group);
    void *queue = LOAD(void *, group, group_processor);
    u64 now = LOAD(u64, queue, processor_clock);
    if (now < queued)
        return 0;
    u32 bucket = bucket_of(now - queued);
    if (bucket < BUCKETS)
        processor->waits.counts[bucket] += mask + 1;
    return 0;
}

// Shows what the kernel's measuring of a program itself costs; no sensor attaches it, the example `micrometrics` does.
SECTION("tp_btf/sched_switch")
int nothing(u64 *arguments) { return 0; }

SECTION("license") char LICENSE[] = "Dual MIT/GPL";
