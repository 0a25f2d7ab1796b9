/* Counts what a dynamic program asks of files and sockets, in memory that it shares with its monitor.
 *
 * Named in LD_PRELOAD, it stands between the program and its C library. Whatever fails here, the call
 * goes on: without a table nothing is counted, and nothing is ever printed. A wrapped call allocates
 * nothing and takes no lock; all sums are relaxed atomic additions, since nobody reads one before the
 * process has ended.
 *
 * The monitor names its table in the variable SKOPOS_VARIABLE. That name carries a hash of this
 * source, so that monitors of several versions nest: each has its own library and variable. Monitors
 * of one version share the library, which counts in each table of a list.
 *
 * What it does not see: calls that the C library makes itself (the loader's, and those of stdio), and
 * system calls that a program makes without the C library. What stdio moves is known from the position
 * of the descriptor when its stream is closed, moved or left at the end.
 *
 * The layout of the table is read by `mechanism/preload/table.rs`; a change here is one there.
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

#define MAGIC 0x31306b7365746b73ull
/* Distinct files with counters of their own: more than most builds open. The whole table is allocated
 * at the start, since a page that finds no room would end the task, and each rank of a parallel job
 * has a table: 10 MiB is what it may take. More files are counted in OTHERS. */
#define FILES 16384u
/* Four slots a file, so that a search ends soon. */
#define SLOTS (4 * FILES)
/* Names of 96 bytes for each file, on average. */
#define NAME_BYTES (96u * FILES)
/* A path is no longer. */
#define NAME_MAX_BYTES 4096
/* Processes at one time, at most: two whose ids are so far apart share a slot. */
#define PROCESSES 8192u
/* Addresses that a task talks to. More are counted in the last one. */
#define PEERS 1024u
/* Sizes of operations: 0, 1, 2-3, 4-7, … and the last from 4 MiB on. */
#define SIZES 24
/* Monitors that count at one time, each inside the next. */
#define TABLES 4
/* Descriptors that are remembered; higher ones are counted in OTHERS. */
#define DESCRIPTORS 65536

/* Files that are none, before all others. */
enum { OTHERS, PIPES, NAMELESS, SOCKETS, RESERVED };

struct file {
    uint64_t device, inode, birth;
    uint32_t name_at, name_bytes;
    uint64_t opens, closes;
    uint64_t read_bytes, written_bytes;
    /* By stdio, from the position of the descriptor: nobody knows in how many operations. */
    uint64_t stream_read_bytes, stream_written_bytes;
    uint64_t maps, mapped_bytes;
    uint64_t reads[SIZES], writes[SIZES];
    uint64_t spare[4];
};

/* It is becoming another program, which has not said that it counts. */
#define BECOMING 0x80000000u

struct process {
    uint32_t pid, images;
    uint64_t opens, reads, writes, read_bytes, written_bytes;
    uint64_t stream_read_bytes, stream_written_bytes;
};

struct peer {
    /* 0 free, 1 being written, 2 there. */
    uint32_t state;
    uint16_t family, port;
    uint8_t address[16];
    uint64_t connections, sent_bytes, received_bytes, sends, receives;
};

struct table {
    uint64_t magic;
    uint64_t files_next, names_next;
    uint64_t sent_bytes, received_bytes;
    /* Slots of processes that were another's still. */
    uint64_t collisions;
    uint64_t spare[58];
    struct process processes[PROCESSES];
    struct peer peers[PEERS];
    uint32_t slots[SLOTS];
    struct file files[FILES];
    char names[NAME_BYTES];
};

_Static_assert(sizeof(struct file) == 512 && sizeof(struct process) == 64, "as the reader has them");
_Static_assert(sizeof(struct table) == 10813952, "likewise");
_Static_assert(sizeof(struct peer) == 64 && offsetof(struct table, processes) == 512, "likewise");

/* What is known of a descriptor: its place in each table plus one, or 0. */
struct known {
    uint32_t file[TABLES], peer[TABLES];
};

