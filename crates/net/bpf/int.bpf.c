// In-band network telemetry at the interfaces of a Linux node: source, arrival, transit and sink, and what the
// queues of the node say. Compiled by `scripts/bpf`.
//
// INT stands in a UDP header of its own between the IP header and the original transport header (next protocol
// type 2 of the specification). So the original packet is untouched behind it, its checksum with it, and a sink
// takes away what the source added.

#include "kernel.h"
#include "tables.h"

#define TCP 6
#define UDP 17
#define ETHERNET_BYTES 14
#define UDP_BYTES 8
#define SHIM_BYTES 4
#define HEAD_BYTES 12
// The words of a hop that this plane writes at most: one for each bit, two for three of them.
#define MAX_HOP_WORDS 19

// A packet on its way through a node has in its mark a letter, and a time in units of 256 ns. The letter says
// which time: that of arrival, or that at which the packet came to its queue. Longer than 4.3 s is not known.
#define LETTER 0xff000000u
#define ARRIVED 0x5b000000u
#define QUEUED 0x5c000000u
#define UNIT_SHIFT 8

struct found {
    u32 transport; // where the transport header begins
    u32 version;
    u16 total; // of IPv4: all bytes; of IPv6: those behind the header
    u16 source_port, destination_port;
    u8 protocol;
    u8 hops; // time to live
};

// UDP, shim and head as they stand in the packet.
struct head {
    u16 source_port, destination_port, length, checksum;
    u8 kind, words;
    u8 next_high, next;
    u8 flags, reserved, hop_words, remaining;
    u16 instructions, domain, domain_instructions, domain_flags;
};

INLINE u32 ticks(u64 nanos) { return (u32)(nanos >> UNIT_SHIFT) & ~LETTER; }
INLINE u64 since(u64 now, u32 mark) {
    return (u64)((ticks(now) - mark) & ~LETTER) << UNIT_SHIFT;
}

// Finds the transport header. A packet with options or extension headers, or a fragment, is not for INT.
INLINE int find(struct packet *skb, struct found *found) {
    if (skb->protocol == swap16(0x0800)) {
        u8 ip[24];
        if (load_bytes(skb, ETHERNET_BYTES, ip, sizeof(ip)))
            return 0;
        if (ip[0] != 0x45 || (ip[6] & 0x3f) || ip[7])
            return 0;
        found->transport = ETHERNET_BYTES + 20;
        found->version = 4;
        found->total = (u16)(ip[2] << 8 | ip[3]);
        found->hops = ip[8];
        found->protocol = ip[9];
        __builtin_memcpy(&found->source_port, ip + 20, 2);
        __builtin_memcpy(&found->destination_port, ip + 22, 2);
    } else if (skb->protocol == swap16(0x86dd)) {
        u8 ip[44];
        if (load_bytes(skb, ETHERNET_BYTES, ip, sizeof(ip)))
            return 0;
        found->transport = ETHERNET_BYTES + 40;
        found->version = 6;
        found->total = (u16)(ip[4] << 8 | ip[5]);
        found->hops = ip[7];
        found->protocol = ip[6];
        __builtin_memcpy(&found->source_port, ip + 40, 2);
        __builtin_memcpy(&found->destination_port, ip + 42, 2);
    } else {
        return 0;
    }
    return found->protocol == UDP || found->protocol == TCP;
}

// Loads UDP, shim and head of a packet with INT. 1 if they are good, 0 if the packet has no INT, else it is
// malformed or of another version.
INLINE int head_of(struct packet *skb, struct settings *settings, struct found *found, struct head *head) {
    if (!find(skb, found) || found->protocol != UDP || found->destination_port != settings->int_port)
        return 0;
    if (load_bytes(skb, found->transport, head, sizeof(*head)))
        return -1;
    u8 kind = head->kind >> 4, next = head->kind >> 2 & 3;
    if ((kind != 1 && kind != 3) || next != 2 || head->flags >> 4 != 2 || head->words < HEAD_BYTES / 4)
        return -1;
    u32 bytes = UDP_BYTES + SHIM_BYTES + head->words * 4;
    if (swap16(head->length) < bytes || found->transport + bytes > skb->len)
        return -1;
    return 1;
}

