// Births, programs and ends of the task's processes. A process is the task's if its parent is, and the
// first ones are put into `PROCESSES` by the monitor; so it does not matter in which groups, sessions or
// namespaces they are.
//
// What is counted is counted here, in whichever order it happens on whichever processor, and is whole
// even if the ring has no room; what the ring tells is who it was.

// More than run at one time on any node that is shared; those beyond are counted as unknown. Their room,
// two megabytes, is taken beforehand, so that no birth lacks it.
#define MAX_PROCESSES 16384

// What is known of a living process, and of one that is not yet forgotten by the kernel. The monitor writes
// the same (see ../src/mechanism/bpf/kernel.rs).
struct known {
    s64 threads; // that live
    u64 programs; // that it became
    u64 resident; // pages: the most that an earlier program of it had
    u64 maxrss; // pages: the kernel's maximum when it became the present one
    u64 ended; // 1 from then on
    s64 present; // threads that have not left their processor for good
    u64 cpu; // nanoseconds, of those that have
    u64 waits; // 1 of the first one until it is the program: what it does until then is the monitor's
    u64 opens;
    u64 read, written, reads, writes; // of threads that ended, by the kernel's own counts
};

// Sums over the task.
struct totals {
    s64 processes, threads; // that live; the first one left out
    u64 births;
    // Of threads that ended, in bytes and nanoseconds.
    u64 read, written, device_read, device_written, delay;
    // Of threads that left their processor for good, which those that ended do a moment later.
    s64 present; // births of threads less these; the first one left out
    u64 cpu, minor_faults, major_faults, voluntary, involuntary;
    u64 lost; // records for which the ring had no room
    u64 unknown; // processes for which there was no room in PROCESSES
    u64 offset; // the address that SCRATCH has for all processors' parts
    u64 thread_births; // the first one left out
};

// The most that one processor saw.
struct maxima {
    s64 processes, threads;
};

// The most of a command line that is told.
#define MAX_COMMAND 512

// Of the flags of a thread that the kernel works in for a process (io_uring, vhost): its birth is not told.
#define USER_WORKER 0x4000
// Of the state of a thread that will not run again.
#define TASK_DEAD 0x80

#define BORN 1
#define BECAME 2
#define ENDED 3
#define LEFT 4

struct born {
    u32 kind, process, parent;
    u32 is_guest; // in the memory of its parent
    u64 at;
};

struct became {
    u32 kind, process;
    char name[16];
    char command[MAX_COMMAND];
};

struct ended {
    u32 kind, process;
    u64 at;
    s32 code;
    u32 has_memory;
    u64 cpu; // nanoseconds
    u64 read, written; // bytes, with those of the children that it waited for
    u64 resident_max, resident, virtual_max; // pages
    u64 opens, own_read, own_written, reads, writes; // its own
};

struct left {
    u32 kind, process;
    u64 cpu;
};

// Room for what is put together before it is told, one for each processor.
struct scratch {
    struct became became;
    volatile u64 part;
    char array[1024];
};

MAP(PROCESSES, HASH, u32, struct known, MAX_PROCESSES, 0);
MAP(TOTALS, ARRAY, u32, struct totals, 1, 0);
MAP(MAXIMA, PERCPU_ARRAY, u32, struct maxima, 1, 0);
MAP(SCRATCH, PERCPU_ARRAY, u32, struct scratch, 1, 0);
// Some ten thousand processes: as many as start while the monitor is kept waiting for two seconds.
struct map_definition SECTION("maps") RING = {RINGBUF, 0, 0, 1 << 22, 0};

// Above so many bytes the monitor is woken; otherwise it comes when it looks.
#define WAKE_BYTES (1 << 18)

static const u32 ZERO = 0;

INLINE u64 wakeup(void) {
    return ring_query(&RING, AVAILABLE_BYTES) > WAKE_BYTES ? WAKEUP : NO_WAKEUP;
}

