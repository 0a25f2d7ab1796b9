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

/* Counts bytes that the kernel's own counts lack. */
static void uncounted(int64_t bytes, int is_read, int is_written) {
    for (int t = 0; t < table_count && bytes > 0; t++) {
        if (is_read) ADD(tables[t]->uncounted_read, bytes);
        if (is_written) ADD(tables[t]->uncounted_written, bytes);
    }
}

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

#define COPIES_RANGE(name)                                                                   \
    WRAP(ssize_t, name, (int in, off64_t *in_at, int out, off64_t *out_at, size_t size, unsigned flags)) { \
        ssize_t bytes = NEXT(name)(in, in_at, out, out_at, size, flags);                           \
        count(in, bytes, READ, in_at == NULL);                                                     \
        count(out, bytes, WRITE, out_at == NULL);                                                  \
        return bytes;                                                                              \
    }
COPIES_RANGE(copy_file_range)

WRAP(ssize_t, splice, (int in, off64_t *in_at, int out, off64_t *out_at, size_t size, unsigned flags)) {
    ssize_t bytes = NEXT(splice)(in, in_at, out, out_at, size, flags);
    count(in, bytes, READ, in_at == NULL);
    count(out, bytes, WRITE, out_at == NULL);
    uncounted(bytes, 1, 1);
    return bytes;
}

/* The bytes stay in the pipe from which they are copied: they are read from it later. */
WRAP(ssize_t, tee, (int in, int out, size_t size, unsigned flags)) {
    ssize_t bytes = NEXT(tee)(in, out, size, flags);
    count(out, bytes, WRITE, 0);
    uncounted(bytes, 0, 1);
    return bytes;
}

WRAP(ssize_t, vmsplice, (int fd, const struct iovec *parts, size_t n, unsigned flags)) {
    ssize_t bytes = NEXT(vmsplice)(fd, parts, n, flags);
    if (table_count == 0 || bytes < 0 || is_quiet) return bytes;
    int error = errno;
    int is_read = (syscall(SYS_fcntl, fd, F_GETFL) & O_ACCMODE) == O_RDONLY;
    errno = error;
    count(fd, bytes, is_read ? READ : WRITE, 0);
    uncounted(bytes, is_read, !is_read);
    return bytes;
}

WRAP(int, close, (int fd)) {
    EARLY((int)syscall(SYS_close, fd));
    closing(fd);
    return NEXT(close)(fd);
}

static int is_used(unsigned fd) { return fd < DESCRIPTORS && (known[fd].file[0] || streams[fd].at); }

static void closing_all(unsigned first, unsigned last) {
    if (table_count == 0) return;
    for (unsigned fd = first; fd <= last && fd < DESCRIPTORS; fd++)
        if (is_used(fd)) closing((int)fd);
}

WRAP(int, close_range, (unsigned first, unsigned last, int flags)) {
    /* With CLOSE_RANGE_CLOEXEC they stay open until exec. */
    int closes = table_count > 0 && !(flags & CLOSE_RANGE_CLOEXEC);
    /* The positions of streams are gone after the call. */
    for (unsigned fd = first; closes && fd <= last && fd < (unsigned)streams_end; fd++) settle((int)fd);
    int failed = NEXT(close_range)(first, last, flags);
    if (!failed && closes) closing_all(first, last);
    return failed;
}

WRAP(void, closefrom, (int first)) {
    closing_all(first < 0 ? 0 : (unsigned)first, DESCRIPTORS);
    NEXT(closefrom)(first);
}

static int made_copy(int from, int made) {
    forget(made);
    copied(from, made);
    return made;
}

WRAP(int, dup, (int fd)) { return made_copy(fd, NEXT(dup)(fd)); }

/* A stream on the descriptor that is replaced goes on with the new file. */
static int replaced(int from, int other, int made) {
    if (made < 0 || from == other) return made;
    FILE *stream = is_followed(other) ? streams[other].at : NULL;
    closed(other);
    made_copy(from, made);
    if (stream) follow(other, stream);
    return made;
}

WRAP(int, dup2, (int fd, int other)) {
    if (fd != other) settle(other);
    return replaced(fd, other, NEXT(dup2)(fd, other));
}

WRAP(int, dup3, (int fd, int other, int flags)) {
    if (fd != other) settle(other);
    return replaced(fd, other, NEXT(dup3)(fd, other, flags));
}

