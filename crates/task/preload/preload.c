/* Counts the accesses of a dynamic program to files and sockets, in memory that it shares with its
 * monitor.
 *
 * Named in LD_PRELOAD, this library stands between the program and its C library. If anything fails
 * here, the call goes on: without a table nothing is counted, and nothing is ever printed. A wrapped
 * call allocates nothing and takes no lock; all sums are relaxed atomic additions, since they are read
 * only after the exit of the process.
 *
 * The monitor names its table in the variable SKOPOS_VARIABLE. That name contains a hash of this
 * source, so that monitors of different versions can nest: each has its own library and variable.
 * Monitors of one version share the library, which counts in each table of a list.
 *
 * The library does not see calls that the C library makes itself (those of the loader and of stdio),
 * and system calls that a program makes without the C library. The bytes of stdio are known from the
 * position of the descriptor when its stream is closed, moved or left at the exit.
 *
 * Read table.h first: it defines the memory that the monitor reads. Then come streams.h (the bytes of
 * stdio), loader.h (the library leaves the environment where the loader would not find it) and calls.h
 * (the wrapped functions).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>
#include <wchar.h>

#ifndef SKOPOS_VARIABLE
#error "the build names the variable"
#endif

#include "table.h"

/* The most monitors that count at one time, each inside the next. */
#define TABLES 4
/* The most descriptors that are remembered; higher ones are counted in OTHERS. */
#define DESCRIPTORS 65536

/* The rows of a descriptor: the index in each table plus one, or 0 if it is unknown. */
struct known {
    uint32_t file[TABLES], peer[TABLES];
};

static struct table *tables[TABLES];
static int table_count;
/* One for each descriptor; present if there is a table. */
static struct known *known;
static pid_t owner;
static int is_ready;
/* The process has begun to restrict its system calls: this library makes none of its own any more. */
static int is_quiet;

#define EXPORT __attribute__((visibility("default")))
#define ADD(place, value) __atomic_fetch_add(&(place), (uint64_t)(value), __ATOMIC_RELAXED)

/* The wrapped functions. All are looked up before the program starts, because the search takes locks. */
struct next {
    const char *name;
    void **place;
};
extern struct next __start_skopos_next[], __stop_skopos_next[];

static void *find(const char *name, void **place) {
    *place = dlsym(RTLD_NEXT, name);
    return *place;
}

#define WRAP(result, name, parameters)                                                             \
    static result(*next_##name) parameters;                                                        \
    static struct next entry_##name __attribute__((section("skopos_next"), used)) = {              \
        #name, (void **)&next_##name};                                                             \
    EXPORT result name parameters
#define NEXT(name) (next_##name ? next_##name : (__typeof__(next_##name))find(#name, (void **)&next_##name))

/* ---- The file of a descriptor ---- */

static uint64_t mixed(uint64_t device, uint64_t inode, uint64_t birth) {
    uint64_t hash = inode * 0x9e3779b97f4a7c15ull ^ (device << 17) ^ birth;
    hash ^= hash >> 29;
    return hash * 0xbf58476d1ce4e5b9ull >> 20;
}

/* Stores the name of a new file. If there is no room for the name, the file is counted without it. */
static void name_it(struct table *table, struct file *file, int fd) {
    char link[40] = "/proc/self/fd/", name[NAME_MAX_BYTES];
    char digits[12];
    int at = 14, n = 0;
    do digits[n++] = (char)('0' + fd % 10);
    while ((fd /= 10) > 0);
    while (n > 0) link[at++] = digits[--n];
    link[at] = 0;
    long bytes = syscall(SYS_readlinkat, AT_FDCWD, link, name, sizeof name);
    if (bytes <= 0) return;
    uint64_t start = ADD(table->names_next, bytes);
    if (start + (uint64_t)bytes > NAME_BYTES) return;
    memcpy(table->names + start, name, (size_t)bytes);
    file->name_at = (uint32_t)start;
    file->name_bytes = (uint32_t)bytes;
}

static uint32_t place_of(struct table *table, int fd, uint64_t device, uint64_t inode, uint64_t birth) {
    uint32_t fresh = 0;
    uint64_t slot = mixed(device, inode, birth) % SLOTS;
    /* With four slots for each file at least three quarters are free, so the search is short. */
    for (unsigned tries = 0; tries < SLOTS; tries++, slot = (slot + 1) % SLOTS) {
        uint32_t there = __atomic_load_n(&table->slots[slot], __ATOMIC_ACQUIRE);
        if (there == 0) {
            if (fresh == 0) {
                uint64_t next = __atomic_load_n(&table->files_next, __ATOMIC_RELAXED);
                if (next >= FILES || (next = ADD(table->files_next, 1)) >= FILES) return OTHERS;
                fresh = (uint32_t)next;
                struct file *file = &table->files[fresh];
                file->device = device, file->inode = inode, file->birth = birth;
                name_it(table, file, fd);
            }
            if (__atomic_compare_exchange_n(&table->slots[slot], &there, fresh, 0, __ATOMIC_RELEASE,
                                            __ATOMIC_ACQUIRE))
                return fresh;
        }
        struct file *file = &table->files[there % FILES];
        if (file->device == device && file->inode == inode && file->birth == birth) return there % FILES;
    }
    return OTHERS;
}

/* False in a child of vfork, which uses its parent's memory, and in a process that may be in a sandbox,
 * where an unexpected system call would kill it. */
static int is_own(void) { return !is_quiet && syscall(SYS_getpid) == owner; }

/* Finds the row of a descriptor's file in each table. A child of vfork uses its parent's memory but has
 * descriptors of its own, so its results are not kept. */
static struct known look(int fd) {
    struct known found;
    memset(&found, 0, sizeof found);
    int error = errno;
    struct statx about;
    long failed = is_quiet;
    if (!failed) failed = syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO | STATX_BTIME, &about);
    for (int t = 0; t < table_count; t++) {
        uint32_t place = OTHERS;
        if (failed) place = OTHERS;
        else if (S_ISFIFO(about.stx_mode)) place = PIPES;
        else if (S_ISSOCK(about.stx_mode)) place = SOCKETS;
        else if ((about.stx_mode & S_IFMT) == 0) place = NAMELESS;
        else {
            uint64_t birth = about.stx_mask & STATX_BTIME
                ? (uint64_t)about.stx_btime.tv_sec * 1000000000ull + about.stx_btime.tv_nsec : 0;
            uint64_t device = makedev(about.stx_dev_major, about.stx_dev_minor);
            place = place_of(tables[t], fd, device, about.stx_ino, birth);
        }
        found.file[t] = place + 1;
    }
    if (fd < DESCRIPTORS && is_own())
        for (int t = 0; t < table_count; t++)
            __atomic_store_n(&known[fd].file[t], found.file[t], __ATOMIC_RELAXED);
    errno = error;
    return found;
}

