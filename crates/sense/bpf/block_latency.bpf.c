// Measures block requests in the kernel: the time from their creation to the driver, and from there to their completion.
// Compiled by `scripts/bpf`; read by ../src/block_latency.rs, which has the same layout.

#include "kernel.h"
#include "histogram.h"
#include "slots.h"
#include "pending.h"

// Operations of requests: `enum req_op` of <linux/blk_types.h>.
#define READ 0
#define WRITE 1
#define FLUSH 2
#define KINDS 3
#define OPERATION 0xff

// Words of a slot.
#define DEPTH 0
#define DEPTH_MAX 1
#define COMPLETED 2 // a word for each kind

struct times {
    struct histogram latency[KINDS];
    struct histogram wait[2]; // of reads and writes
};
MAP(TIMES, struct times, SLOTS, 0);

// A device number as the kernel has it: 12 bits and 20.
INLINE u32 device_of(void *request) {
    void *queue = LOAD(void *, request, request_queue);
    void *disk = LOAD(void *, queue, queue_disk);
    return LOAD(u32, disk, disk_major) << 20 | (LOAD(u32, disk, disk_minor) & 0xfffff);
}

// The key of a request: the time of its creation tells the uses of its memory apart.
INLINE u64 key_of(u64 request, u64 created) { return ((u64)lower_half(request) << 32) + created; }

INLINE int is_left_out(struct slots *slots, u64 key) { return (mixed(key) >> 16 & slots->mask) != 0; }

INLINE void less_deep(struct slot *slot) {
    // A request that was under way when the programs began was not added.
    if (slot->words[DEPTH])
        __sync_fetch_and_add(&slot->words[DEPTH], -1);
}

SECTION("tp_btf/block_rq_issue")
int issued(u64 *arguments) {
    void *request = (void *)arguments[0];
    u32 kind = LOAD(u32, request, request_flags) & OPERATION;
    struct slots *slots = get_slots();
    if (!slots || kind >= KINDS)
        return 0;
    u32 device = device_of(request);
    u32 at = device ? slot_of(slots, device) : NO_SLOT;
    if (at >= SLOTS)
        return 0;
    struct slot *slot = slot_at(slots, at);
    u32 depth = __sync_fetch_and_add(&slot->words[DEPTH], 1) + 1;
    if (depth > slot->words[DEPTH_MAX])
        slot->words[DEPTH_MAX] = depth;
    u64 created = LOAD(u64, request, request_begun);
    u64 key = key_of(arguments[0], created);
    if (is_left_out(slots, key))
        return 0;
    u64 now = monotonic_nanos();
    begin(slots, key, at, now);
    // Devices whose statistics are off have no time of creation.
    struct times *times = map_lookup(&TIMES, &at);
    if (times && created && now >= created && kind < 2)
        add(&times->wait[kind], now - created, slots->mask + 1);
    return 0;
}

// A request that the driver did not take is issued again.
SECTION("tp_btf/block_rq_requeue")
int requeued(u64 *arguments) {
    void *request = (void *)arguments[0];
    u32 kind = LOAD(u32, request, request_flags) & OPERATION;
    struct slots *slots = get_slots();
    if (!slots || kind >= KINDS)
        return 0;
    u32 device = device_of(request);
    u32 at = device ? slot_of(slots, device) : NO_SLOT;
    if (at < SLOTS)
        less_deep(slot_at(slots, at));
    u32 unused;
    end(key_of(arguments[0], LOAD(u64, request, request_begun)), &unused);
    return 0;
}

SECTION("tp_btf/block_rq_complete")
int completed(u64 *arguments) {
    void *request = (void *)arguments[0];
    u32 kind = LOAD(u32, request, request_flags) & OPERATION;
    struct slots *slots = get_slots();
    // A part of a request completes it only if it is the last one.
    if (!slots || kind >= KINDS || (u32)arguments[2] < LOAD(u32, request, request_bytes))
        return 0;
    u32 device = device_of(request);
    u32 at = device ? slot_of(slots, device) : NO_SLOT;
    if (at >= SLOTS)
        return 0;
    struct slot *slot = slot_at(slots, at);
    less_deep(slot);
    __sync_fetch_and_add(&slot->words[COMPLETED + kind], 1);
    u64 created = LOAD(u64, request, request_begun);
    u64 key = key_of(arguments[0], created);
    if (is_left_out(slots, key))
        return 0;
    u32 unused;
    u64 begun = end(key, &unused);
    u64 now = monotonic_nanos();
    struct times *times = map_lookup(&TIMES, &at);
    if (times && begun && now >= begun)
        add(&times->latency[kind], now - begun, slots->mask + 1);
    return 0;
}

SECTION("license") char LICENSE[] = "Dual MIT/GPL";