INLINE void lost(struct totals *totals) { __sync_fetch_and_add(&totals->lost, 1); }

// One more process or thread: how many there are now.
INLINE void more(struct totals *totals, s64 processes, s64 threads, u64 *flags) {
    struct maxima *maxima = map_lookup(&MAXIMA, &ZERO);
    if (!maxima)
        return;
    __sync_fetch_and_add(&totals->present, threads);
    __sync_fetch_and_add(&totals->thread_births, threads);
    // The first one is there, too.
    s64 all = __sync_fetch_and_add(&totals->threads, threads) + threads + 1;
    if (all > maxima->threads)
        maxima->threads = all;
    if (!processes)
        return;
    __sync_fetch_and_add(&totals->births, processes);
    all = __sync_fetch_and_add(&totals->processes, processes) + processes + 1;
    if (all > maxima->processes)
        maxima->processes = all;
    if (all > 0 && (u64)all > TOLD(wake_processes))
        *flags = WAKEUP;
}

// Called in the parent before the child runs: nothing of a child comes before its birth.
SECTION("raw_tracepoint/sched_process_fork")
int forked(u64 *arguments) {
    u64 child = arguments[1];
    u32 parent = current_ids() >> 32;
    struct known *of_parent = map_lookup(&PROCESSES, &parent);
    struct totals *totals = map_lookup(&TOTALS, &ZERO);
    if (!of_parent || !totals)
        return 0;
    u32 process = GET(u32, child, task_tgid);
    u64 flags = wakeup();
    if (process == parent) {
        __sync_fetch_and_add(&of_parent->threads, 1);
        __sync_fetch_and_add(&of_parent->present, 1);
        more(totals, 0, 1, &flags);
        return 0;
    }
    struct known known = {.threads = 1, .present = 1};
    if (map_update(&PROCESSES, &process, &known, ANY)) {
        __sync_fetch_and_add(&totals->unknown, 1);
        return 0;
    }
    more(totals, 1, 1, &flags);
    struct born *born = ring_reserve(&RING, sizeof(*born), 0);
    if (!born) {
        lost(totals);
        return 0;
    }
    born->kind = BORN;
    born->process = process;
    born->parent = parent;
    born->is_guest = GET(u64, child, task_mm) == GET(u64, current_task(), task_mm);
    born->at = monotonic_nanos();
    ring_submit(born, flags);
    return 0;
}

// Called when the other threads of the process are gone.
SECTION("raw_tracepoint/sched_process_exec")
int became(u64 *arguments) {
    u64 task = arguments[0];
    u32 process = current_ids() >> 32;
    struct known *known = map_lookup(&PROCESSES, &process);
    struct totals *totals = map_lookup(&TOTALS, &ZERO);
    struct scratch *scratch = map_lookup(&SCRATCH, &ZERO);
    if (!known || !totals || !scratch)
        return 0;
    // The maximum has the old program's memory in it. That of the first one was its parent's.
    u64 maxrss = GET(u64, GET(u64, task, task_signal), signal_maxrss);
    if (known->programs && maxrss > known->maxrss && maxrss > known->resident)
        known->resident = maxrss;
    known->maxrss = maxrss;
    known->programs++;
    known->waits = 0;
    struct became *told = &scratch->became;
    told->kind = BECAME;
    told->process = process;
    READ(told->name, task, task_comm);
    u64 mm = GET(u64, task, task_mm), begin = GET(u64, mm, mm_arg_start);
    u64 bytes = GET(u64, mm, mm_arg_end) - begin;
    if (bytes > MAX_COMMAND)
        bytes = MAX_COMMAND;
    if (read_user(told->command, bytes, begin))
        bytes = 0;
    u64 all = sizeof(*told) - MAX_COMMAND + bytes;
    if (all > sizeof(*told) || ring_output(&RING, told, all, wakeup()))
        lost(totals);
    return 0;
}

