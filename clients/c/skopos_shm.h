/* Reads numbers from a segment of Skopos in shared memory, such as ranks: nanoseconds, no system call, no lock.
 *
 * Everything is in this header; include it in one or more files. It needs Linux, a little-endian machine, and GCC or Clang.
 * The layout is documented in crates/shm/src/layout.rs.
 *
 *     skopos_segment segment;
 *     skopos_vertex weight;
 *     if (skopos_segment_open("/dev/shm/skopos-1000/agent.seg", &segment) != SKOPOS_OK
 *         || skopos_find(&segment, "n01/rank/reads@n02/weight", &weight) != SKOPOS_OK)
 *         return;                                     // no agent, or it does not rank: choose without it
 *     double value, age;
 *     if (skopos_read(&weight, &value, &age) == SKOPOS_OK && age < 5.0)
 *         use(value);
 *     skopos_segment_close(&segment);
 *
 * Find a topic once and keep its vertex. When skopos_read returns SKOPOS_GONE, or the age passes what the caller allows, look
 * whether the publisher lives, open the segment again and find the topic again. A segment may be read by several threads. */

#ifndef SKOPOS_SHM_H
#define SKOPOS_SHM_H

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    SKOPOS_OK = 0,
    SKOPOS_NO_FILE = 1,     /* the file cannot be opened or mapped; errno has the reason */
    SKOPOS_NOT_SEGMENT = 2, /* the file is not a segment of layout 1 */
    SKOPOS_NO_TOPIC = 3,    /* no vertex has this topic, or it is not a number */
    SKOPOS_EMPTY = 4,       /* the vertex has no sample yet, or its value is unknown */
    SKOPOS_GONE = 5,        /* the vertex was unregistered */
    SKOPOS_BUSY = 6         /* the vertex is written again and again; try again */
};

/* A mapped segment. Its publisher can change the header at any time, so the directory is that which was checked. */
typedef struct {
    const unsigned char *base;
    uint64_t bytes;
    const unsigned char *directory;
    uint32_t capacity;
} skopos_segment;

/* A vertex of a mapped segment. It is valid until the segment is closed. */
typedef struct {
    const unsigned char *head;
    uint64_t owner;
    uint32_t slots;
    uint32_t value_type;
} skopos_vertex;

enum { SKOPOS_ENTRY_BYTES = 320, SKOPOS_HEAD_BYTES = 64, SKOPOS_SLOT_BYTES = 32, SKOPOS_ATTEMPTS = 100 };

static inline uint32_t skopos_u32(const unsigned char *at)
{
    return __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_ACQUIRE);
}

static inline uint64_t skopos_u64(const unsigned char *at)
{
    return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_ACQUIRE);
}

/* Maps the segment file at `path` for reading. */
static inline int skopos_segment_open(const char *path, skopos_segment *segment)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0)
        return SKOPOS_NO_FILE;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size < 4096) {
        close(file);
        return SKOPOS_NOT_SEGMENT;
    }
    segment->bytes = (uint64_t)status.st_size;
    void *base = mmap(NULL, segment->bytes, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (base == MAP_FAILED)
        return SKOPOS_NO_FILE;
    segment->base = (const unsigned char *)base;
    const unsigned char *b = segment->base;
    uint64_t directory = skopos_u64(b + 40);
    uint32_t capacity = skopos_u32(b + 48);
    uint64_t entries = (uint64_t)capacity * SKOPOS_ENTRY_BYTES;
    if (memcmp(b, "SKOPOSEG", 8) != 0 || skopos_u32(b + 8) != 1 || skopos_u64(b + 16) > segment->bytes
        || skopos_u32(b + 52) != SKOPOS_ENTRY_BYTES || directory % 8 != 0 || directory > segment->bytes
        || entries > segment->bytes - directory) {
        munmap(base, segment->bytes);
        return SKOPOS_NOT_SEGMENT;
    }
    segment->directory = b + directory;
    segment->capacity = capacity;
    return SKOPOS_OK;
}

