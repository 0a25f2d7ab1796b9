// Counts block requests in the kernel where they begin: programs on the tracepoint
// block:block_rq_issue, compiled by `scripts/bpf`. They need no header of any kernel.
//
// Requests are counted by device, and by device and region in one of two tables of fixed size. User
// space reads and clears one table while the other counts (see ../src/block_access/counter.rs,
// which has the same constants and the same layout). Nothing here can grow, wait or fail.

typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

// Rows of a table: SETS of WAYS. A request uses only the rows of one set.
#define SETS 128
#define WAYS 8
// 1 MiB, in sectors of 512 bytes.
#define REGION_SHIFT 11
#define DEVICE_SETS 16
#define DEVICE_WAYS 4

struct map_definition {
    u32 type, key_size, value_size, max_entries, map_flags;
};
#define BPF_MAP_TYPE_ARRAY 2

struct row {
    u64 key; // device number << 32 | region; 0 is an empty row
    u64 count;
};

struct table {
    struct row rows[SETS * WAYS];
};

struct device {
    u64 number; // 0 is an empty entry
    u64 accesses;
    u64 sampled;
};

struct devices {
    u64 beyond; // requests to devices for which there was no entry
    struct device entries[DEVICE_SETS * DEVICE_WAYS];
};

struct settings {
    u64 active; // the table that counts: 0 or 1
    u64 mask; // one request in mask + 1 is sampled; mask + 1 is a power of two
};

struct map_definition SECTION("maps") TABLES = {
    BPF_MAP_TYPE_ARRAY, sizeof(u32), sizeof(struct table), 2, 0};
struct map_definition SECTION("maps") DEVICES = {
    BPF_MAP_TYPE_ARRAY, sizeof(u32), sizeof(struct devices), 1, 0};
struct map_definition SECTION("maps") SETTINGS = {
    BPF_MAP_TYPE_ARRAY, sizeof(u32), sizeof(struct settings), 1, 0};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static u32 (*const random32)(void) = (void *)7;

// The fields of the tracepoint's record that are used. They have been at these places since 2.6.33.
// The compiler does not know the running kernel, so user space compares them with its `format`
// file. The kind of request (`rwbs`) has moved once, so there is a program for each of its two
// places.
struct issued {
    u64 common;
    u32 device;
    u32 padding;
    u64 sector;
    u32 sectors;
    u32 bytes;
    char rest[16];
};

INLINE struct device *find_device(struct devices *devices, u64 number) {
    u64 first = ((number * 0x9e3779b97f4a7c15ull) >> 60) % DEVICE_SETS * DEVICE_WAYS;
#pragma unroll
    for (int way = 0; way < DEVICE_WAYS; way++) {
        struct device *entry = &devices->entries[first + way];
        if (entry->number == number)
            return entry;
        if (entry->number == 0) {
            // The first device takes the entry; on another processor that may be the same device.
            u64 owner = __sync_val_compare_and_swap(&entry->number, 0, number);
            if (owner == 0 || owner == number)
                return entry;
        }
    }
    return 0;
}

// Adds to the row of `key`. A full set gives its smallest row away with a probability of 1 / (count
// + 1), so a key that comes once seldom replaces one that comes often. A row counts only requests
// since it was given to its key, so its count is never too high.
INLINE void count(struct table *table, u64 key, u64 weight) {
    u64 first = ((key * 0x9e3779b97f4a7c15ull) >> 57) % SETS * WAYS;
    struct row *least = &table->rows[first];
#pragma unroll
    for (int way = 0; way < WAYS; way++) {
        struct row *row = &table->rows[first + way];
        if (row->key == 0)
            __sync_val_compare_and_swap(&row->key, 0, key);
        if (row->key == key) {
            __sync_fetch_and_add(&row->count, weight);
            return;
        }
        if (row->count < least->count)
            least = row;
    }
    u64 lost = least->count, owner = least->key;
    u32 odds = lost < 0xffffffff ? (u32)lost + 1 : 0xffffffff;
    if (random32() % odds == 0 && __sync_val_compare_and_swap(&least->key, owner, key) == owner)
        least->count = weight;
}

INLINE int issued(struct issued *request, char kind) {
    u32 zero = 0;
    // Only reads and writes with data count, not discards and flushes.
    if (request->sectors == 0 || (kind != 'R' && kind != 'W'))
        return 0;
    struct settings *settings = map_lookup(&SETTINGS, &zero);
    struct devices *devices = map_lookup(&DEVICES, &zero);
    if (!settings || !devices)
        return 0;
    u64 number = request->device;
    struct device *device = find_device(devices, number);
    if (!device) {
        __sync_fetch_and_add(&devices->beyond, 1);
        return 0;
    }
    __sync_fetch_and_add(&device->accesses, 1);
    u64 mask = settings->mask;
    if (mask && (random32() & mask))
        return 0;
    __sync_fetch_and_add(&device->sampled, 1);
    u32 active = settings->active & 1;
    struct table *table = map_lookup(&TABLES, &active);
    if (!table)
        return 0;
    u64 region = (request->sector >> REGION_SHIFT) & 0xffffffff;
    count(table, number << 32 | region, mask + 1);
    return 0;
}

// `rwbs` at 34, after the priority that newer kernels report.
SECTION("tracepoint/block/block_rq_issue")
int issued_at_34(struct issued *request) { return issued(request, request->rest[2]); }

// `rwbs` at 32.
SECTION("tracepoint/block/block_rq_issue_older")
int issued_at_32(struct issued *request) { return issued(request, request->rest[0]); }

SECTION("license") char LICENSE[] = "Dual MIT/GPL";