// Writes the new length and protocol of the IP header.
INLINE void mend_ip(struct packet *skb, struct found *found, u16 total, u8 protocol) {
    u16 to = swap16(total), from = swap16(found->total);
    if (found->version == 4) {
        u8 hop[2] = {found->hops, protocol}, old[2] = {found->hops, found->protocol};
        u16 hop_to, hop_from;
        __builtin_memcpy(&hop_to, hop, 2);
        __builtin_memcpy(&hop_from, old, 2);
        l3_checksum(skb, ETHERNET_BYTES + 10, from, to, 2);
        l3_checksum(skb, ETHERNET_BYTES + 10, hop_from, hop_to, 2);
        store_bytes(skb, ETHERNET_BYTES + 2, &to, 2, 0);
        store_bytes(skb, ETHERNET_BYTES + 9, &protocol, 1, 0);
    } else {
        store_bytes(skb, ETHERNET_BYTES + 4, &to, 2, RECOMPUTE);
        store_bytes(skb, ETHERNET_BYTES + 6, &protocol, 1, RECOMPUTE);
    }
}

INLINE int same(const u32 *address, const u32 *wanted, const u32 *mask) {
    u32 other = 0;
#pragma unroll
    for (int word = 0; word < 4; word++)
        other |= (address[word] & mask[word]) ^ wanted[word];
    return other == 0;
}

// True if a line of WATCHES is about the packet. Loads the addresses, source first.
INLINE int is_watched(struct packet *skb, struct settings *settings, struct found *found, u32 *addresses) {
    u32 failed = found->version == 4 ? (load_bytes(skb, ETHERNET_BYTES + 12, addresses, 4) |
                                        load_bytes(skb, ETHERNET_BYTES + 16, addresses + 4, 4))
                                     : load_bytes(skb, ETHERNET_BYTES + 8, addresses, 32);
    if (failed)
        return 0;
    for (u32 line = 0; line < MAX_WATCHES; line++) {
        if (line >= settings->watches)
            break;
        struct watch *watch = map_lookup(&WATCHES, &line);
        if (!watch)
            break;
        if (watch->version && watch->version != found->version)
            continue;
        if (watch->protocol && watch->protocol != found->protocol)
            continue;
        if (watch->source_port && watch->source_port != found->source_port)
            continue;
        if (watch->destination_port && watch->destination_port != found->destination_port)
            continue;
        if (same(addresses, watch->source, watch->source_mask) &&
            same(addresses + 4, watch->destination, watch->destination_mask))
            return 1;
    }
    return 0;
}

// The values of this node for one packet.
struct values {
    u64 ingress_ns, egress_ns;
    u32 node, ports, latency_ns, queue, used_ppm;
};

// The time that a packet will wait behind the bytes that are in the queue now. The last packet with INT that
// left says how long bytes take; before it the rate does.
INLINE u64 expected_wait(struct port *port) {
    u64 behind = port->waited_behind;
    if (behind)
        return port->waited_ns * port->backlog / behind;
    if (port->rate)
        return port->backlog * 1000000000ull / port->rate;
    return 0;
}

INLINE struct port *port_at(u32 ifindex) { return map_lookup(&PORTS, &ifindex); }

// The number of the port of an interface; all ones without an interface.
INLINE u32 port_id(u32 ifindex) {
    if (!ifindex)
        return 0xffff;
    struct port *port = port_at(ifindex);
    if (!port)
        return ifindex & 0xffff;
    return port->id & 0xffff;
}

// The state of the queue that a packet is going to, and the time that it will wait there. Leaves the time in the
// mark of the packet, if its queue is followed.
INLINE u64 measure_queue(struct packet *skb, u64 now, struct values *values) {
    struct port *port = port_at(skb->ifindex);
    if (!port)
        return 0;
    u64 backlog = port->backlog, wait = expected_wait(port);
    values->queue = backlog < 0xfffffe ? (u32)backlog : 0xfffffe;
    if (port->rate)
        values->used_ppm = port->used_ppm;
    if (port->queued) {
        u32 mark = QUEUED | ticks(now);
        if (!port->probe || since(now, port->probe & ~LETTER) > 2000000000ull) {
            port->probe = mark;
            port->probe_backlog = backlog;
        }
        skb->mark = mark;
    }
    return wait;
}

