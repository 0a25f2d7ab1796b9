// Slots for things that have a number (devices, interfaces, file systems). A program gives a free slot to a new number;
// user space frees the slots of things that are gone. See ../src/slots.rs, which has the same layout.

#define SLOT_SETS 16
#define SLOT_WAYS 4
#define SLOTS (SLOT_SETS * SLOT_WAYS)
#define NO_SLOT SLOTS
#define SLOT_WORDS 7

struct slot {
    u32 number; // 0 is a free slot
    u32 words[SLOT_WORDS]; // of the program that has the slots
};

struct slots {
    u32 mask; // one event in mask + 1 is measured; mask + 1 is a power of two
    u32 beyond; // events of things for which there was no slot
    u32 lost; // events whose begin could not be kept
    u32 unused[5];
    struct slot slots[SLOTS];
};
MAP(SHARE, struct slots, 1, SHARED);

INLINE struct slots *get_slots(void) {
    u32 zero = 0;
    return map_lookup(&SHARE, &zero);
}

// A slot by its number, which is below SLOTS. The kernel sees that in the bits that are left.
INLINE struct slot *slot_at(struct slots *slots, u32 at) {
    u64 place = at;
    asm volatile("%0 &= 63" : "+r"(place));
    return &slots->slots[place];
}

// The place of a number; NO_SLOT if all that it may have are taken.
INLINE u32 slot_of(struct slots *slots, u32 number) {
    u32 first = mixed(number) % SLOT_SETS * SLOT_WAYS;
#pragma unroll
    for (int way = 0; way < SLOT_WAYS; way++)
        if (slot_at(slots, first + way)->number == number)
            return first + way;
#pragma unroll
    for (int way = 0; way < SLOT_WAYS; way++) {
        u32 *taken = &slot_at(slots, first + way)->number;
        if (*taken == 0) {
            // Another processor may take it, perhaps for the same number.
            u32 owner = __sync_val_compare_and_swap(taken, 0, number);
            if (owner == 0 || owner == number)
                return first + way;
        }
    }
    __sync_fetch_and_add(&slots->beyond, 1);
    return NO_SLOT;
}