/* A stream that is followed by its descriptor's position. */
struct stream {
    FILE *at;
    off_t mark;
};

static struct table *tables[TABLES];
static int table_count;
static struct known known[DESCRIPTORS];
static struct stream streams[DESCRIPTORS];
/* One above the greatest descriptor of a stream. */
static int streams_end;
static pid_t owner;
static int is_ready;

#define EXPORT __attribute__((visibility("default")))
#define ADD(place, value) __atomic_fetch_add(&(place), (uint64_t)(value), __ATOMIC_RELAXED)

/* The functions that this library stands before; all are looked up before the program starts, since
 * the search takes locks. */
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

/* ---- Which file a descriptor is ---- */

static uint64_t mixed(uint64_t device, uint64_t inode, uint64_t birth) {
    uint64_t hash = inode * 0x9e3779b97f4a7c15ull ^ (device << 17) ^ birth;
    hash ^= hash >> 29;
    return hash * 0xbf58476d1ce4e5b9ull >> 20;
}

/* The name of a new file, once. A name that finds no room is missing; the file is counted. */
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
    /* Of four slots a file three are free: the search is short. */
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

static int is_own(void) { return syscall(SYS_getpid) == owner; }

/* Finds the file of a descriptor in each table. A child of vfork has its parent's memory but
 * descriptors of its own: what it finds is not kept. */
static struct known look(int fd) {
    struct known found;
    memset(&found, 0, sizeof found);
    int error = errno;
    struct statx about;
    long failed = syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO | STATX_BTIME, &about);
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

/* It is, or will be, another file. */
static void forget(int fd) {
    if (fd < 0 || fd >= DESCRIPTORS) return;
    for (int t = 0; t < table_count; t++) {
        __atomic_store_n(&known[fd].file[t], 0, __ATOMIC_RELAXED);
        __atomic_store_n(&known[fd].peer[t], 0, __ATOMIC_RELAXED);
    }
}

static struct process *process_in(struct table *table) { return &table->processes[(uint32_t)owner % PROCESSES]; }

/* ---- Streams, by the position of their descriptors ---- */

static off_t position(int fd) { return (off_t)syscall(SYS_lseek, fd, 0, SEEK_CUR); }

static void follow(int fd, FILE *stream) {
    if (table_count == 0 || fd < 0 || fd >= DESCRIPTORS || !is_own()) return;
    int error = errno;
    long flags = syscall(SYS_fcntl, fd, F_GETFL);
    off_t mark = position(fd);
    /* What is appended moves to the end, wherever others have put that. */
    int can = mark >= 0 && flags >= 0 && !(flags & O_APPEND);
    streams[fd].mark = mark;
    streams[fd].at = can ? stream : NULL;
    if (can && fd >= streams_end) streams_end = fd + 1;
    errno = error;
}

static void streamed(int fd, int64_t bytes, int is_written) {
    if (bytes <= 0) return;
    struct known file = of(fd);
    for (int t = 0; t < table_count; t++) {
        struct file *of_it = &tables[t]->files[file.file[t] - 1];
        struct process *own = process_in(tables[t]);
        if (is_written) ADD(of_it->stream_written_bytes, bytes), ADD(own->stream_written_bytes, bytes);
        else ADD(of_it->stream_read_bytes, bytes), ADD(own->stream_read_bytes, bytes);
    }
}

/* What a stream moved since the last time. Returns what it still holds and will write. */
static int64_t settle(int fd) {
    if (fd < 0 || fd >= DESCRIPTORS || !streams[fd].at || !is_own()) return 0;
    int error = errno;
    FILE *stream = streams[fd].at;
    off_t now = position(fd);
    int64_t pending = 0;
    /* A stream without a buffer has moved nothing: others may have, by the same open file. */
    if (now >= 0 && __fbufsize(stream) > 0) {
        int is_written = __fwriting(stream) != 0;
        streamed(fd, now - streams[fd].mark, is_written);
        pending = is_written && fwide(stream, 0) <= 0 ? (int64_t)__fpending(stream) : 0;
    }
    if (now >= 0) streams[fd].mark = now;
    errno = error;
    return pending;
}