#define CONTROLS(name)                                                                             \
    WRAP(int, name, (int fd, int what, ...)) {                                                     \
        va_list more;                                                                              \
        va_start(more, what);                                                                      \
        void *with = va_arg(more, void *);                                                         \
        va_end(more);                                                                              \
        if (what == F_SETFL) settle(fd);                                                           \
        int done = NEXT(name)(fd, what, with);                                                     \
        if (what == F_DUPFD || what == F_DUPFD_CLOEXEC) made_copy(fd, done);                       \
        /* The position of a stream that appends from now on does not tell its bytes. */           \
        if (what == F_SETFL && done == 0 && is_followed(fd)) follow(fd, streams[fd].at);           \
        return done;                                                                               \
    }
CONTROLS(fcntl)
CONTROLS(fcntl64)

#define SEEKS(name, offset)                                                                        \
    WRAP(offset, name, (int fd, offset at, int from)) {                                            \
        settle_shared(fd);                                                                         \
        offset now = NEXT(name)(fd, at, from);                                                     \
        if (now >= 0) moved(fd, now);                                                              \
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
    /* A program may pass a null pointer, though the header forbids it and compilers rely on that. */
    DIR *volatile any = folder;
    if (any) closing(dirfd(any));
    return NEXT(closedir)(folder);
}

/* ---- Files with names that the C library chooses ---- */

OPENS(mkstemp, (char *path), (path))
OPENS(mkstemp64, (char *path), (path))
OPENS(mkostemp, (char *path, int flags), (path, flags))
OPENS(mkostemp64, (char *path, int flags), (path, flags))
OPENS(mkstemps, (char *path, int end), (path, end))
OPENS(mkstemps64, (char *path, int end), (path, end))
OPENS(mkostemps, (char *path, int end, int flags), (path, end, flags))
OPENS(mkostemps64, (char *path, int end, int flags), (path, end, flags))
OPENS(open_by_handle_at, (int mount, struct file_handle *handle, int flags), (mount, handle, flags))

/* ---- Streams ---- */

static FILE *opened_stream(FILE *stream) {
    if (!stream || table_count == 0) return stream;
    int error = errno, fd = fileno_unlocked(stream);
    opened(fd);
    follow(fd, stream);
    errno = error;
    return stream;
}

WRAP(FILE *, fopen, (const char *path, const char *mode)) { return opened_stream(NEXT(fopen)(path, mode)); }
WRAP(FILE *, fopen64, (const char *path, const char *mode)) { return opened_stream(NEXT(fopen64)(path, mode)); }
WRAP(FILE *, tmpfile, (void)) { return opened_stream(NEXT(tmpfile)()); }
WRAP(FILE *, tmpfile64, (void)) { return opened_stream(NEXT(tmpfile64)()); }

static void before_reopening(FILE *stream) {
    if (table_count == 0 || !stream) return;
    int error = errno, fd = fileno_unlocked(stream);
    streamed(fd, settle(fd), 1);
    closing(fd);
    errno = error;
}

#define FREOPEN(name)                                                                              \
    WRAP(FILE *, name, (const char *path, const char *mode, FILE *stream)) {                       \
        before_reopening(stream);                                                                  \
        return opened_stream(NEXT(name)(path, mode, stream));                                      \
    }
FREOPEN(freopen)
FREOPEN(freopen64)

WRAP(FILE *, fdopen, (int fd, const char *mode)) {
    FILE *stream = NEXT(fdopen)(fd, mode);
    if (stream) follow(fd, stream);
    return stream;
}

/* The bytes that the close writes are counted for the file if it succeeds. */
static int closes_stream(FILE *stream, int (*close_it)(FILE *)) {
    if (table_count == 0 || !stream) return close_it(stream);
    int error = errno, fd = fileno_unlocked(stream);
    errno = error;
    int64_t pending = settle(fd);
    struct known file = {{0}, {0}};
    if (fd >= 0 && pending > 0) file = of(fd);
    closing(fd);
    int failed = close_it(stream);
    for (int t = 0; t < table_count && failed != -1 && pending > 0 && file.file[0]; t++) {
        ADD(tables[t]->files[file.file[t] - 1].stream_written_bytes, pending);
        ADD(process_in(tables[t])->stream_written_bytes, pending);
    }
    return failed;
}

WRAP(int, fclose, (FILE *stream)) { return closes_stream(stream, NEXT(fclose)); }
WRAP(int, pclose, (FILE *stream)) { return closes_stream(stream, NEXT(pclose)); }

