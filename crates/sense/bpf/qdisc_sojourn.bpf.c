// Measures in the kernel for how long packets are in the queues in front of interfaces. Compiled by `scripts/bpf`; read by
// ../src/qdisc_sojourn.rs, which has the same layout.

#include "kernel.h"
#include "histogram.h"
#include "slots.h"
#include "pending.h"

// The most packets that leave a queue at once and are measured.
#define MAX_BULK 16

MAP(TIMES, struct histogram, SLOTS, 0);

// The key of a packet. Two packets with the same key in queues at a time are one time that is too short.
INLINE u64 key_of(u64 skb) { return lower_half(skb); }

INLINE int is_left_out(struct slots *slots, u64 key) { return (mixed(key) >> 16 & slots->mask) != 0; }

SECTION("tp_btf/qdisc_enqueue")
int entered(u64 *arguments) {
    u64 key = key_of(arguments[2]);
    struct slots *slots = get_slots();
    if (!slots || is_left_out(slots, key))
        return 0;
    void *device = LOAD(void *, arguments[1], txq_dev);
    void *net = LOAD(void *, device, dev_net);
    if (LOAD(u32, net, net_inum) != VALUE(netns))
        return 0;
    u32 at = slot_of(slots, LOAD(u32, device, dev_ifindex));
    if (at < SLOTS)
        begin(slots, key, at, monotonic_nanos());
    return 0;
}

INLINE void left_one(struct slots *slots, u64 skb, u64 now) {
    u32 at = NO_SLOT;
    u64 key = key_of(skb);
    u64 begun = is_left_out(slots, key) ? 0 : end(key, &at);
    if (!begun || at >= SLOTS || now < begun)
        return;
    struct histogram *times = map_lookup(&TIMES, &at);
    if (times)
        add(times, now - begun, slots->mask + 1);
}

// Not a typed program, because a queue that gave no packet is an event, too: the kernel would take its packet for valid.
SECTION("raw_tracepoint/qdisc_dequeue")
int left(u64 *arguments) {
    u64 skb = arguments[3];
    if (!skb)
        return 0;
    struct slots *slots = get_slots();
    if (!slots)
        return 0;
    u64 now = monotonic_nanos();
    left_one(slots, skb, now);
    // Packets that leave at once are a list.
    u32 more = (u32)arguments[2];
    for (u32 count = 1; count < MAX_BULK; count++) {
        if (count >= more)
            return 0;
        skb = GET(u64, skb, skb_next);
        if (!skb)
            return 0;
        left_one(slots, skb, now);
    }
    return 0;
}

SECTION("license") char LICENSE[] = "Dual MIT/GPL";