static void unfollow(int fd) {
    if (fd >= 0 && fd < DESCRIPTORS && streams[fd].at && is_own()) streams[fd].at = NULL;
}

/* Before the process ends or becomes another. */
static void settle_all(int are_flushed) {
    if (table_count == 0 || !is_own()) return;
    for (int fd = 0; fd < streams_end; fd++) {
        int64_t pending = settle(fd);
        if (are_flushed) streamed(fd, pending, 1);
        if (are_flushed) streams[fd].at = NULL;
    }
}

/* A child will share what was inherited: from now on the position says nothing of one alone. */
static void will_fork(void) {
    for (int fd = 0; fd <= 1; fd++) settle(fd), unfollow(fd);
}

/* ---- Counting ---- */

static void peer_counts(struct known file, int64_t bytes, int is_sent);

static unsigned size_of(int64_t bytes) {
    unsigned bits = bytes > 0 ? 64 - (unsigned)__builtin_clzll((uint64_t)bytes) : 0;
    return bits < SIZES ? bits : SIZES - 1;
}

enum { READ, WRITE };

/* One operation that succeeded; `moves` if it moved the descriptor's position. */
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
    if (moves && fd >= 0 && fd < DESCRIPTORS && streams[fd].at) streams[fd].mark += bytes;
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

/* Before a descriptor is closed. */
static void closing(int fd) {
    if (table_count == 0 || fd < 0 || fd >= DESCRIPTORS) return;
    settle(fd), unfollow(fd);
    for (int t = 0; t < table_count; t++) {
        uint32_t place = __atomic_load_n(&known[fd].file[t], __ATOMIC_RELAXED);
        if (place) ADD(tables[t]->files[place - 1].closes, 1);
    }
    forget(fd);
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

/* The place of an address, plus one; the last one stands for all that found none. */
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
        /* One that is being written may be the same: then there are two, which the reader adds. */
        if (state == 2 && peer->family == address->sa_family && peer->port == port &&
            memcmp(peer->address, bytes, 16) == 0)
            return at + 1;
    }
    return PEERS;
}