#define MOVES(result, name, from, is_seek, parameters, arguments)                                  \
    WRAP(result, name, parameters) {                                                               \
        struct sought before = before_seek(stream);                                                \
        result failed = NEXT(name) arguments;                                                      \
        after_seek(stream, &before, from, is_seek && failed == 0);                                 \
        return failed;                                                                             \
    }
MOVES(int, fflush, SEEK_CUR, 0, (FILE *stream), (stream))
MOVES(int, fflush_unlocked, SEEK_CUR, 0, (FILE *stream), (stream))
MOVES(int, fseek, from, 1, (FILE *stream, long at, int from), (stream, at, from))
MOVES(int, fseeko, from, 1, (FILE *stream, off_t at, int from), (stream, at, from))
MOVES(int, fseeko64, from, 1, (FILE *stream, off64_t at, int from), (stream, at, from))
MOVES(int, fsetpos, SEEK_SET, 1, (FILE *stream, const fpos_t *at), (stream, at))
MOVES(int, fsetpos64, SEEK_SET, 1, (FILE *stream, const fpos64_t *at), (stream, at))

WRAP(void, rewind, (FILE *stream)) {
    struct sought before = before_seek(stream);
    NEXT(rewind)(stream);
    after_seek(stream, &before, SEEK_SET, 1);
}

/* `dprintf` writes without a stream of the program. */
static int printed(int fd, int bytes) {
    if (table_count == 0 || bytes <= 0) return bytes;
    int error = errno;
    streamed(fd, bytes, 1);
    if (fd >= 0 && fd < DESCRIPTORS) passed(fd, bytes);
    errno = error;
    return bytes;
}

WRAP(int, vdprintf, (int fd, const char *format, va_list words)) {
    return printed(fd, NEXT(vdprintf)(fd, format, words));
}
WRAP(int, __vdprintf_chk, (int fd, int flag, const char *format, va_list words)) {
    return printed(fd, NEXT(__vdprintf_chk)(fd, flag, format, words));
}
EXPORT int dprintf(int fd, const char *format, ...) {
    va_list words;
    va_start(words, format);
    int bytes = vdprintf(fd, format, words);
    va_end(words);
    return bytes;
}
EXPORT int __dprintf_chk(int fd, int flag, const char *format, ...) {
    va_list words;
    va_start(words, format);
    int bytes = __vdprintf_chk(fd, flag, format, words);
    va_end(words);
    return bytes;
}

/* ---- Sockets ---- */

WRAP(int, connect, (int fd, const struct sockaddr *address, socklen_t size)) {
    int failed = NEXT(connect)(fd, address, size);
    int error = errno;
    struct sockaddr_storage other;
    /* The kernel has read an address that it accepts. */
    if (table_count && (!failed || error == EINPROGRESS) && is_inet(&other, address, size)) {
        of(fd);
        met(fd, &other, 1, 1);
    }
    errno = error;
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
    if (!is_quiet && syscall(SYS_getpeername, fd, &other, &size) == 0) met(fd, &other, 0, 1);
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

/* Bytes that stay in the socket are counted when they are taken; errors of earlier messages are not data. */
#define NOT_TAKEN (MSG_PEEK | MSG_ERRQUEUE)

static ssize_t sent(int fd, ssize_t bytes, const void *address, socklen_t size) {
    talked(fd, bytes, 1, address, size);
    return bytes;
}

/* The kernel writes the length of the whole address, and at most `room` bytes of it. */
static ssize_t received(int fd, ssize_t bytes, int flags, const void *address, socklen_t room, const socklen_t *length) {
    if (table_count == 0 || bytes < 0 || flags & NOT_TAKEN) return bytes;
    talked(fd, bytes, 0, address, room ? least(room, *length) : 0);
    return bytes;
}

WRAP(ssize_t, send, (int fd, const void *from, size_t size, int flags)) {
    return sent(fd, NEXT(send)(fd, from, size, flags), NULL, 0);
}
WRAP(ssize_t, recv, (int fd, void *to, size_t size, int flags)) {
    return received(fd, NEXT(recv)(fd, to, size, flags), flags, NULL, 0, NULL);
}
WRAP(ssize_t, __recv_chk, (int fd, void *to, size_t size, size_t room, int flags)) {
    return received(fd, NEXT(__recv_chk)(fd, to, size, room, flags), flags, NULL, 0, NULL);
}
WRAP(ssize_t, sendto, (int fd, const void *from, size_t size, int flags, const struct sockaddr *to, socklen_t length)) {
    return sent(fd, NEXT(sendto)(fd, from, size, flags, to, length), to, length);
}
WRAP(ssize_t, recvfrom, (int fd, void *to, size_t size, int flags, struct sockaddr *from, socklen_t *length)) {
    socklen_t room = room_for_sender(fd, from, length);
    return received(fd, NEXT(recvfrom)(fd, to, size, flags, from, length), flags, from, room, length);
}
WRAP(ssize_t, __recvfrom_chk, (int fd, void *to, size_t size, size_t most, int flags, struct sockaddr *from, socklen_t *length)) {
    socklen_t room = room_for_sender(fd, from, length);
    return received(fd, NEXT(__recvfrom_chk)(fd, to, size, most, flags, from, length), flags, from, room, length);
}

/* A header that the kernel has read is there; before the call it may not be. */
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags)) {
    ssize_t bytes = NEXT(sendmsg)(fd, message, flags);
    return bytes < 0 ? bytes : sent(fd, bytes, message->msg_name, message->msg_namelen);
}
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags)) {
    struct msghdr before;
    int is_there = table_count && peek(&before, message, sizeof before);
    ssize_t bytes = NEXT(recvmsg)(fd, message, flags);
    if (bytes < 0 || !is_there) return received(fd, bytes, flags, NULL, 0, NULL);
    return received(fd, bytes, flags, before.msg_name, before.msg_name ? before.msg_namelen : 0, &message->msg_namelen);
}