// How far a processor's own part of memory is from the address that is kept for all of them. A part of
// our own map is known both ways. The verifier takes an address that was in memory for a number.
INLINE u64 offset_of(u32 processor, struct totals *totals, struct scratch *scratch) {
    u64 at = TOLD(map_parts);
    if (!totals->offset) {
        if (at > sizeof(scratch->array) - 8 || read_kernel(scratch->array, at + 8, (u64)&SCRATCH))
            return 0;
        totals->offset = *(u64 *)(scratch->array + at);
    }
    scratch->part = (u64)map_lookup_on(&SCRATCH, &ZERO, processor);
    return scratch->part ? scratch->part - totals->offset : 0;
}

// The kernel's sums of pages are behind by what each processor keeps back.
INLINE void memory_of(u64 mm, struct totals *totals, struct scratch *scratch, struct ended *told) {
    // Of files, of its own, shared; the third is in swap.
    u64 counters[] = {AT(mm, mm_rss_stat), AT(mm, mm_rss_stat) + TOLD(counter_bytes),
        AT(mm, mm_rss_stat) + 3 * TOLD(counter_bytes)};
    u64 parts[3];
    s64 pages = 0;
#pragma unroll
    for (int kind = 0; kind < 3; kind++) {
        parts[kind] = GET(u64, counters[kind], counter_counters);
        pages += GET(s64, counters[kind], counter_count);
    }
    u32 processors = TOLD(processors);
    for (u32 processor = 0; processor < 1024; processor++) {
        if (processor >= processors)
            break;
        u64 offset = offset_of(processor, totals, scratch);
        if (!offset)
            continue;
#pragma unroll
        for (int kind = 0; kind < 3; kind++) {
            s32 part = 0;
            read_kernel(&part, sizeof(part), parts[kind] + offset);
            pages += part;
        }
    }
    told->resident = pages > 0 ? pages : 0;
    u64 virtual = GET(u64, mm, mm_total_vm), highest = GET(u64, mm, mm_hiwater_vm);
    told->virtual_max = virtual > highest ? virtual : highest;
    told->resident_max = GET(u64, mm, mm_hiwater_rss);
    told->has_memory = 1;
}

// What a thread used goes to its process.
INLINE void add_thread(u64 task, struct known *known, struct totals *totals) {
    u64 io = AT(task, task_io), read = GET(u64, io, io_rchar), wrote = GET(u64, io, io_wchar);
    __sync_fetch_and_add(&known->read, read);
    __sync_fetch_and_add(&known->written, wrote);
    __sync_fetch_and_add(&known->reads, GET(u64, io, io_syscr));
    __sync_fetch_and_add(&known->writes, GET(u64, io, io_syscw));
    u64 written = GET(u64, io, io_write_bytes), cancelled = GET(u64, io, io_cancelled);
    written = written > cancelled ? written - cancelled : 0;
    __sync_fetch_and_add(&totals->read, read);
    __sync_fetch_and_add(&totals->written, wrote);
    __sync_fetch_and_add(&totals->device_read, GET(u64, io, io_read_bytes));
    __sync_fetch_and_add(&totals->device_written, written);
    __sync_fetch_and_add(&totals->delay, GET(u64, task, task_delay));
}

