// What the programs know of the kernel: helpers by their number, and where those fields of its structures are
// that are read. An address in the kernel is a number here: all of it is read by helpers.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define APART static __attribute__((noinline))

struct map_definition {
    u32 type, key_size, value_size, max_entries, map_flags;
};
#define MAP(name, type, key, value, most, flags)                                                       \
    struct map_definition SECTION("maps") name = {type, sizeof(key), sizeof(value), most, flags}
#define HASH 1
#define ARRAY 2
#define PERCPU_ARRAY 6
#define LRU_HASH 9
#define RINGBUF 27

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const monotonic_nanos)(void) = (void *)5;
static u64 (*const current_ids)(void) = (void *)14;
static u64 (*const current_task)(void) = (void *)35;
static long (*const read_user)(void *to, u32 bytes, u64 from) = (void *)112;
static long (*const read_kernel)(void *to, u32 bytes, u64 from) = (void *)113;
static long (*const read_kernel_text)(void *to, u32 bytes, u64 from) = (void *)115;
static long (*const ring_output)(void *ring, void *data, u64 bytes, u64 flags) = (void *)130;
static void *(*const ring_reserve)(void *ring, u64 bytes, u64 flags) = (void *)131;
static void (*const ring_submit)(void *data, u64 flags) = (void *)132;
static u64 (*const ring_query)(void *ring, u64 what) = (void *)134;
static void *(*const map_lookup_on)(void *map, const void *key, u32 processor) = (void *)195;

// Of `map_update`: whatever is there.
#define ANY 0
// Of `map_update`: only where there is nothing.
#define IF_NONE 1
// Of `ring_submit` and `ring_output`: whether whoever polls is woken.
#define NO_WAKEUP 1
#define WAKEUP 2
#define AVAILABLE_BYTES 0

// The lines of `fields.h`, by their number.
enum told {
#define FIELD(name, path) TOLD_##name,
#define BYTES(name, structure) TOLD_##name,
#define SETTING(name) TOLD_##name,
#include "fields.h"
#undef FIELD
#undef BYTES
#undef SETTING
};

// A number that the monitor writes here before the program is loaded: a constant for whoever checks and
// compiles it then. Until then it is this mark and the number of the line.
#define MARK 0x5c0905f1ull
#define TOLD(name)                                                                                     \
    ({                                                                                                 \
        u64 number;                                                                                    \
        asm("%0 = %1 ll" : "=r"(number) : "i"(MARK << 32 | TOLD_##name));                              \
        number;                                                                                        \
    })

// True each time, until the kernel finds that a loop runs for too long (`may_goto`, in Linux since 6.9; the
// compiler does not know the instruction). Whoever checks the program need not follow each turn of such a
// loop, since it ends in any case.
#define MAY_GO_ON                                                                                      \
    ({                                                                                                 \
        __label__ over, on;                                                                            \
        u32 may = 1;                                                                                   \
        asm goto("1: .byte 0xe5; .byte 0; .long ((%l[over] - 1b - 8) / 8) & 0xffff; .short 0" : : : : over); \
        goto on;                                                                                       \
    over:                                                                                              \
        may = 0;                                                                                       \
    on:                                                                                                \
        may;                                                                                           \
    })

// Where a field is in the structure at an address.
#define AT(base, field) ((u64)(base) + TOLD(field))
#define READ(to, base, field) read_kernel(&(to), sizeof(to), AT(base, field))
#define GET(type, base, field)                                                                         \
    ({                                                                                                 \
        type value = 0;                                                                                \
        READ(value, base, field);                                                                      \
        value;                                                                                         \
    })
