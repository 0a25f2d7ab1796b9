// The kernel as the programs see it: helpers by their number, and the context of a packet.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

struct map_definition {
    u32 type, key_size, value_size, max_entries, map_flags;
};
#define MAP(name, type, key, value, most)                                                          \
    struct map_definition SECTION("maps") name = {type, sizeof(key), sizeof(value), most, 0}
#define HASH 1
#define ARRAY 2
#define PERCPU_ARRAY 6
#define LRU_HASH 9
#define RINGBUF 27

// The begin of `struct __sk_buff` of <linux/bpf.h>.
struct packet {
    u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority;
    u32 ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end, napi_id;
    u32 family, remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port, data_meta;
    u64 flow_keys, tstamp;
    u32 wire_len, gso_segs;
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u64 (*const monotonic_nanos)(void) = (void *)5;
static long (*const store_bytes)(void *skb, u32 at, const void *from, u32 bytes, u64 flags) = (void *)9;
static long (*const l3_checksum)(void *skb, u32 at, u64 from, u64 to, u64 bytes) = (void *)10;
static long (*const load_bytes)(const void *skb, u32 at, void *to, u32 bytes) = (void *)26;
static u32 (*const packet_hash)(void *skb) = (void *)34;
static long (*const adjust_room)(void *skb, s32 bytes, u32 mode, u64 flags) = (void *)50;
static long (*const read_kernel)(void *to, u32 bytes, u64 from) = (void *)113;
static void *(*const ring_reserve)(void *ring, u64 bytes, u64 flags) = (void *)131;
static void (*const ring_submit)(void *data, u64 flags) = (void *)132;
static void (*const ring_discard)(void *data, u64 flags) = (void *)133;
static long (*const check_mtu)(void *skb, u32 ifindex, u32 *mtu, s32 more, u64 flags) = (void *)163;

// `adjust_room`: directly behind the IP header.
#define BEHIND_IP 0
// `store_bytes`: the sum that a network card gave stays right.
#define RECOMPUTE 1

// Answers of a program at an interface.
#define NEXT -1
#define DROP 2

INLINE u16 swap16(u16 value) { return (u16)(value << 8 | value >> 8); }
INLINE u32 swap32(u32 value) { return __builtin_bswap32(value); }
INLINE u64 swap64(u64 value) { return __builtin_bswap64(value); }

// The lines of `fields.h`, by their number.
enum line {
#define FIELD(name, path) LINE_##name,
#include "fields.h"
#undef FIELD
};

// A value that the loader writes here. Until then it is this mark and the number of the line.
#define MARK 0x5c0905f1ull
#define OFFSET(name)                                                                               \
    ({                                                                                             \
        u64 number;                                                                                \
        asm("%0 = %1 ll" : "=r"(number) : "i"(MARK << 32 | LINE_##name));                          \
        number;                                                                                    \
    })
#define GET(type, base, field)                                                                     \
    ({                                                                                             \
        type value = 0;                                                                            \
        read_kernel(&value, sizeof(value), (u64)(base) + OFFSET(field));                           \
        value;                                                                                     \
    })