INLINE void tell_end(u64 task, struct known *known, struct totals *totals, u32 process) {
    struct scratch *scratch = map_lookup(&SCRATCH, &ZERO);
    struct ended *told = ring_reserve(&RING, sizeof(*told), 0);
    if (!told)
        return lost(totals);
    told->kind = ENDED;
    told->process = process;
    told->at = monotonic_nanos();
    u64 signal = GET(u64, task, task_signal), leader = GET(u64, task, task_group_leader);
    // SIGNAL_GROUP_EXIT: otherwise the first thread's code is that of its process.
    told->code = GET(u32, signal, signal_flags) & 4 ? GET(s32, signal, signal_exit_code) : GET(s32, leader, task_exit_code);
    // Threads that were taken away are in the sums; the first one stays until the last.
    told->cpu = GET(u64, signal, signal_ran) + GET(u64, task, task_ran);
    told->read = GET(u64, AT(signal, signal_io), io_rchar) + GET(u64, AT(task, task_io), io_rchar);
    told->written = GET(u64, AT(signal, signal_io), io_wchar) + GET(u64, AT(task, task_io), io_wchar);
    if (leader != task) {
        told->cpu += GET(u64, leader, task_ran);
        told->read += GET(u64, AT(leader, task_io), io_rchar);
        told->written += GET(u64, AT(leader, task_io), io_wchar);
    }
    // One that ends at this moment on another processor may not have been taken away yet, and is in those of
    // the process alone.
    if (told->read < known->read)
        told->read = known->read;
    if (told->written < known->written)
        told->written = known->written;
    told->opens = known->opens;
    told->own_read = known->read;
    told->own_written = known->written;
    told->reads = known->reads;
    told->writes = known->writes;
    told->has_memory = 0;
    told->resident = told->resident_max = told->virtual_max = 0;
    u64 mm = GET(u64, task, task_mm);
    if (mm && scratch) {
        memory_of(mm, totals, scratch, told);
        if (known->resident > told->resident_max)
            told->resident_max = known->resident;
    }
    ring_submit(told, wakeup());
}

SECTION("raw_tracepoint/sched_process_exit")
int ended(u64 *arguments) {
    u64 task = arguments[0];
    u32 process = current_ids() >> 32;
    struct known *known = map_lookup(&PROCESSES, &process);
    struct totals *totals = map_lookup(&TOTALS, &ZERO);
    if (!known || !totals)
        return 0;
    add_thread(task, known, totals);
    if (GET(u32, task, task_flags) & USER_WORKER)
        return 0;
    __sync_fetch_and_sub(&totals->threads, 1);
    if (__sync_fetch_and_sub(&known->threads, 1) > 1)
        return 0;
    known->ended = 1;
    __sync_fetch_and_sub(&totals->processes, 1);
    tell_end(task, known, totals, process);
    return 0;
}

// Called when a processor goes over to another thread. Of one that is dead the processor time is final.
SECTION("raw_tracepoint/sched_switch")
int left(u64 *arguments) {
    if (!(arguments[3] & TASK_DEAD))
        return 0;
    u64 task = arguments[1];
    u32 process = GET(u32, task, task_tgid);
    struct known *known = map_lookup(&PROCESSES, &process);
    struct totals *totals = map_lookup(&TOTALS, &ZERO);
    if (!known || !totals)
        return 0;
    u64 spent = GET(u64, task, task_ran);
    __sync_fetch_and_add(&known->cpu, spent);
    __sync_fetch_and_add(&totals->cpu, spent);
    __sync_fetch_and_add(&totals->minor_faults, GET(u64, task, task_min_flt));
    __sync_fetch_and_add(&totals->major_faults, GET(u64, task, task_maj_flt));
    __sync_fetch_and_add(&totals->voluntary, GET(u64, task, task_nvcsw));
    __sync_fetch_and_add(&totals->involuntary, GET(u64, task, task_nivcsw));
    if (GET(u32, task, task_flags) & USER_WORKER)
        return 0;
    __sync_fetch_and_sub(&totals->present, 1);
    if (__sync_fetch_and_sub(&known->present, 1) > 1 || !known->ended)
        return 0;
    u64 cpu = known->cpu;
    map_delete(&PROCESSES, &process);
    struct left *told = ring_reserve(&RING, sizeof(*told), 0);
    if (!told) {
        lost(totals);
        return 0;
    }
    told->kind = LEFT;
    told->process = process;
    told->cpu = cpu;
    ring_submit(told, wakeup());
    return 0;
}
