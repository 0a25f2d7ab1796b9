/* The programs of "Practical Resource Monitoring for Robust High Throughput Computing", section 5,
 * rebuilt. Each prints its own usage at its end, as a line of JSON.
 *
 *   work spin STEPS            sine and cosine of random numbers
 *   work hold MIB TIMES        allocates twice MIB, touches MIB and frees it, TIMES times
 *   work io MIB KIB FILE MODE  writes and reads a file with a buffer; MODE is cached or direct
 *   work start N               starts N processes, one after the other
 *   work spike MIB HOW         allocates and touches MIB and ends at once, by `exit` or `_exit`
 *   work map MIB FILE          writes and reads a file through mmap
 *   work ring MIB FILE         writes and reads a file through io_uring
 *   work grow MIB LOG          touches up to MIB as fast as it can; LOG holds the bytes so far
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* Returns the number after `name` in a file of /proc. The bytes of this read are added to `extra`. */
static long long number(const char *path, const char *name, long long *extra) {
    char text[4096];
    int file = open(path, O_RDONLY);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (length < 0) fail(path);
    close(file);
    text[length] = 0;
    if (extra) *extra += length;
    char *at = strstr(text, name);
    return at ? atoll(at + strlen(name)) : -1;
}

static double spin(long long steps) {
    uint64_t state = 88172645463325252ull;
    double sum = 0;
    for (long long i = 0; i < steps; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        double x = (double)(state >> 11) * 0x1p-53;
        sum += sin(x) * cos(x);
    }
    return sum;
}

static long long hold(long long mib, long long times) {
    long long before = number("/proc/self/status", "VmRSS:", 0) * 1024, bytes = mib << 20;
    for (; times > 0; times--) {
        char *memory = malloc(2 * bytes);
        if (!memory) fail("malloc");
        memset(memory, 1, bytes);
        if (memory[bytes / 2] != 1) return 0;
        if (times > 1) free(memory);
    }
    return before + bytes;
}

/* Makes a file and maps `bytes` of it. */
static char *mapping(const char *path, long long bytes) {
    int file = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, bytes) < 0) fail(path);
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) fail("mmap");
    close(file);
    return memory;
}

static long long map(long long mib, const char *path) {
    long long bytes = mib << 20, sum = 0;
    char *memory = mapping(path, bytes);
    memset(memory, 7, bytes);
    if (msync(memory, bytes, MS_SYNC) < 0) fail("msync");
    for (long long at = 0; at < bytes; at += 4096) sum += memory[at];
    return sum;
}

/* One operation at a time: the case is about visibility, not speed. */
static void ring(long long mib, const char *path) {
    struct io_uring_params about;
    memset(&about, 0, sizeof about);
    int ring = syscall(SYS_io_uring_setup, 1, &about);
    if (ring < 0) fail("io_uring_setup");
    size_t size = about.sq_off.array + about.sq_entries * sizeof(unsigned);
    size_t other = about.cq_off.cqes + about.cq_entries * sizeof(struct io_uring_cqe);
    int how = MAP_SHARED | MAP_POPULATE;
    char *queue = mmap(0, size, PROT_READ | PROT_WRITE, how, ring, IORING_OFF_SQ_RING);
    char *done = mmap(0, other, PROT_READ | PROT_WRITE, how, ring, IORING_OFF_CQ_RING);
    struct io_uring_sqe *entry = mmap(0, about.sq_entries * sizeof *entry, PROT_READ | PROT_WRITE, how,
                                      ring, IORING_OFF_SQES);
    if (queue == MAP_FAILED || done == MAP_FAILED || entry == MAP_FAILED) fail("mmap");
    unsigned *tail = (unsigned *)(queue + about.sq_off.tail), *head = (unsigned *)(done + about.cq_off.head);
    unsigned mask = *(unsigned *)(done + about.cq_off.ring_mask);
    *(unsigned *)(queue + about.sq_off.array) = 0;
    static char buffer[1 << 16];
    memset(buffer, 7, sizeof buffer);
    int file = open(path, O_CREAT | O_TRUNC | O_RDWR, 0600);
    if (file < 0) fail(path);
    for (int is_read = 0; is_read < 2; is_read++)
        for (long long at = 0; at < mib << 20; at += sizeof buffer) {
            memset(entry, 0, sizeof *entry);
            entry->opcode = is_read ? IORING_OP_READ : IORING_OP_WRITE;
            entry->fd = file, entry->off = at, entry->len = sizeof buffer;
            entry->addr = (uintptr_t)buffer;
            __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
            if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) < 0) fail("io_uring_enter");
            struct io_uring_cqe *entries = (struct io_uring_cqe *)(done + about.cq_off.cqes);
            if (entries[*head & mask].res != sizeof buffer) fail("io_uring");
            __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
        }
    if (fdatasync(file) < 0) fail("fdatasync");
    close(file);
}

