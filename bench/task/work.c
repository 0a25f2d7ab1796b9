/* The programs of "Practical Resource Monitoring for Robust High Throughput Computing", section 5,
 * rebuilt. Each says at its end what it used itself, as one line of JSON.
 *
 *   work spin STEPS            sine and cosine of random numbers
 *   work hold MIB              allocates twice as much, touches so much
 *   work io MIB KIB FILE MODE  writes and reads a file with a buffer; MODE is cached or direct
 *   work start N               starts N processes, one after the other
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void fail(const char *what) {
    perror(what);
    exit(1);
}

/* A number after `name` in a file of /proc. What this reads itself is added to `extra`. */
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

static long long hold(long long mib) {
    long long before = number("/proc/self/status", "VmRSS:", 0) * 1024, bytes = mib << 20;
    char *memory = malloc(2 * bytes);
    if (!memory) fail("malloc");
    memset(memory, 1, bytes);
    if (memory[bytes / 2] != 1) return 0;
    return before + bytes;
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
    if (!strcmp(words[1], "hold")) resident = hold(amount);
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
    /* What the loader read is in the bytes too, and so is this program's look at it. */
    printf("{\"cpu_seconds\": %.6f, \"resident_bytes\": %lld, \"read_bytes\": %lld, "
           "\"processes\": %lld, \"sum\": %g}\n",
           cpu, resident, loaded + extra + asked, processes, sum);
    fflush(stdout);
    _exit(0);
}
