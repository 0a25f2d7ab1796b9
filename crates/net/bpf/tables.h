// The tables that the programs share with ../src/plane/tables.rs, which has the same layout.

#define MAX_WATCHES 16
// Destinations whose packets have numbers; the longest unused one is evicted.
#define MAX_DESTINATIONS 4096
// Bytes of a packet in an event, from the IP header on: 12 hops with all that this plane knows.
#define EVENT_BYTES 512

struct settings {
    u64 real_offset; // the clock of the day minus the monotonic clock, in nanoseconds
    u32 node;
    u32 netns; // the number of the network namespace
    u16 int_port; // in the order of the network, as the next five
    u16 instructions;
    u16 domain;
    u16 domain_instructions;
    u8 hop_words;
    u8 hops; // the most hops that may add data
    u8 embeds_instructions; // INT-MX, not INT-MD
    u8 watches; // used entries of WATCHES
    u32 reports_itself; // INT-XD: packets that are watched are reported, and stay as they are
};

// A flow for the source. A field of zero is any value.
struct watch {
    u32 source[4], source_mask[4], destination[4], destination_mask[4];
    u16 source_port, destination_port; // in the order of the network
    u8 protocol;
    u8 version; // 4 or 6
    u16 unused;
};

struct port {
    u64 backlog; // bytes in the queue
    u64 sojourn_ns; // of the last packet with INT that left the queue
    u64 probe_backlog; // bytes that were in the queue before the packet whose mark is `probe`
    u64 waited_ns; // the time that the last such packet waited
    u64 waited_behind; // bytes that were before it
    u64 rate; // bytes a second; 0 is not known
    u64 window_begin, window_bytes;
    u32 probe;
    u32 used_ppm; // used share of the rate in the last window
    u32 id; // the number of the port in INT
    u32 queued; // 1 if packets leave through a queue that is followed
};

struct event {
    u64 time_ns, ingress_ns;
    u32 ingress_port, egress_port, latency_ns, queue_bytes, used_ppm;
    u32 kind; // 1 sink, 2 a hop of INT-MX, 3 a hop of INT-XD
    u32 bytes;
    u32 whole_bytes; // of the packet without INT
    u8 packet[EVENT_BYTES];
};

enum count {
    SOURCED,
    TRANSITED,
    SUNK,
    MTU_EXCEEDED,
    HOPS_EXCEEDED,
    SEGMENTS, // packets that a card would cut into segments
    MALFORMED,
    EVENTS_LOST,
    DISCARDED,
    REFUSED, // the kernel gave no room
    COUNTS
};

MAP(SETTINGS, ARRAY, u32, struct settings, 1);
MAP(WATCHES, ARRAY, u32, struct watch, MAX_WATCHES);
MAP(PORTS, HASH, u32, struct port, 256);
MAP(NUMBERS, PERCPU_ARRAY, u32, u64, COUNTS);
struct address {
    u32 words[4];
};
MAP(SEQUENCES, LRU_HASH, struct address, u32, MAX_DESTINATIONS);
struct map_definition SECTION("maps") EVENTS = {RINGBUF, 0, 0, 1 << 20, 0};

INLINE void count(u32 what) {
    u64 *number = map_lookup(&NUMBERS, &what);
    if (number)
        *number += 1;
}

INLINE struct settings *get_settings(void) {
    u32 zero = 0;
    return map_lookup(&SETTINGS, &zero);
}
