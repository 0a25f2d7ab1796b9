// Events that have begun and not ended: requests and packets by a key. The table has a fixed size; an event for
// which there is no place is counted and not measured.

#define PENDING_SETS 1024
#define PENDING_WAYS 4
// An event whose end was not seen, such as a packet that a queue dropped, gives its place away after this time.
#define STALE_NS 60000000000ull

struct pending {
    u64 key; // 0 is an empty place
    u64 begun;
    u64 slot;
};

struct table {
    struct pending places[PENDING_SETS * PENDING_WAYS];
};
MAP(PENDING, struct table, 1, 0);

INLINE struct pending *places_of(u64 key) {
    u32 zero = 0;
    struct table *table = map_lookup(&PENDING, &zero);
    return table ? &table->places[mixed(key) % PENDING_SETS * PENDING_WAYS] : 0;
}

INLINE void begin(struct slots *slots, u64 key, u32 slot, u64 now) {
    struct pending *places = places_of(key), *mine = 0;
    if (!places)
        return;
#pragma unroll
    for (int way = 0; way < PENDING_WAYS; way++)
        if (places[way].key == key)
            mine = &places[way];
#pragma unroll
    for (int way = 0; way < PENDING_WAYS; way++) {
        u64 owner = places[way].key;
        if (!mine && (owner == 0 || now - places[way].begun > STALE_NS) &&
            __sync_val_compare_and_swap(&places[way].key, owner, key) == owner)
            mine = &places[way];
    }
    if (!mine) {
        __sync_fetch_and_add(&slots->lost, 1);
        return;
    }
    mine->begun = now;
    mine->slot = slot;
}

// Ends an event: returns the time at which it began, and its slot. 0 if it was not measured.
INLINE u64 end(u64 key, u32 *slot) {
    struct pending *places = places_of(key);
    if (!places)
        return 0;
#pragma unroll
    for (int way = 0; way < PENDING_WAYS; way++)
        if (places[way].key == key) {
            u64 begun = places[way].begun;
            *slot = places[way].slot;
            places[way].key = 0;
            return begun;
        }
    return 0;
}