WRAP(int, sendmmsg, (int fd, struct mmsghdr *messages, unsigned n, int flags)) {
    int done = NEXT(sendmmsg)(fd, messages, n, flags);
    for (int i = 0; table_count && i < done; i++)
        sent(fd, messages[i].msg_len, messages[i].msg_hdr.msg_name, messages[i].msg_hdr.msg_namelen);
    return done;
}

/* Number of messages of one call whose senders are known; a page of the stack. */
#define SENDERS 64

WRAP(int, recvmmsg, (int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *timeout)) {
    struct mmsghdr before[SENDERS];
    int known_senders = n < SENDERS ? (int)n : SENDERS;
    if (!table_count || !peek(before, messages, (size_t)known_senders * sizeof *before)) known_senders = 0;
    int done = NEXT(recvmmsg)(fd, messages, n, flags, timeout);
    for (int i = 0; table_count && i < done; i++) {
        struct msghdr *now = &messages[i].msg_hdr;
        socklen_t room = i < known_senders && now->msg_name ? before[i].msg_hdr.msg_namelen : 0;
        received(fd, messages[i].msg_len, flags, now->msg_name, room, &now->msg_namelen);
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

#define BECOMES(name, parameters, variables, call)                                                 \
    WRAP(int, name, parameters) {                                                                  \
        int failed;                                                                                \
        becoming(1);                                                                               \
        WITH_VARIABLES(with, variables, failed = call);                                            \
        becoming(0);                                                                               \
        return failed;                                                                             \
    }
BECOMES(execve, (const char *path, char *const words[], char *const variables[]), variables, NEXT(execve)(path, words, with))
BECOMES(execvpe, (const char *path, char *const words[], char *const variables[]), variables, NEXT(execvpe)(path, words, with))
BECOMES(fexecve, (int fd, char *const words[], char *const variables[]), variables, NEXT(fexecve)(fd, words, with))
BECOMES(execveat, (int at, const char *path, char *const words[], char *const variables[], int flags), variables, NEXT(execveat)(at, path, words, with, flags))

EXPORT int execv(const char *path, char *const words[]) { return execve(path, words, environ); }
EXPORT int execvp(const char *path, char *const words[]) { return execvpe(path, words, environ); }

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

#define SPAWNS(name)                                                                               \
    WRAP(int, name, (pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how, char *const words[], char *const variables[])) { \
        int failed;                                                                                \
        if (table_count) will_fork();                                                              \
        WITH_VARIABLES(with, variables, failed = NEXT(name)(pid, path, actions, how, words, with)); \
        return failed;                                                                             \
    }
SPAWNS(posix_spawn)
SPAWNS(posix_spawnp)

WRAP(int, system, (const char *line)) {
    if (table_count) will_fork();
    leave_own();
    return NEXT(system)(line);
}

WRAP(FILE *, popen, (const char *line, const char *mode)) {
    if (table_count) will_fork();
    leave_own();
    return NEXT(popen)(line, mode);
}

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