static struct known of(int fd) {
    if (fd >= 0 && fd < DESCRIPTORS && __atomic_load_n(&known[fd].file[0], __ATOMIC_RELAXED)) {
        struct known found = known[fd];
        return found;
    }
    if (fd >= 0) return look(fd);
    struct known none;
    memset(&none, 0, sizeof none);
    for (int t = 0; t < TABLES; t++) none.file[t] = OTHERS + 1;
    return none;
}

static struct process *process_in(struct table *table) { return &table->processes[(uint32_t)owner % PROCESSES]; }

#include "streams.h"

/* Forgets a descriptor that will refer to another file. */
static void forget(int fd) {
    if (table_count == 0 || fd < 0 || fd >= DESCRIPTORS) return;
    for (int t = 0; t < table_count; t++) {
        __atomic_store_n(&known[fd].file[t], 0, __ATOMIC_RELAXED);
        __atomic_store_n(&known[fd].peer[t], 0, __ATOMIC_RELAXED);
    }
    if (streams[fd].position_of && is_own()) streams[fd].position_of = 0;
}

/* ---- Counting ---- */

static void peer_counts(struct known file, int64_t bytes, int is_sent);

static unsigned size_of(int64_t bytes) {
    unsigned bits = bytes > 0 ? 64 - (unsigned)__builtin_clzll((uint64_t)bytes) : 0;
    return bits < SIZES ? bits : SIZES - 1;
}

enum { READ, WRITE };

/* Counts one operation that succeeded; `moves` if it moved the descriptor's position. */
static void count(int fd, int64_t bytes, int what, int moves) {
    if (table_count == 0 || bytes < 0) return;
    struct known file = of(fd);
    unsigned size = size_of(bytes);
    for (int t = 0; t < table_count; t++) {
        struct file *of_it = &tables[t]->files[file.file[t] - 1];
        struct process *own = process_in(tables[t]);
        if (what == READ) {
            ADD(of_it->reads[size], 1), ADD(of_it->read_bytes, bytes);
            ADD(own->reads, 1), ADD(own->read_bytes, bytes);
        } else {
            ADD(of_it->writes[size], 1), ADD(of_it->written_bytes, bytes);
            ADD(own->writes, 1), ADD(own->written_bytes, bytes);
        }
    }
    if (file.file[0] == SOCKETS + 1) peer_counts(file, bytes, what == WRITE);
    if (moves && fd >= 0 && fd < DESCRIPTORS) passed(fd, bytes);
}

