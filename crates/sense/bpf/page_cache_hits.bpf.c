// Counts in the kernel the pages that programs ask the page cache for, and those that are read into it, by file system.
// Compiled by `scripts/bpf`; read by ../src/page_cache_hits.rs, which has the same layout.

#include "kernel.h"
#include "slots.h"

// Words of a slot, in pages.
#define REQUESTED 0
#define FAULTED 1
#define ADDED 2
#define WRITTEN 3

// The folio that a processor added last.
struct processor {
    u64 folio;
};
MAP(PROCESSORS, struct processor, EACH_PROCESSOR, 0);

// Reads that are under way, by task. A task has one at a time. Of two tasks with one place, the rest of a read counts twice.
#define READS 1024
struct read {
    u64 task, key, first;
    u64 calls; // that the task had ended before this one
};
MAP(READING, struct read, READS, 0);

INLINE struct processor *get_processor(void) {
    u32 at = this_processor();
    return map_lookup(&PROCESSORS, &at);
}

INLINE void count(u64 mapping, u32 what, u32 pages) {
    struct slots *slots = get_slots();
    void *host = LOAD(void *, mapping, mapping_host);
    void *super = LOAD(void *, host, inode_super);
    u32 number = LOAD(u32, super, super_device);
    if (!slots || !number)
        return;
    u32 at = slot_of(slots, number);
    if (at < SLOTS)
        __sync_fetch_and_add(&slot_at(slots, at)->words[what], pages);
}

INLINE u32 pages_of(u64 folio) {
    if (!(LOAD(u64, folio, folio_flags) >> VALUE(folio_head) & 1))
        return 1;
    return 1u << (LOAD(u64, folio, folio_order) & 31);
}

// A long read takes its pages in several steps. Each is told with the last page of the whole read, so only the first one of
// a system call counts, and it counts for all. Two reads to the same page are told apart by the count of calls of the task.
SECTION("tp_btf/mm_filemap_get_pages")
int requested(u64 *arguments) {
    u64 mapping = arguments[0], first = arguments[1], last = arguments[2];
    u64 key = ((u64)lower_half(mapping) << 32) + last;
    void *current = current_task();
    u64 task = lower_half((u64)current), calls = LOAD(u64, current, task_reads);
    u32 at = mixed(task) % READS;
    struct read *read = map_lookup(&READING, &at);
    if (!read || last < first)
        return 0;
    int goes_on =
        read->task == task && read->calls == calls && read->key == key && first > read->first;
    read->task = task;
    read->calls = calls;
    read->key = key;
    read->first = first;
    if (!goes_on)
        count(mapping, REQUESTED, last - first + 1);
    return 0;
}

SECTION("tp_btf/mm_filemap_fault")
int faulted(u64 *arguments) {
    count(arguments[0], FAULTED, 1);
    return 0;
}

SECTION("tp_btf/mm_filemap_add_to_page_cache")
int added(u64 *arguments) {
    u64 folio = arguments[0];
    struct processor *processor = get_processor();
    if (processor)
        processor->folio = folio;
    count(LOAD(u64, folio, folio_mapping), ADDED, pages_of(folio));
    return 0;
}

// A write adds a page and changes it at once; such a page was not read.
SECTION("tp_btf/writeback_dirty_folio")
int dirtied(u64 *arguments) {
    u64 folio = arguments[0], mapping = arguments[1];
    KEPT(folio);
    KEPT(mapping);
    struct processor *processor = get_processor();
    // The kernel has pages without a mapping here.
    if (!processor || !folio || !mapping || processor->folio != folio)
        return 0;
    processor->folio = 0;
    count(mapping, WRITTEN, pages_of(folio));
    return 0;
}

SECTION("license") char LICENSE[] = "Dual MIT/GPL";
