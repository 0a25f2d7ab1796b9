// Histograms of times. A bucket is an eighth of a power of two of units of 128 ns; below 8 units it is one unit. See
// ../src/histogram.rs, which has the same constants.

#define UNIT_SHIFT 7
#define OCTAVES 28
#define BUCKETS (8 + 8 * OCTAVES)
// 275 s. Longer times are in the last bucket.
#define MAX_UNITS 0x7fffffffull

struct histogram {
    u32 counts[BUCKETS];
};

INLINE u32 bucket_of(u64 nanos) {
    u64 units = nanos >> UNIT_SHIFT;
    if (units > MAX_UNITS)
        units = MAX_UNITS;
    u32 value = units, rest = units, power = 0;
    if (value < 8)
        return value;
    if (rest >> 16) {
        rest >>= 16;
        power += 16;
    }
    if (rest >> 8) {
        rest >>= 8;
        power += 8;
    }
    if (rest >> 4) {
        rest >>= 4;
        power += 4;
    }
    if (rest >> 2) {
        rest >>= 2;
        power += 2;
    }
    power += rest >> 1;
    return (power - 2) * 8 + (value >> (power - 3) & 7);
}

// Adds to a histogram that other processors add to as well.
INLINE void add(struct histogram *histogram, u64 nanos, u32 weight) {
    u32 bucket = bucket_of(nanos);
    if (bucket < BUCKETS)
        __sync_fetch_and_add(&histogram->counts[bucket], weight);
}