static void grow(long long mib, const char *log) {
    volatile long long *touched = (long long *)mapping(log, 4096);
    long long before = number("/proc/self/status", "VmRSS:", 0) * 1024;
    char *memory = mmap(0, mib << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("mmap");
    for (long long at = 0; at < mib << 20; at += 4096) memory[at] = 1, *touched = before + at + 4096;
}

static void transfer(long long mib, long long kib, const char *path, int direct) {
    size_t size = kib << 10;
    void *buffer;
    if (posix_memalign(&buffer, 4096, size)) fail("posix_memalign");
    memset(buffer, 7, size);
    int flags = direct ? O_DIRECT : 0;
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY | flags, 0600);
    if (file < 0) fail(path);
    for (long long left = mib << 20; left > 0; left -= size)
        if (write(file, buffer, size) != (ssize_t)size) fail("write");
    close(file);
    file = open(path, O_RDONLY | flags);
    if (file < 0) fail(path);
    for (long long left = mib << 20; left > 0; left -= size)
        if (read(file, buffer, size) != (ssize_t)size) fail("read");
    close(file);
}

static void start(long long count) {
    char *words[] = {"/bin/true", 0}, *none[] = {0};
    for (long long i = 0; i < count; i++) {
        pid_t child = vfork();
        if (child == 0) {
            execve(words[0], words, none);
            _exit(127);
        }
        if (child < 0 || waitpid(child, 0, 0) < 0) fail("vfork");
    }
}

int main(int count, char **words) {
    if (count < 3) return 2;
    long long amount = atoll(words[2]), extra = 0, resident = 0, processes = 1;
    long long loaded = number("/proc/self/io", "rchar:", &extra), asked = 0;
    double sum = 0;
    if (!strcmp(words[1], "spin")) sum = spin(amount);
    if (!strcmp(words[1], "hold")) resident = hold(amount, count > 3 ? atoll(words[3]) : 1);
    if (!strcmp(words[1], "spike")) resident = hold(amount, 1);
    if (!strcmp(words[1], "map") && count == 4) sum = map(amount, words[3]);
    if (!strcmp(words[1], "ring") && count == 4) ring(amount, words[3]);
    if (!strcmp(words[1], "grow") && count == 4) grow(amount, words[3]);
    if (!strcmp(words[1], "start")) start(amount), processes += amount;
    if (!strcmp(words[1], "io") && count == 6) {
        transfer(amount, atoll(words[3]), words[4], !strcmp(words[5], "direct"));
        asked = amount << 20;
    }
    struct rusage own, children;
    getrusage(RUSAGE_SELF, &own), getrusage(RUSAGE_CHILDREN, &children);
    double cpu = own.ru_utime.tv_sec + own.ru_stime.tv_sec + children.ru_utime.tv_sec +
                 children.ru_stime.tv_sec +
                 1e-6 * (own.ru_utime.tv_usec + own.ru_stime.tv_usec + children.ru_utime.tv_usec +
                         children.ru_stime.tv_usec);
    /* The bytes include the reads of the loader, and this program's reads of /proc. */
    printf("{\"cpu_seconds\": %.6f, \"resident_bytes\": %lld, \"read_bytes\": %lld, "
           "\"processes\": %lld, \"sum\": %g}\n",
           cpu, resident, loaded + extra + asked, processes, sum);
    if (count > 3 && !strcmp(words[3], "exit")) exit(0);
    fflush(stdout);
    _exit(0);
}
