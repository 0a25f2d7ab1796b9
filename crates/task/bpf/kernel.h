// What the programs know of the kernel: helpers by their number, and those fields of its structures that
// are read. Where a field is in the running kernel is told by the kernel's own types (BTF) when a
// program is loaded, so no header of any kernel is needed.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define RELOCATED __attribute__((preserve_access_index))

struct map_definition {
    u32 type, key_size, value_size, max_entries, map_flags;
};
#define MAP(name, type, key, value, most, flags)                                                       \
    struct map_definition SECTION("maps") name = {type, sizeof(key), sizeof(value), most, flags}
#define HASH 1
#define ARRAY 2
#define PERCPU_ARRAY 6
#define RINGBUF 27

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static u64 (*const monotonic_nanos)(void) = (void *)5;
static u64 (*const current_ids)(void) = (void *)14;
static struct task_struct *(*const current_task)(void) = (void *)35;
static long (*const read_user)(void *to, u32 bytes, const void *from) = (void *)112;
static long (*const read_kernel)(void *to, u32 bytes, const void *from) = (void *)113;
static long (*const read_kernel_text)(void *to, u32 bytes, const void *from) = (void *)115;
static long (*const ring_output)(void *ring, void *data, u64 bytes, u64 flags) = (void *)130;
static void *(*const ring_reserve)(void *ring, u64 bytes, u64 flags) = (void *)131;
static void (*const ring_submit)(void *data, u64 flags) = (void *)132;
static u64 (*const ring_query)(void *ring, u64 what) = (void *)134;
static void *(*const map_lookup_on)(void *map, const void *key, u32 processor) = (void *)195;

// Of `map_update`: whatever is there.
#define ANY 0
// Of `ring_submit` and `ring_output`: whether whoever polls is woken.
#define NO_WAKEUP 1
#define WAKEUP 2
#define AVAILABLE_BYTES 0

// Reads a field, of whatever size it is here.
#define READ(to, field)                                                                                \
    read_kernel(&(to), sizeof(to), &(field))
#define GET(type, field)                                                                               \
    ({                                                                                                 \
        type value = 0;                                                                                \
        READ(value, field);                                                                            \
        value;                                                                                         \
    })

struct task_io_accounting {
    u64 rchar, wchar, syscr, syscw, read_bytes, write_bytes, cancelled_write_bytes;
} RELOCATED;

struct sched_entity {
    u64 sum_exec_runtime;
} RELOCATED;

struct sched_info {
    u64 run_delay;
} RELOCATED;

struct percpu_counter {
    s64 count;
    s32 *counters;
} RELOCATED;

struct mm_struct {
    u64 hiwater_rss, hiwater_vm, total_vm;
    u64 arg_start, arg_end;
    struct percpu_counter rss_stat[4];
} RELOCATED;

struct signal_struct {
    u32 flags;
    s32 group_exit_code;
    u64 maxrss;
    u64 sum_sched_runtime;
    struct task_io_accounting ioac;
} RELOCATED;

struct task_struct {
    s32 pid, tgid;
    u32 flags;
    u64 min_flt, maj_flt, nvcsw, nivcsw;
    s32 exit_code;
    struct task_struct *group_leader;
    struct mm_struct *mm;
    struct signal_struct *signal;
    struct sched_entity se;
    struct sched_info sched_info;
    struct task_io_accounting ioac;
    char comm[16];
} RELOCATED;

struct bpf_array {
    u64 *pptrs[0];
} RELOCATED;
