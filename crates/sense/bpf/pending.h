// Events that have begun and not ended: requests and packets by a key. The table has a fixed size; an event for
// which there is no place is counted and not measured.

#define PENDING_SETS 1024
#define PENDING_WAYS 4
// An event whose end was not seen, such as a packet that a queue dropped, gives its place away after this time.
#define STALE_NS 60000000000ull

// The key of a place that is being filled. No event has it: addresses are aligned, and no request begins in the first
// nanosecond of a machine.
#define FILLING 1

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

// A processor may have read the clock before another one filled the place: that one is not stale.
INLINE int is_stale(const struct pending *place, u64 now) {
    return now > place->begun && now - place->begun > STALE_NS;
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
        if (!mine && (owner == 0 || (owner != FILLING && is_stale(&places[way], now))) &&
            __sync_val_compare_and_swap(&places[way].key, owner, FILLING) == owner)
            mine = &places[way];
    }
    if (!mine) {
        __sync_fetch_and_add(&slots->lost, 1);
        return;
    }
    mine->begun = now;
    mine->slot = slot;
    // The key comes last: an event that is found has its time. A place that had the key already keeps it.
    __sync_val_compare_and_swap(&mine->key, FILLING, key);
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
            // Another event may have taken the place of a stale one meanwhile.
            return __sync_val_compare_and_swap(&places[way].key, key, 0) == key ? begun : 0;
        }
    return 0;
}