INLINE void measure(struct packet *skb, struct settings *settings, u64 now, struct values *values) {
    u32 ingress = port_id(skb->ingress_ifindex), egress = port_id(skb->ifindex);
    u64 inside = 0;
    values->queue = ~0u;
    values->used_ppm = ~0u;
    values->ingress_ns = ~0ull;
    if ((skb->mark & LETTER) == ARRIVED) {
        inside = since(now, skb->mark & ~LETTER);
        values->ingress_ns = now - inside + settings->real_offset;
        skb->mark = 0;
    }
    u64 wait = measure_queue(skb, now, values);
    u64 latency = inside + wait;
    values->latency_ns = latency < 0xffffffff ? (u32)latency : 0xfffffffe;
    values->egress_ns = now + wait + settings->real_offset;
    values->node = settings->node;
    values->ports = ingress << 16 | egress;
}

// Writes the values that the instructions name, in their order. Returns the number of words.
INLINE u32 fill(u32 *words, u16 instructions, const struct values *values) {
    u32 *to = words, at = 0;
    // The pointer is opaque to the compiler, which would add with `|`, and the verifier refuses that.
#define PUT(value)                                                                                 \
    do {                                                                                           \
        *to = swap32(value);                                                                       \
        to++;                                                                                      \
        at++;                                                                                      \
        asm volatile("" : "+r"(to), "+r"(at));                                                     \
    } while (0)
    if (instructions & 0x8000)
        PUT(values->node);
    if (instructions & 0x4000)
        PUT(values->ports);
    if (instructions & 0x2000)
        PUT(values->latency_ns);
    if (instructions & 0x1000)
        PUT(values->queue);
    if (instructions & 0x0800) {
        PUT((u32)(values->ingress_ns >> 32));
        PUT((u32)values->ingress_ns);
    }
    if (instructions & 0x0400) {
        PUT((u32)(values->egress_ns >> 32));
        PUT((u32)values->egress_ns);
    }
    if (instructions & 0x0200) {
        to += 2;
        at += 2;
        asm volatile("" : "+r"(to), "+r"(at));
    }
    if (instructions & 0x0100)
        PUT(values->used_ppm);
#undef PUT
    // Bits that this plane does not know have words of all ones.
#pragma unroll
    for (int bit = 0; bit < 8; bit++)
        at += instructions >> bit & 1;
    return at;
}

// Reports a packet to user space: its begin, and the values of this node.
INLINE void report(struct packet *skb, u32 kind, u64 now, u32 bytes, u32 whole, struct settings *settings,
                   const struct values *values) {
    struct event *event = ring_reserve(&EVENTS, sizeof(*event), 0);
    if (!event) {
        count(EVENTS_LOST);
        return;
    }
    event->time_ns = now + settings->real_offset;
    event->kind = kind;
    event->whole_bytes = whole;
    if (values) {
        event->ingress_ns = values->ingress_ns;
        event->ingress_port = values->ports >> 16;
        event->egress_port = values->ports & 0xffff;
        event->latency_ns = values->latency_ns;
        event->queue_bytes = values->queue;
        event->used_ppm = values->used_ppm;
    } else {
        event->ingress_ns = event->time_ns;
        event->ingress_port = port_id(skb->ifindex);
        event->egress_port = 0xffff;
        event->latency_ns = ~0u;
        event->queue_bytes = ~0u;
        event->used_ppm = ~0u;
    }
    // So that the verifier sees the bounds.
    asm volatile("" : "+r"(bytes));
    if (bytes < 1 || bytes > EVENT_BYTES || load_bytes(skb, ETHERNET_BYTES, event->packet, bytes)) {
        ring_discard(event, 0);
        count(EVENTS_LOST);
        return;
    }
    event->bytes = bytes;
    ring_submit(event, 0);
}

// Returns the number of the next packet to a destination.
INLINE u32 next_sequence(const u32 *destination) {
    struct address address;
    u32 zero = 0, one = 1;
    __builtin_memcpy(&address, destination, sizeof(address));
    u32 *sequence = map_lookup(&SEQUENCES, &address);
    if (sequence)
        return __sync_fetch_and_add(sequence, 1);
    map_update(&SEQUENCES, &address, &one, 0);
    return zero;
}

