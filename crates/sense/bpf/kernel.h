// The kernel as the programs see it: helpers by their number, and fields of its structures.

typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

struct map_definition {
    u32 type, key_size, value_size, max_entries, map_flags;
};
#define MAP(name, value, most, flags)                                                              \
    struct map_definition SECTION("maps") name = {ARRAY, sizeof(u32), sizeof(value), most, flags}
#define ARRAY 2
// User space maps the values into its memory.
#define SHARED (1 << 10)
// The number of entries that the loader replaces.
#define EACH_PROCESSOR 0

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static u64 (*const monotonic_nanos)(void) = (void *)5;
static u32 (*const this_processor)(void) = (void *)8;
static void *(*const current_task)(void) = (void *)158;
static long (*const read_kernel)(void *to, u32 bytes, u64 from) = (void *)113;

// The lines of `fields.h`, by their number.
enum line {
#define FIELD(name, path) LINE_##name,
#define CONSTANT(name, path) LINE_##name,
#define SETTING(name) LINE_##name,
#include "fields.h"
#undef FIELD
#undef CONSTANT
#undef SETTING
};

// A value that the loader writes here. Until then it is this mark and the number of the line.
#define MARK 0x5c0905f1ull
#define VALUE(name)                                                                                \
    ({                                                                                             \
        u64 number;                                                                                \
        asm("%0 = %1 ll" : "=r"(number) : "i"(MARK << 32 | LINE_##name));                          \
        number;                                                                                    \
    })
// Reads a field of a structure whose type the kernel knows (an argument of a `tp_btf` program, and all that it leads to).
#define LOAD(type, base, field) (*(type *)((u64)(base) + VALUE(field)))
// Reads a field at an address that is a number to the kernel.
#define GET(type, base, field)                                                                     \
    ({                                                                                             \
        type value = 0;                                                                            \
        read_kernel(&value, sizeof(value), (u64)(base) + VALUE(field));                            \
        value;                                                                                     \
    })

// Keeps a value in a register, so that the kernel knows that the value which was compared with 0 is the one that is used.
#define KEPT(value) asm volatile("" : "+r"(value))

// The lower half of a kernel's address, as a number to calculate with, which the kernel does not let a program do with the
// address. Two things of one kind seldom have the same one.
INLINE u32 lower_half(u64 address) {
    u64 half;
    asm volatile("r1 = %1; w0 = w1; %0 = r0" : "=r"(half) : "r"(address) : "r0", "r1");
    return (u32)half;
}

INLINE u64 mixed(u64 value) {
    value *= 0x9e3779b97f4a7c15ull;
    return value ^ value >> 32;
}
