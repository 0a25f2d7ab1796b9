/* Reads a segment as the layout document describes it, with only the C standard library and Linux.
 *
 *   reader list SEGMENT             one JSON object a line: the segment, then each vertex
 *   reader wait SEGMENT TOPIC MS    sleeps until the vertex has another sample, and prints it
 *
 * The value of a number is printed as its 64 bits in decimal, so that no digit is lost.
 * Exit: 0 done, 1 refused or timed out, 2 usage. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* All offsets below are from the document. */
enum {
    HEADER_BYTES = 4096,
    GROUP_BYTES = 128,
    ENTRY_BYTES = 320,
    HEAD_BYTES = 64,
    SLOT_BYTES = 32,
    STRUCTURED = 4,
    ATTEMPTS = 1000
};

struct segment {
    const unsigned char *base;
    uint64_t bytes;
    int file;
};

struct vertex {
    uint32_t index, version, slots, byte_ring_bytes, group;
    uint64_t offset;
    unsigned value_type, kind, unit_len, topic_len;
    char unit[17], topic[257];
};

struct sample {
    uint64_t ticket, bits, meta;
    int64_t time, checked_at;
};

/* Loads with an acquire barrier, for machines that reorder loads. */
static uint32_t u32(const struct segment *s, uint64_t at)
{
    return __atomic_load_n((const uint32_t *)(const void *)(s->base + at), __ATOMIC_ACQUIRE);
}

static uint64_t u64(const struct segment *s, uint64_t at)
{
    return __atomic_load_n((const uint64_t *)(const void *)(s->base + at), __ATOMIC_ACQUIRE);
}

static int open_segment(const char *path, struct segment *s)
{
    struct stat status;
    s->file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (s->file < 0 || fstat(s->file, &status) != 0)
        return perror(path), -1;
    if (!S_ISREG(status.st_mode) || status.st_size < HEADER_BYTES)
        return fprintf(stderr, "%s: not a segment\n", path), -1;
    s->bytes = (uint64_t)status.st_size;
    s->base = mmap(NULL, s->bytes, PROT_READ, MAP_SHARED, s->file, 0);
    if (s->base == MAP_FAILED)
        return perror(path), -1;
    if (memcmp(s->base, "SKOPOSEG", 8) != 0 || u32(s, 8) != 1 || u64(s, 16) > s->bytes)
        return fprintf(stderr, "%s: not a segment of layout 1\n", path), -1;
    return 0;
}

/* The publisher holds an exclusive open-file-description lock while it lives. */
static int is_alive(const struct segment *s)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    return u32(s, 256) != 2 && fcntl(s->file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static void copy_text(const struct segment *s, uint64_t at, unsigned len, char *into)
{
    memcpy(into, s->base + at, len);
    into[len] = 0;
}

/* Returns 1 if the entry is registered and was read completely. */
static int read_entry(const struct segment *s, uint32_t index, struct vertex *v)
{
    uint64_t at = u64(s, 40) + (uint64_t)index * ENTRY_BYTES;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        v->version = u32(s, at);
        uint32_t state = u32(s, at + 4);
        v->index = index;
        v->offset = u64(s, at + 8);
        v->slots = u32(s, at + 16);
        v->byte_ring_bytes = u32(s, at + 20);
        v->value_type = s->base[at + 24];
        v->kind = s->base[at + 25];
        v->unit_len = s->base[at + 26];
        v->topic_len = s->base[at + 27];
        v->group = u32(s, at + 28);
        if (v->unit_len <= 16)
            copy_text(s, at + 32, v->unit_len, v->unit);
        copy_text(s, at + 48, v->topic_len, v->topic);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (v->version % 2 == 0 && u32(s, at) == v->version)
            return state == 1 && v->unit_len <= 16
                && v->offset + HEAD_BYTES + (uint64_t)v->slots * SLOT_BYTES + v->byte_ring_bytes
                    <= s->bytes;
    }
    return 0;
}

/* Returns 1 for a complete sample, 0 without a sample, -1 if the vertex is unregistered or is overwritten
 * again and again. */
static int read_latest(const struct segment *s, const struct vertex *v, struct sample *out)
{
    uint64_t owner = ((uint64_t)v->index + 1) << 32 | v->version;
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        out->checked_at = (int64_t)u64(s, v->offset + 16);
        uint64_t head = u64(s, v->offset + 8);
        if (u64(s, v->offset) != owner)
            return -1;
        if (head == 0)
            return 0;
        out->ticket = head - 1;
        uint64_t slot = v->offset + HEAD_BYTES + out->ticket % v->slots * SLOT_BYTES;
        uint64_t before = u64(s, slot);
        out->time = (int64_t)u64(s, slot + 8);
        out->bits = u64(s, slot + 16);
        out->meta = u64(s, slot + 24);
        uint64_t after = u64(s, slot);
        if (before == 2 * out->ticket + 2 && after == before && u64(s, v->offset) == owner) {
            if (out->checked_at < out->time)
                out->checked_at = out->time;
            return 1;
        }
    }
    return -1;
}

/* Returns the text of a structured sample, which the caller frees; NULL if it was overwritten. */
static char *read_text(const struct segment *s, const struct vertex *v, const struct sample *sample)
{
    uint64_t len = sample->meta >> 32, ring = v->byte_ring_bytes;
    uint64_t start = v->offset + HEAD_BYTES + (uint64_t)v->slots * SLOT_BYTES;
    char *text = len <= ring ? malloc(len + 1) : NULL;
    if (text == NULL)
        return NULL;
    for (uint64_t i = 0; i < len; i++)
        text[i] = (char)s->base[start + (sample->bits + i) % ring];
    text[len] = 0;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (u64(s, v->offset + 32) - sample->bits <= ring)
        return text;
    free(text);
    return NULL;
}