// Inserts INT into packets that are watched.
SECTION("classifier/source")
int int_source(struct packet *skb) {
    struct settings *settings = get_settings();
    struct found found;
    u32 addresses[8] = {};
    if (!settings || !settings->watches || !find(skb, &found) ||
        !is_watched(skb, settings, &found, addresses))
        return NEXT;
    if (found.protocol == UDP && found.destination_port == settings->int_port)
        return NEXT;
    struct {
        struct head head;
        u32 sequence;
    } added = {};
    u32 embeds = settings->embeds_instructions;
    u32 bytes = embeds ? sizeof(struct head) : sizeof(added), mtu = 0;
    if (skb->gso_segs > 1) {
        count(SEGMENTS);
        return NEXT;
    }
    if (check_mtu(skb, 0, &mtu, (s32)bytes, 0)) {
        count(MTU_EXCEEDED);
        return NEXT;
    }
    u16 behind = found.version == 4 ? found.total - 20 : found.total;
    u32 hash = packet_hash(skb);
    if (adjust_room(skb, (s32)bytes, BEHIND_IP, 0)) {
        count(REFUSED);
        return NEXT;
    }
    struct head *head = &added.head;
    // A port of the private range that is the same for all packets of a flow.
    head->source_port = swap16(0xc000 | (hash & 0x3fff));
    head->destination_port = settings->int_port;
    head->length = swap16(behind + bytes);
    head->kind = embeds ? 0x38 : 0x18;
    head->words = (bytes - UDP_BYTES - SHIM_BYTES) / 4;
    head->next = found.protocol;
    head->flags = 0x20;
    head->hop_words = embeds ? 0 : settings->hop_words;
    head->remaining = embeds ? 0 : settings->hops;
    head->instructions = settings->instructions;
    head->domain = settings->domain;
    head->domain_instructions = embeds ? 0 : settings->domain_instructions;
    if (!embeds)
        added.sequence = swap32(next_sequence(addresses + 4));
    if (embeds)
        store_bytes(skb, found.transport, &added, sizeof(struct head), RECOMPUTE);
    else
        store_bytes(skb, found.transport, &added, sizeof(added), RECOMPUTE);
    mend_ip(skb, &found, found.total + bytes, UDP);
    count(SOURCED);
    return NEXT;
}

// Notes the time of arrival in the mark of packets with INT.
SECTION("classifier/arrive")
int int_arrive(struct packet *skb) {
    struct settings *settings = get_settings();
    struct found found;
    if (!settings || skb->mark || !find(skb, &found))
        return NEXT;
    if (found.protocol == UDP && found.destination_port == settings->int_port)
        skb->mark = ARRIVED | ticks(monotonic_nanos());
    return NEXT;
}

// Sets a flag of the head: bit 2 hops exceeded, bit 1 MTU exceeded.
INLINE void flag(struct packet *skb, struct found *found, struct head *head, u8 bit) {
    u8 flags = head->flags | bit;
    store_bytes(skb, found->transport + UDP_BYTES + SHIM_BYTES, &flags, 1, RECOMPUTE);
}

// Adds the values of this node to a packet with INT-MD, and reports those of one with INT-MX.
SECTION("classifier/transit")
int int_transit(struct packet *skb) {
    struct settings *settings = get_settings();
    struct found found;
    struct head head;
    if (!settings)
        return NEXT;
    int good = head_of(skb, settings, &found, &head);
    u32 addresses[8] = {};
    if (good == 0 && settings->reports_itself && settings->watches && find(skb, &found) &&
        is_watched(skb, settings, &found, addresses)) {
        struct values values;
        u64 now = monotonic_nanos();
        measure(skb, settings, now, &values);
        report(skb, 3, now, found.transport - ETHERNET_BYTES + 8, skb->len, settings, &values);
        return NEXT;
    }
    if (good <= 0) {
        if (good < 0)
            count(MALFORMED);
        return NEXT;
    }
    struct values values;
    u64 now = monotonic_nanos();
    if (head.kind >> 4 == 3) {
        measure(skb, settings, now, &values);
        u32 bytes = found.transport - ETHERNET_BYTES + sizeof(head) + 8;
        report(skb, 2, now, bytes, skb->len, settings, &values);
        count(TRANSITED);
        return NEXT;
    }
    if (!head.remaining) {
        flag(skb, &found, &head, 4);
        count(HOPS_EXCEEDED);
        return NEXT;
    }
    u32 words[32], hop_words = head.hop_words & 0x1f;
    __builtin_memset(words, 0xff, sizeof(words));
    if (hop_words < 1 || hop_words > MAX_HOP_WORDS || head.words + hop_words > 255) {
        count(MALFORMED);
        return NEXT;
    }
    u32 bytes = hop_words * 4, mtu = 0;
    if (check_mtu(skb, 0, &mtu, (s32)bytes, 0)) {
        flag(skb, &found, &head, 2);
        count(MTU_EXCEEDED);
        return NEXT;
    }
    measure(skb, settings, now, &values);
    if (fill(words, swap16(head.instructions), &values) > hop_words) {
        count(MALFORMED);
        return NEXT;
    }
    if (adjust_room(skb, (s32)bytes, BEHIND_IP, 0)) {
        count(REFUSED);
        return NEXT;
    }
    head.length = swap16(swap16(head.length) + bytes);
    head.words += hop_words;
    head.remaining--;
    store_bytes(skb, found.transport, &head, sizeof(head), RECOMPUTE);
    asm volatile("" : "+r"(bytes));
    if (bytes >= 4 && bytes <= MAX_HOP_WORDS * 4)
        store_bytes(skb, found.transport + sizeof(head), words, bytes, RECOMPUTE);
    mend_ip(skb, &found, found.total + bytes, UDP);
    count(TRANSITED);
    return NEXT;
}

