/* The wrapped functions of the C library. Each calls the original first and counts its result. */
/* ---- Files ---- */

#define WITH_MODE                                                                                  \
    mode_t mode = 0;                                                                               \
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                                     \
        va_list more;                                                                              \
        va_start(more, flags);                                                                     \
        mode = va_arg(more, mode_t);                                                               \
        va_end(more);                                                                              \
    }

/* Before the constructor only raw system calls are safe, because an allocator may just be starting. */
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
/* A call that makes a descriptor. */
#define OPENS(name, parameters, arguments)                                                         \
    WRAP(int, name, parameters) {                                                                  \
        int fd = NEXT(name) arguments;                                                             \
        opened(fd);                                                                                \
        return fd;                                                                                 \
    }
/* A call that reads or writes. */
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

/* The kernel counts both ends of these calls, and so does this library. */
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
    /* With CLOSE_RANGE_CLOEXEC they stay open until exec. */
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

/* The bytes of a stream are counted before it changes from reading to writing, or moves. */
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
    /* The client's port is new for each connection and has no meaning. */
    if (!is_quiet && syscall(SYS_getpeername, fd, &other, &size) == 0)
        met(fd, (struct sockaddr *)&other, 0, 1);
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

/* ---- Exits and new processes that run no handlers of the C library ---- */

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

/* Functions with argument lists call those with arrays, which are on the stack as in the C library. */
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

/* A process that sets up a sandbox gives up new privileges first. */
WRAP(int, prctl, (int what, ...)) {
    unsigned long words[4];
    va_list more;
    va_start(more, what);
    for (int i = 0; i < 4; i++) words[i] = va_arg(more, unsigned long);
    va_end(more);
    if (what == PR_SET_NO_NEW_PRIVS || what == PR_SET_SECCOMP) is_quiet = 1;
    return NEXT(prctl)(what, words[0], words[1], words[2], words[3]);
}