/* Topics, units and names hold no character that JSON escapes. */
static int print_vertex(const struct segment *s, const struct vertex *v)
{
    static const char *const types[] = { "?", "f64", "i64", "u64", "structured" };
    static const char *const kinds[] = { "?", "counter", "gauge", "state" };
    struct sample sample;
    char group[65] = "";
    if (v->group != 0) {
        uint64_t at = u64(s, 24) + (uint64_t)v->group * GROUP_BYTES;
        uint32_t len = u32(s, at + 16);
        copy_text(s, at + 20, len <= 64 ? len : 64, group);
    }
    printf("{\"topic\":\"%s\",\"type\":\"%s\",\"kind\":\"%s\",\"unit\":\"%s\",\"group\":\"%s\"",
        v->topic, types[v->value_type <= 4 ? v->value_type : 0], kinds[v->kind <= 3 ? v->kind : 0],
        v->unit, group);
    printf(",\"slots\":%" PRIu32, v->slots);
    int found = read_latest(s, v, &sample);
    if (found <= 0) {
        printf(",\"latest\":null}\n");
        return found;
    }
    printf(",\"latest\":{\"count\":%" PRIu64 ",\"time\":%" PRId64 ",\"checked_at\":%" PRId64,
        sample.ticket + 1, sample.time, sample.checked_at);
    int predicted = (sample.meta & 0xff) == 1, unknown = (sample.meta & 0xff) == 2;
    printf(",\"origin\":\"%s\"", predicted ? "predicted" : unknown ? "unknown" : "measured");
    if (v->value_type == STRUCTURED) {
        char *text = read_text(s, v, &sample);
        printf(",\"text\":%s", text != NULL ? text : "null");
        free(text);
    } else {
        uint32_t bound_bits = (uint32_t)(sample.meta >> 32);
        float bound;
        memcpy(&bound, &bound_bits, sizeof bound);
        printf(",\"bits\":%" PRIu64, sample.bits);
        if (predicted)
            printf(",\"bound\":%.9g", (double)bound);
    }
    printf("}}\n");
    return 1;
}

static int list(const struct segment *s)
{
    char name[65], node[65];
    uint32_t name_len = u32(s, 104), node_len = u32(s, 108);
    copy_text(s, 112, name_len <= 64 ? name_len : 64, name);
    copy_text(s, 176, node_len <= 64 ? node_len : 64, node);
    printf("{\"segment\":\"%s\",\"node\":\"%s\",\"pid\":%" PRIu32 ",\"created_at\":%" PRId64
           ",\"alive\":%s,\"directory_version\":%" PRIu64 ",\"clock_steps\":%" PRIu64 "}\n",
        name, node, u32(s, 80), (int64_t)u64(s, 96), is_alive(s) ? "true" : "false", u64(s, 264),
        u64(s, 304));
    for (uint32_t index = 0; index < u32(s, 272); index++) {
        struct vertex v;
        if (read_entry(s, index, &v))
            print_vertex(s, &v);
    }
    return 0;
}

static int find(const struct segment *s, const char *topic, struct vertex *v)
{
    for (uint32_t index = 0; index < u32(s, 272); index++)
        if (read_entry(s, index, v) && strcmp(v->topic, topic) == 0)
            return 1;
    return 0;
}

static int wait_for(const struct segment *s, const char *topic, long timeout_ms)
{
    struct vertex v;
    struct timespec left = { .tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000 };
    struct shmid_ds about;
    if (!find(s, topic, &v))
        return fprintf(stderr, "no vertex %s\n", topic), 1;
    int id = (int)u32(s, 240);
    size_t bytes = 128 + 4 * ((size_t)v.index + 1);
    if (shmctl(id, IPC_STAT, &about) != 0 || about.shm_segsz < bytes)
        return perror("the page of flags"), 1;
    unsigned char *page = shmat(id, NULL, 0);
    if (page == (void *)-1)
        return perror("the page of flags"), 1;
    if (memcmp(page, "SKOPOSFL", 8) != 0 || memcmp(page + 8, s->base + 96, 8) != 0)
        return fprintf(stderr, "another segment's page of flags\n"), 1;
    uint32_t *flag = (uint32_t *)(void *)(page + 128 + 4 * (size_t)v.index);
    uint64_t seen = u64(s, v.offset + 8);
    for (;;) {
        uint32_t epoch = u32(s, v.offset + 28);
        __atomic_store_n(flag, 1, __ATOMIC_SEQ_CST);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        /* is_quick: the publisher leaves its fence to us. */
        if (u32(s, 244) == 1 && syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) != 0)
            return perror("membarrier"), 1;
        struct sample sample;
        if (read_latest(s, &v, &sample) < 0)
            return printf("{\"gone\":true}\n"), 1;
        if (u64(s, v.offset + 8) != seen)
            return print_vertex(s, &v) == 1 ? 0 : 1;
        long slept = syscall(SYS_futex, s->base + v.offset + 28, FUTEX_WAIT, epoch, &left, NULL, 0);
        if (slept != 0 && errno == ETIMEDOUT)
            return fprintf(stderr, "nothing came\n"), 1;
    }
}

int main(int argc, char **argv)
{
    struct segment s;
    if (argc < 3)
        return fprintf(stderr, "usage: reader list SEGMENT | wait SEGMENT TOPIC MS\n"), 2;
    if (open_segment(argv[2], &s) != 0)
        return 1;
    if (strcmp(argv[1], "list") == 0)
        return list(&s);
    if (strcmp(argv[1], "wait") == 0 && argc == 5)
        return wait_for(&s, argv[3], strtol(argv[4], NULL, 10));
    return 2;
}