// Reports a packet with INT, and restores the packet.
SECTION("classifier/sink")
int int_sink(struct packet *skb) {
    struct settings *settings = get_settings();
    struct found found;
    struct head head;
    if (!settings)
        return NEXT;
    int good = head_of(skb, settings, &found, &head);
    if (good <= 0) {
        if (good < 0)
            count(MALFORMED);
        return NEXT;
    }
    u32 added = UDP_BYTES + SHIM_BYTES + head.words * 4;
    u32 bytes = found.transport - ETHERNET_BYTES + added + 8;
    if (bytes > EVENT_BYTES)
        bytes = EVENT_BYTES;
    report(skb, 1, monotonic_nanos(), bytes, skb->len - added, settings, 0);
    if (head.flags & 8) {
        count(DISCARDED);
        return DROP;
    }
    if (adjust_room(skb, -(s32)added, BEHIND_IP, 0)) {
        count(REFUSED);
        return NEXT;
    }
    mend_ip(skb, &found, found.total - added, head.next);
    count(SUNK);
    return NEXT;
}

// Finds the port of a queue, if it is a port of this node.
INLINE struct port *port_of(u64 txq) {
    struct settings *settings = get_settings();
    u64 dev = GET(u64, txq, txq_dev);
    u32 ifindex = GET(u32, dev, dev_ifindex);
    struct port *port = map_lookup(&PORTS, &ifindex);
    if (!settings || !port)
        return 0;
    u64 net = GET(u64, dev, dev_net);
    if (GET(u32, net, net_inum) != settings->netns)
        return 0;
    return port;
}

SECTION("raw_tracepoint/qdisc_enqueue")
int queue_grew(const u64 *arguments) {
    struct port *port = port_of(arguments[1]);
    if (port) {
        port->queued = 1;
        port->backlog = GET(u32, arguments[0], qdisc_backlog);
    }
    return 0;
}

// The length of a window in which the used share of a link is measured.
#define WINDOW_NS 50000000ull

SECTION("raw_tracepoint/qdisc_dequeue")
int queue_shrank(const u64 *arguments) {
    u64 skb = arguments[3];
    if (!skb)
        return 0;
    struct port *port = port_of(arguments[1]);
    if (!port)
        return 0;
    u64 now = monotonic_nanos();
    port->backlog = GET(u32, arguments[0], qdisc_backlog);
    port->queued = 1;
    port->window_bytes += GET(u32, skb, skb_len);
    u64 passed = now - port->window_begin;
    if (passed > WINDOW_NS) {
        u64 rate = port->window_bytes * 1000000000ull / passed;
        port->used_ppm = port->rate ? (u32)(rate * 1000000ull / port->rate) : ~0u;
        port->window_begin = now;
        port->window_bytes = 0;
    }
    u32 mark = GET(u32, skb, skb_mark);
    if ((mark & LETTER) == QUEUED) {
        port->sojourn_ns = since(now, mark & ~LETTER);
        if (mark == port->probe) {
            port->waited_ns = port->sojourn_ns;
            port->waited_behind = port->probe_backlog;
            port->probe = 0;
        }
    }
    return 0;
}

SECTION("license") char LICENSE[] = "Dual MIT/GPL";