static void met(int fd, const struct sockaddr *address, int has_port, int is_new) {
    struct known *keep = fd >= 0 && fd < DESCRIPTORS && is_own() ? &known[fd] : NULL;
    for (int t = 0; t < table_count; t++) {
        uint32_t place = peer_place(tables[t], address, has_port);
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

/* One operation of a socket, to or from an address if it was named. */
static void talked(int fd, int64_t bytes, int is_sent, const struct sockaddr *address) {
    if (table_count == 0 || bytes < 0) return;
    int error = errno;
    struct known file = of(fd);
    if (address && (address->sa_family == AF_INET || address->sa_family == AF_INET6)) {
        for (int t = 0; t < table_count; t++) file.peer[t] = peer_place(tables[t], address, is_sent);
    } else if (!file.peer[0]) {
        struct sockaddr_storage other;
        socklen_t size = sizeof other;
        if (syscall(SYS_getpeername, fd, &other, &size) == 0) {
            met(fd, (struct sockaddr *)&other, 1, 0);
            file = of(fd);
        }
    }
    peer_counts(file, bytes, is_sent);
    errno = error;
}

/* ---- The start of a process ---- */

static void registered(void) {
    owner = (pid_t)syscall(SYS_getpid);
    for (int t = 0; t < table_count; t++) {
        struct process *own = process_in(tables[t]);
        uint32_t before = __atomic_load_n(&own->pid, __ATOMIC_RELAXED);
        if (before != (uint32_t)owner) {
            /* The monitor empties the slot of one that ended. */
            if (before != 0) ADD(tables[t]->collisions, 1);
            memset(own, 0, sizeof *own);
        }
        __atomic_store_n(&own->pid, (uint32_t)owner, __ATOMIC_RELAXED);
        own->images = (own->images & ~BECOMING) + 1;
    }
}

/* What parent and child have open is one: the parent counts what its streams moved. */
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

__attribute__((constructor(101))) static void start(void) {
    int error = errno;
    for (struct next *next = __start_skopos_next; next < __stop_skopos_next; next++) find(next->name, next->place);
    const char *list = getenv(SKOPOS_VARIABLE);
    while (list && *list && table_count < TABLES) {
        size_t length = strcspn(list, ":");
        map(list, length);
        list += length + (list[length] == ':');
    }
    if (table_count > 0) {
        registered();
        pthread_atfork(will_fork, NULL, forked);
        follow(0, stdin);
        follow(1, stdout);
    }
    __atomic_store_n(&is_ready, 1, __ATOMIC_RELEASE);
    errno = error;
}

__attribute__((destructor)) static void end(void) { settle_all(1); }

/* ---- Files ---- */

#define WITH_MODE                                                                                  \
    mode_t mode = 0;                                                                               \
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                                     \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode = va_arg(more, mode_t);                                                               \
        va_end(more);                                                                              \
    }

/* Before the start only raw system calls are safe: an allocator may be starting below us. */
#define EARLY(call)                                                                                \
    if (!__atomic_load_n(&is_ready, __ATOMIC_ACQUIRE)) return call

#define OPEN(name)                                                                                 \
    WRAP(int, name, (const char *path, int flags, ...)) {                                          \
        WITH_MODE                                                                                  \
        EARLY((int)syscall(SYS_openat, AT_FDCWD, path, flags, mode));                              \
        int fd = NEXT(name)(path, flags, mode);                                                    \
        opened(fd);                                                                                \
        return fd;                                                                                 \
    }
#define OPENAT(name)                                                                               \
    WRAP(int, name, (int at, const char *path, int flags, ...)) {                                  \
        WITH_MODE                                                                                  \
        EARLY((int)syscall(SYS_openat, at, path, flags, mode));                                    \
        int fd = NEXT(name)(at, path, flags, mode);                                                \
        opened(fd);                                                                                \
        return fd;                                                                                 \
    }
/* A call that makes a descriptor, in one line. */
#define OPENS(name, parameters, arguments)                                                         \
    WRAP(int, name, parameters) {                                                                  \
        int fd = NEXT(name) arguments;                                                             \
        opened(fd);                                                                                \
        return fd;                                                                                 \
    }
/* A call that reads or writes, in one line. */
#define COUNTS(what, moves, name, parameters, arguments)                                           \
    WRAP(ssize_t, name, parameters) {                                                              \
        ssize_t bytes = NEXT(name) arguments;                                                      \
        count(fd, bytes, what, moves);                                                             \
        return bytes;                                                                              \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
OPENS(__open_2, (const char *path, int flags), (path, flags))
OPENS(__open64_2, (const char *path, int flags), (path, flags))
OPENS(__openat_2, (int at, const char *path, int flags), (at, path, flags))
OPENS(__openat64_2, (int at, const char *path, int flags), (at, path, flags))
OPENS(creat, (const char *path, mode_t mode), (path, mode))
OPENS(creat64, (const char *path, mode_t mode), (path, mode))

WRAP(ssize_t, read, (int fd, void *to, size_t size)) {
    EARLY(syscall(SYS_read, fd, to, size));
    ssize_t bytes = NEXT(read)(fd, to, size);
    count(fd, bytes, READ, 1);
    return bytes;
}

WRAP(ssize_t, write, (int fd, const void *from, size_t size)) {
    EARLY(syscall(SYS_write, fd, from, size));
    ssize_t bytes = NEXT(write)(fd, from, size);
    count(fd, bytes, WRITE, 1);
    return bytes;
}

COUNTS(READ, 1, __read_chk, (int fd, void *to, size_t size, size_t room), (fd, to, size, room))
COUNTS(READ, 0, pread, (int fd, void *to, size_t size, off_t at), (fd, to, size, at))
COUNTS(READ, 0, pread64, (int fd, void *to, size_t size, off64_t at), (fd, to, size, at))
COUNTS(READ, 0, __pread_chk, (int fd, void *to, size_t size, off_t at, size_t room), (fd, to, size, at, room))
COUNTS(READ, 0, __pread64_chk, (int fd, void *to, size_t size, off64_t at, size_t room), (fd, to, size, at, room))
COUNTS(READ, 1, readv, (int fd, const struct iovec *parts, int n), (fd, parts, n))
COUNTS(READ, 0, preadv, (int fd, const struct iovec *parts, int n, off_t at), (fd, parts, n, at))
COUNTS(READ, 0, preadv64, (int fd, const struct iovec *parts, int n, off64_t at), (fd, parts, n, at))
COUNTS(READ, at == -1, preadv2, (int fd, const struct iovec *parts, int n, off_t at, int flags), (fd, parts, n, at, flags))
COUNTS(READ, at == -1, preadv64v2, (int fd, const struct iovec *parts, int n, off64_t at, int flags), (fd, parts, n, at, flags))
COUNTS(WRITE, 0, pwrite, (int fd, const void *from, size_t size, off_t at), (fd, from, size, at))
COUNTS(WRITE, 0, pwrite64, (int fd, const void *from, size_t size, off64_t at), (fd, from, size, at))
COUNTS(WRITE, 1, writev, (int fd, const struct iovec *parts, int n), (fd, parts, n))
COUNTS(WRITE, 0, pwritev, (int fd, const struct iovec *parts, int n, off_t at), (fd, parts, n, at))
COUNTS(WRITE, 0, pwritev64, (int fd, const struct iovec *parts, int n, off64_t at), (fd, parts, n, at))
COUNTS(WRITE, at == -1, pwritev2, (int fd, const struct iovec *parts, int n, off_t at, int flags), (fd, parts, n, at, flags))
COUNTS(WRITE, at == -1, pwritev64v2, (int fd, const struct iovec *parts, int n, off64_t at, int flags), (fd, parts, n, at, flags))

/* The kernel counts both ends of these, and so does this. */
#define COPIES(name, offset)                                                                       \
    WRAP(ssize_t, name, (int out, int in, offset *at, size_t size)) {                              \
        ssize_t bytes = NEXT(name)(out, in, at, size);                                             \
        count(in, bytes, READ, at == NULL);                                                        \
        count(out, bytes, WRITE, 1);                                                               \
        return bytes;                                                                              \
    }
COPIES(sendfile, off_t)
COPIES(sendfile64, off64_t)

WRAP(ssize_t, copy_file_range, (int in, off64_t *in_at, int out, off64_t *out_at, size_t size, unsigned flags)) {
    ssize_t bytes = NEXT(copy_file_range)(in, in_at, out, out_at, size, flags);
    count(in, bytes, READ, in_at == NULL);
    count(out, bytes, WRITE, out_at == NULL);
    return bytes;
}

WRAP(int, close, (int fd)) {
    EARLY((int)syscall(SYS_close, fd));
    closing(fd);
    return NEXT(close)(fd);
}

static void closing_all(unsigned first, unsigned last) {
    if (table_count == 0) return;
    for (unsigned fd = first; fd <= last && fd < DESCRIPTORS; fd++)
        if (known[fd].file[0] || streams[fd].at) closing((int)fd);
}

WRAP(int, close_range, (unsigned first, unsigned last, int flags)) {
    int failed = NEXT(close_range)(first, last, flags);
    /* With a flag they stay open until the process becomes another. */
    if (!failed && flags == 0) closing_all(first, last);
    return failed;
}

WRAP(void, closefrom, (int first)) {
    closing_all(first < 0 ? 0 : (unsigned)first, DESCRIPTORS);
    NEXT(closefrom)(first);
}

WRAP(int, dup, (int fd)) {
    int made = NEXT(dup)(fd);
    forget(made);
    return made;
}

WRAP(int, dup2, (int fd, int other)) {
    if (fd != other) closing(other);
    return NEXT(dup2)(fd, other);
}

WRAP(int, dup3, (int fd, int other, int flags)) {
    if (fd != other) closing(other);
    return NEXT(dup3)(fd, other, flags);
}

#define SEEKS(name, offset)                                                                        \
    WRAP(offset, name, (int fd, offset at, int from)) {                                            \
        if (fd >= 0 && fd < DESCRIPTORS && streams[fd].at) settle(fd);                             \
        offset now = NEXT(name)(fd, at, from);                                                     \
        if (now >= 0 && fd < DESCRIPTORS && streams[fd].at && is_own()) streams[fd].mark = now;    \
        return now;                                                                                \
    }
SEEKS(lseek, off_t)
SEEKS(lseek64, off64_t)

#define MAPS(name, offset)                                                                         \
    WRAP(void *, name, (void *at, size_t bytes, int protection, int flags, int fd, offset from)) { \
        EARLY((void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, from));                  \
        void *place = NEXT(name)(at, bytes, protection, flags, fd, from);                          \
        if (place != MAP_FAILED && !(flags & MAP_ANONYMOUS)) mapped(fd, bytes);                    \
        return place;                                                                              \
    }
MAPS(mmap, off_t)
MAPS(mmap64, off64_t)

WRAP(DIR *, opendir, (const char *path)) {
    DIR *folder = NEXT(opendir)(path);
    if (folder) opened(dirfd(folder));
    return folder;
}

WRAP(int, closedir, (DIR *folder)) {
    closing(dirfd(folder));
    return NEXT(closedir)(folder);
}

/* ---- Streams ---- */

#define FOPEN(name)                                                                                \
    WRAP(FILE *, name, (const char *path, const char *mode)) {                                     \
        FILE *stream = NEXT(name)(path, mode);                                                     \
        if (stream) opened(fileno(stream)), follow(fileno(stream), stream);                        \
        return stream;                                                                             \
    }
FOPEN(fopen)
FOPEN(fopen64)

#define FREOPEN(name)                                                                              \
    WRAP(FILE *, name, (const char *path, const char *mode, FILE *stream)) {                       \
        int before = fileno(stream);                                                               \
        int64_t pending = before >= 0 && before < DESCRIPTORS ? settle(before) : 0;                \
        streamed(before, pending, 1);                                                              \
        if (before >= 0) closing(before);                                                          \
        FILE *made = NEXT(name)(path, mode, stream);                                               \
        if (made) opened(fileno(made)), follow(fileno(made), made);                                \
        return made;                                                                               \
    }
FREOPEN(freopen)
FREOPEN(freopen64)

WRAP(FILE *, fdopen, (int fd, const char *mode)) {
    FILE *stream = NEXT(fdopen)(fd, mode);
    if (stream) follow(fd, stream);
    return stream;
}

WRAP(int, fclose, (FILE *stream)) {
    int fd = fileno_unlocked(stream);
    int64_t pending = settle(fd);
    struct known file = {{0}, {0}};
    if (table_count > 0 && fd >= 0 && pending > 0) file = of(fd);
    closing(fd);
    int failed = NEXT(fclose)(stream);
    for (int t = 0; t < table_count && !failed && pending > 0; t++) {
        ADD(tables[t]->files[file.file[t] - 1].stream_written_bytes, pending);
        ADD(process_in(tables[t])->stream_written_bytes, pending);
    }
    return failed;
}

/* A stream that turns from reading to writing, or moves, is asked before. */
static int before_move(FILE *stream) {
    int fd = stream ? fileno_unlocked(stream) : -1;
    streamed(fd, settle(fd), 1);
    return fd;
}

static void after_move(int fd) {
    if (fd < 0 || fd >= DESCRIPTORS || !streams[fd].at || !is_own()) return;
    int error = errno;
    streams[fd].mark = position(fd);
    errno = error;
}

#define MOVES(result, name, parameters, arguments)                                                 \
    WRAP(result, name, parameters) {                                                               \
        int fd = table_count ? before_move(stream) : -1;                                           \
        result failed = NEXT(name) arguments;                                                      \
        after_move(fd);                                                                            \
        return failed;                                                                             \
    }
MOVES(int, fflush, (FILE *stream), (stream))
MOVES(int, fseek, (FILE *stream, long at, int from), (stream, at, from))
MOVES(int, fseeko, (FILE *stream, off_t at, int from), (stream, at, from))
MOVES(int, fseeko64, (FILE *stream, off64_t at, int from), (stream, at, from))
MOVES(int, fsetpos, (FILE *stream, const fpos_t *at), (stream, at))
MOVES(int, fsetpos64, (FILE *stream, const fpos64_t *at), (stream, at))

WRAP(void, rewind, (FILE *stream)) {
    int fd = table_count ? before_move(stream) : -1;
    NEXT(rewind)(stream);
    after_move(fd);
}

/* ---- Sockets ---- */

WRAP(int, connect, (int fd, const struct sockaddr *address, socklen_t size)) {
    int failed = NEXT(connect)(fd, address, size);
    int is_inet = address && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
    if (table_count && is_inet && (!failed || errno == EINPROGRESS)) {
        int error = errno;
        of(fd);
        met(fd, address, 1, 1);
        errno = error;
    }
    return failed;
}

static void accepted(int fd) {
    if (table_count == 0 || fd < 0) return;
    int error = errno;
    forget(fd);
    struct sockaddr_storage other;
    socklen_t size = sizeof other;
    look(fd);
    /* Its port is a new one each time and says nothing. */
    if (syscall(SYS_getpeername, fd, &other, &size) == 0) met(fd, (struct sockaddr *)&other, 0, 1);
    errno = error;
}

WRAP(int, accept, (int fd, struct sockaddr *address, socklen_t *size)) {
    int made = NEXT(accept)(fd, address, size);
    accepted(made);
    return made;
}

WRAP(int, accept4, (int fd, struct sockaddr *address, socklen_t *size, int flags)) {
    int made = NEXT(accept4)(fd, address, size, flags);
    accepted(made);
    return made;
}

#define TALKS(is_sent, address, name, parameters, arguments)                                       \
    WRAP(ssize_t, name, parameters) {                                                              \
        ssize_t bytes = NEXT(name) arguments;                                                      \
        talked(fd, bytes, is_sent, address);                                                       \
        return bytes;                                                                              \
    }
TALKS(1, NULL, send, (int fd, const void *from, size_t size, int flags), (fd, from, size, flags))
TALKS(0, NULL, recv, (int fd, void *to, size_t size, int flags), (fd, to, size, flags))
TALKS(0, NULL, __recv_chk, (int fd, void *to, size_t size, size_t room, int flags), (fd, to, size, room, flags))
TALKS(1, to, sendto, (int fd, const void *from, size_t size, int flags, const struct sockaddr *to, socklen_t length), (fd, from, size, flags, to, length))
TALKS(0, from, recvfrom, (int fd, void *to, size_t size, int flags, struct sockaddr *from, socklen_t *length), (fd, to, size, flags, from, length))
TALKS(0, from, __recvfrom_chk, (int fd, void *to, size_t size, size_t room, int flags, struct sockaddr *from, socklen_t *length), (fd, to, size, room, flags, from, length))
TALKS(1, message->msg_name, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
TALKS(0, message->msg_namelen ? message->msg_name : NULL, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))

WRAP(int, sendmmsg, (int fd, struct mmsghdr *messages, unsigned n, int flags)) {
    int done = NEXT(sendmmsg)(fd, messages, n, flags);
    for (int i = 0; i < done; i++) talked(fd, messages[i].msg_len, 1, messages[i].msg_hdr.msg_name);
    return done;
}

WRAP(int, recvmmsg, (int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *timeout)) {
    int done = NEXT(recvmmsg)(fd, messages, n, flags, timeout);
    for (int i = 0; i < done; i++) {
        struct msghdr *of_it = &messages[i].msg_hdr;
        talked(fd, messages[i].msg_len, 0, of_it->msg_namelen ? of_it->msg_name : NULL);
    }
    return done;
}

/* ---- Ends and births that the C library tells nobody of ---- */

#define ENDS(name)                                                                                 \
    __attribute__((noreturn)) WRAP(void, name, (int status)) {                                     \
        settle_all(0);                                                                             \
        NEXT(name)(status);                                                                        \
        syscall(SYS_exit_group, status);                                                           \
        __builtin_unreachable();                                                                   \
    }
ENDS(_exit)
ENDS(_Exit)

static void becoming(int is_so) {
    if (table_count == 0 || !is_own()) return;
    if (is_so) settle_all(0);
    for (int t = 0; t < table_count; t++) {
        uint32_t *images = &process_in(tables[t])->images;
        if (is_so) __atomic_fetch_or(images, BECOMING, __ATOMIC_RELAXED);
        else __atomic_fetch_and(images, ~BECOMING, __ATOMIC_RELAXED);
    }
}

#define BECOMES(name, parameters, arguments)                                                       \
    WRAP(int, name, parameters) {                                                                  \
        becoming(1);                                                                               \
        int failed = NEXT(name) arguments;                                                         \
        becoming(0);                                                                               \
        return failed;                                                                             \
    }
BECOMES(execve, (const char *path, char *const words[], char *const variables[]), (path, words, variables))
BECOMES(execv, (const char *path, char *const words[]), (path, words))
BECOMES(execvp, (const char *path, char *const words[]), (path, words))
BECOMES(execvpe, (const char *path, char *const words[], char *const variables[]), (path, words, variables))

BECOMES(fexecve, (int fd, char *const words[], char *const variables[]), (fd, words, variables))

/* Those with a list of words become those with an array, on the stack as in the C library. */
#define BECOMES_LIST(name, then, variables)                                                        \
    EXPORT int name(const char *path, const char *word, ...) {                                     \
        va_list more;                                                                              \
        size_t n = 1;                                                                              \
        va_start(more, word);                                                                      \
        while (va_arg(more, const char *)) n++;                                                    \
        va_end(more);                                                                              \
        char *words[n + 1];                                                                        \
        words[0] = (char *)word;                                                                   \
        va_start(more, word);                                                                      \
        for (size_t at = 1; at <= n; at++) words[at] = va_arg(more, char *);                       \
        char *const *with = variables;                                                             \
        va_end(more);                                                                              \
        return then(path, words, with);                                                            \
    }
BECOMES_LIST(execl, execve, environ)
BECOMES_LIST(execle, execve, va_arg(more, char *const *))
BECOMES_LIST(execlp, execvpe, environ)

#define STARTS(result, name, parameters, arguments)                                                \
    WRAP(result, name, parameters) {                                                               \
        if (table_count) will_fork();                                                              \
        return NEXT(name) arguments;                                                               \
    }
STARTS(int, posix_spawn, (pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how, char *const words[], char *const variables[]), (pid, path, actions, how, words, variables))
STARTS(int, posix_spawnp, (pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how, char *const words[], char *const variables[]), (pid, path, actions, how, words, variables))
STARTS(int, system, (const char *line), (line))
STARTS(FILE *, popen, (const char *line, const char *mode), (line, mode))