static inline void skopos_segment_close(skopos_segment *segment)
{
    munmap((void *)(uintptr_t)segment->base, segment->bytes);
    segment->base = NULL;
}

/* Returns the seconds since the last sign of life of the publisher. An agent gives one at least once in ten seconds. */
static inline double skopos_silence(const skopos_segment *segment)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - 1e-9 * (double)skopos_u64(segment->base + 296);
}

/* Finds the vertex of a whole topic, such as "n01/rank/reads@n02/weight". Looks through the directory. */
static inline int skopos_find(const skopos_segment *segment, const char *topic, skopos_vertex *vertex)
{
    size_t length = strlen(topic);
    uint32_t used = skopos_u32(segment->base + 272);
    const unsigned char *entry = segment->directory;
    for (uint32_t at = 0; at < used && at < segment->capacity; at++, entry += SKOPOS_ENTRY_BYTES) {
        for (int attempt = 0; attempt < SKOPOS_ATTEMPTS; attempt++) {
            uint32_t version = skopos_u32(entry);
            int same = skopos_u32(entry + 4) == 1 && entry[27] == length
                && memcmp(entry + 48, topic, length) == 0;
            uint64_t offset = skopos_u64(entry + 8);
            uint32_t slots = skopos_u32(entry + 16), value_type = entry[24];
            __atomic_thread_fence(__ATOMIC_ACQUIRE);
            if (version % 2 != 0 || skopos_u32(entry) != version)
                continue;
            if (!same)
                break;
            uint64_t bytes = SKOPOS_HEAD_BYTES + (uint64_t)slots * SKOPOS_SLOT_BYTES;
            if (value_type < 1 || value_type > 3 || slots == 0 || (slots & (slots - 1)) != 0
                || offset % 64 != 0 || offset > segment->bytes || bytes > segment->bytes - offset)
                return SKOPOS_NO_TOPIC;
            vertex->head = segment->base + offset;
            vertex->owner = ((uint64_t)at + 1) << 32 | version;
            vertex->slots = slots;
            vertex->value_type = value_type;
            return SKOPOS_OK;
        }
    }
    return SKOPOS_NO_TOPIC;
}

/* Reads the latest value. Integers above 2^53 are rounded. `age`, unless it is NULL, becomes the seconds since the source was
 * last polled, which costs a read of the clock. */
static inline int skopos_read(const skopos_vertex *vertex, double *value, double *age)
{
    const unsigned char *head = vertex->head;
    for (int attempt = 0; attempt < SKOPOS_ATTEMPTS; attempt++) {
        uint64_t checked = skopos_u64(head + 48);
        uint64_t stored = skopos_u64(head + 8);
        if (skopos_u64(head) != vertex->owner)
            return SKOPOS_GONE;
        if (stored == 0)
            return SKOPOS_EMPTY;
        const unsigned char *slot =
            head + SKOPOS_HEAD_BYTES + ((stored - 1) & (vertex->slots - 1)) * SKOPOS_SLOT_BYTES;
        uint64_t before = skopos_u64(slot);
        uint64_t bits = skopos_u64(slot + 16);
        uint64_t meta = skopos_u64(slot + 24);
        if (before != 2 * stored || skopos_u64(slot) != before || skopos_u64(head) != vertex->owner)
            continue;
        if ((meta & 255) == 2)
            return SKOPOS_EMPTY;
        if (vertex->value_type == 1)
            memcpy(value, &bits, sizeof bits);
        else
            *value = vertex->value_type == 2 ? (double)(int64_t)bits : (double)bits;
        if (age != NULL) {
            struct timespec now;
            clock_gettime(CLOCK_BOOTTIME, &now);
            *age = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - 1e-9 * (double)(int64_t)checked;
        }
        return SKOPOS_OK;
    }
    return SKOPOS_BUSY;
}

#endif