static void opened(int fd) {
    if (table_count == 0 || fd < 0) return;
    forget(fd);
    struct known file = look(fd);
    for (int t = 0; t < table_count; t++) {
        ADD(tables[t]->files[file.file[t] - 1].opens, 1);
        ADD(process_in(tables[t])->opens, 1);
    }
}

/* Counts a descriptor that was closed, or is about to be. */
static void closed(int fd) {
    if (table_count == 0 || fd < 0 || fd >= DESCRIPTORS) return;
    unfollow(fd);
    for (int t = 0; t < table_count; t++) {
        uint32_t place = __atomic_load_n(&known[fd].file[t], __ATOMIC_RELAXED);
        if (place) ADD(tables[t]->files[place - 1].closes, 1);
    }
    forget(fd);
}

static void closing(int fd) {
    settle(fd);
    closed(fd);
}

static void mapped(int fd, size_t bytes) {
    if (table_count == 0 || fd < 0) return;
    struct known file = of(fd);
    for (int t = 0; t < table_count; t++) {
        ADD(tables[t]->files[file.file[t] - 1].maps, 1);
        ADD(tables[t]->files[file.file[t] - 1].mapped_bytes, bytes);
    }
}

/* ---- Peers ---- */

/* Returns the row of an address plus one. The last row stands for all addresses without a row. */
static uint32_t peer_place(struct table *table, const struct sockaddr *address, int has_port) {
    uint8_t bytes[16] = {0};
    uint16_t port = 0;
    if (address->sa_family == AF_INET) {
        memcpy(bytes, &((const struct sockaddr_in *)address)->sin_addr, 4);
        port = ntohs(((const struct sockaddr_in *)address)->sin_port);
    } else if (address->sa_family == AF_INET6) {
        memcpy(bytes, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
        port = ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
    }
    if (!has_port) port = 0;
    uint32_t hash = address->sa_family * 31u + port;
    for (int i = 0; i < 16; i++) hash = hash * 31 + bytes[i];
    for (uint32_t tries = 0; tries < PEERS - 1; tries++) {
        uint32_t at = (hash + tries) % (PEERS - 1);
        struct peer *peer = &table->peers[at];
        uint32_t state = __atomic_load_n(&peer->state, __ATOMIC_ACQUIRE);
        if (state == 0 && __atomic_compare_exchange_n(&peer->state, &state, 1, 0, __ATOMIC_ACQUIRE,
                                                      __ATOMIC_ACQUIRE)) {
            peer->family = address->sa_family;
            peer->port = port;
            memcpy(peer->address, bytes, 16);
            __atomic_store_n(&peer->state, 2, __ATOMIC_RELEASE);
            return at + 1;
        }
        /* A row that is being written may be the same peer: then there are two rows, which the reader adds. */
        if (state == 2 && peer->family == address->sa_family && peer->port == port &&
            memcmp(peer->address, bytes, 16) == 0)
            return at + 1;
    }
    return PEERS;
}

/* The bytes of an address that are read here: those of IPv4, and of IPv6 without its scope. */
#define BYTES_OF_INET 16
#define BYTES_OF_INET6 24

/* Copies an address that the kernel has read or written, of which `size` bytes are there. False if it is not
 * one of the internet. */
static int is_inet(struct sockaddr_storage *copy, const void *address, socklen_t size) {
    if (!address || size < sizeof(sa_family_t)) return 0;
    memset(copy, 0, sizeof *copy);
    memcpy(copy, address, size < BYTES_OF_INET6 ? size : BYTES_OF_INET6);
    if (copy->ss_family == AF_INET) return size >= BYTES_OF_INET;
    return copy->ss_family == AF_INET6 && size >= BYTES_OF_INET6;
}

static void met(int fd, const struct sockaddr_storage *address, int has_port, int is_new) {
    struct known *keep = fd >= 0 && fd < DESCRIPTORS && is_own() ? &known[fd] : NULL;
    for (int t = 0; t < table_count; t++) {
        uint32_t place = peer_place(tables[t], (const struct sockaddr *)address, has_port);
        if (is_new) ADD(tables[t]->peers[place - 1].connections, 1);
        if (keep) __atomic_store_n(&keep->peer[t], place, __ATOMIC_RELAXED);
    }
}

static void peer_counts(struct known file, int64_t bytes, int is_sent) {
    for (int t = 0; t < table_count; t++) {
        struct peer *peer = &tables[t]->peers[(file.peer[t] ? file.peer[t] : PEERS) - 1];
        if (is_sent) ADD(peer->sent_bytes, bytes), ADD(peer->sends, 1), ADD(tables[t]->sent_bytes, bytes);
        else ADD(peer->received_bytes, bytes), ADD(peer->receives, 1), ADD(tables[t]->received_bytes, bytes);
    }
}

/* Counts one operation of a socket, to or from an address if `size` bytes of it are there. */
static void talked(int fd, int64_t bytes, int is_sent, const void *address, socklen_t size) {
    if (table_count == 0 || bytes < 0) return;
    int error = errno;
    struct known file = of(fd);
    struct sockaddr_storage other;
    if (is_inet(&other, address, size)) {
        for (int t = 0; t < table_count; t++)
            file.peer[t] = peer_place(tables[t], (const struct sockaddr *)&other, is_sent);
    } else if (!file.peer[0] && !is_quiet) {
        size = sizeof other;
        if (syscall(SYS_getpeername, fd, &other, &size) == 0) {
            met(fd, &other, 1, 0);
            file = of(fd);
        }
    }
    peer_counts(file, bytes, is_sent);
    errno = error;
}

/* Copies memory of the program that may not be there. False if it is not. */
static int peek(void *to, const void *from, size_t size) {
    if (is_quiet || !from) return 0;
    int error = errno;
    struct iovec there = {(void *)from, size}, here = {to, size};
    long bytes = syscall(SYS_process_vm_readv, syscall(SYS_getpid), &here, 1UL, &there, 1UL, 0UL);
    errno = error;
    return bytes == (long)size;
}

/* The room for the address of a sender, which must be known before the call. A socket whose peer is known does
 * not need it. */
static socklen_t room_for_sender(int fd, const void *address, const socklen_t *length) {
    socklen_t room = 0;
    if (table_count == 0 || !address) return 0;
    int is_known = fd >= 0 && fd < DESCRIPTORS && __atomic_load_n(&known[fd].peer[0], __ATOMIC_RELAXED);
    if (is_known || !peek(&room, length, sizeof room)) return 0;
    return room;
}

static socklen_t least(socklen_t a, socklen_t b) { return a < b ? a : b; }

#include "loader.h"

/* ---- The start of a process ---- */

static void registered(void) {
    owner = (pid_t)syscall(SYS_getpid);
    for (int t = 0; t < table_count; t++) {
        struct process *own = process_in(tables[t]);
        uint32_t before = __atomic_load_n(&own->pid, __ATOMIC_RELAXED);
        if (before != (uint32_t)owner) {
            /* The monitor frees the slot of a process that exited. */
            if (before != 0) ADD(tables[t]->collisions, 1);
            memset(own, 0, sizeof *own);
        }
        __atomic_store_n(&own->pid, (uint32_t)owner, __ATOMIC_RELAXED);
        own->images = (own->images & ~BECOMING) + 1;
    }
}

/* Parent and child share their open files: the parent counts the bytes of its streams. */
static void forked(void) {
    registered();
    for (int fd = 0; fd < streams_end; fd++) streams[fd].at = NULL;
    streams_end = 0;
}

static void map(const char *path, size_t length) {
    char name[NAME_MAX_BYTES];
    if (length == 0 || length >= sizeof name) return;
    memcpy(name, path, length);
    name[length] = 0;
    long fd = syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    struct stat about;
    if (fstat((int)fd, &about) == 0 && about.st_size == (off_t)sizeof(struct table)) {
        long at = syscall(SYS_mmap, NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at != -1 && ((struct table *)at)->magic == MAGIC) tables[table_count++] = (struct table *)at;
        else if (at != -1) syscall(SYS_munmap, at, sizeof(struct table));
    }
    syscall(SYS_close, fd);
}

/* Allocates the memory for descriptors. It is not part of the library, so that a program that may use little
 * memory can load it. */
static int make_room(void) {
    size_t bytes = DESCRIPTORS * (sizeof *known + sizeof *streams);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    long at = syscall(SYS_mmap, NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0L);
    if (at == -1) return 0;
    known = (struct known *)at;
    streams = (struct stream *)(known + DESCRIPTORS);
    return 1;
}

__attribute__((constructor(101))) static void start(void) {
    int error = errno;
    for (struct next *next = __start_skopos_next; next < __stop_skopos_next; next++) find(next->name, next->place);
    find_own();
    const char *list = is_narrow() || !make_room() ? NULL : getenv(SKOPOS_VARIABLE);
    while (list && *list && table_count < TABLES) {
        size_t length = strcspn(list, ":");
        map(list, length);
        list += length + (list[length] == ':');
    }
    if (table_count > 0) {
        registered();
        pthread_atfork(will_fork, NULL, forked);
        at_quick_exit(settle_unflushed);
        follow(0, stdin);
        follow(1, stdout);
    }
    __atomic_store_n(&is_ready, 1, __ATOMIC_RELEASE);
    errno = error;
}

__attribute__((destructor)) static void end(void) { settle_all(1); }

#include "calls.h"
