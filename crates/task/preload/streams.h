/* Streams of stdio, by the position of their descriptors.
 *
 * The C library reads and writes for a stream by calls that are not seen here. But each of them moves the
 * position of the descriptor, so the bytes between two positions are those that the stream has moved. A seek
 * moves the position too, and may fill the buffer anew: those bytes are known from the buffer.
 *
 * Several descriptors may share one position, which their numbers in `position_of` show. */

/* A stream whose bytes are known from the position of its descriptor. */
struct stream {
    FILE *at;
    /* The position from which it has read since, and from which it has written since: a buffer that was
     * read ahead lies between the two. */
    off_t read_from, write_from;
    /* Descriptors with the same number share a position; 0 if the descriptor was never copied. */
    uint32_t position_of;
};

static struct stream *streams;
/* The greatest descriptor of a stream plus one. */
static int streams_end;
static uint32_t positions;

#ifdef __GLIBC__
static off_t read_ahead(const FILE *at) { return at->_IO_read_end - at->_IO_read_ptr; }
/* The bytes of a buffer that was read and that the next write out of it passes over backwards. */
static off_t before_write(const FILE *at) { return at->_IO_read_end - at->_IO_write_base; }
/* Flags of the C library: a stream without a buffer or with one for a line, and one that cannot read. */
#define HAS_LITTLE_BUFFER 0x202
#define CANNOT_READ 4
/* A large read goes past the buffer, and the C library does not note that the stream reads now. It only closes
 * the buffer to writers. Without a buffer the two cannot be told apart. */
static int is_writing(FILE *at) {
    int is_closed = at->_IO_write_end == at->_IO_buf_base && !(at->_flags & (HAS_LITTLE_BUFFER | CANNOT_READ));
    return __fwriting(at) && !(is_closed && at->_IO_buf_base);
}
#else
static int is_writing(FILE *at) { return __fwriting(at) != 0; }
static off_t read_ahead(const FILE *at) { return (void)at, 0; }
static off_t before_write(const FILE *at) { return (void)at, 0; }
#endif

static int is_bytes(FILE *stream) { return fwide(stream, 0) <= 0; }

static off_t position(int fd) { return (off_t)syscall(SYS_lseek, fd, 0, SEEK_CUR); }

static int is_followed(int fd) { return table_count > 0 && fd >= 0 && fd < DESCRIPTORS && streams[fd].at; }

/* The stream has moved nothing since this position. */
static void marked(int fd, off_t now) {
    struct stream *stream = &streams[fd];
    stream->read_from = now;
    stream->write_from = now - (is_bytes(stream->at) ? read_ahead(stream->at) : 0);
}

static void follow(int fd, FILE *stream) {
    if (table_count == 0 || fd < 0 || fd >= DESCRIPTORS || !is_own()) return;
    int error = errno;
    long flags = syscall(SYS_fcntl, fd, F_GETFL);
    off_t now = position(fd);
    /* An appending write moves the position to the end of the file, which others may have moved. */
    int can = now >= 0 && flags >= 0 && !(flags & O_APPEND);
    streams[fd].at = can ? stream : NULL;
    if (can) marked(fd, now);
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

/* Moves the marks of all streams that share the position of a descriptor: what moved it is counted. */
static void passed(int fd, int64_t bytes) {
    uint32_t number = streams[fd].position_of;
    if (number == 0) {
        if (streams[fd].at) streams[fd].read_from += bytes, streams[fd].write_from += bytes;
        return;
    }
    for (int other = 0; other < streams_end; other++)
        if (streams[other].at && streams[other].position_of == number)
            streams[other].read_from += bytes, streams[other].write_from += bytes;
}

/* Counts the bytes that a stream moved since the last call. Returns the bytes that it will still write. */
static int64_t settle(int fd) {
    if (!is_followed(fd) || !is_own()) return 0;
    int error = errno;
    FILE *stream = streams[fd].at;
    off_t now = position(fd);
    int64_t pending = 0;
    /* A stream without a buffer has moved nothing, though others may have moved the same open file. */
    if (now >= 0 && __fbufsize(stream) > 0) {
        int is_written = is_writing(stream);
        off_t from = is_written ? streams[fd].write_from : streams[fd].read_from;
        off_t to = is_written && is_bytes(stream) ? now - before_write(stream) : now;
        int64_t bytes = to - from;
        streamed(fd, bytes, is_written);
        if (bytes > 0 && streams[fd].position_of) passed(fd, bytes);
        pending = is_written && is_bytes(stream) ? (int64_t)__fpending(stream) : 0;
        /* A buffer that was read ahead and is not passed yet stays in front of what is written. */
        streams[fd].write_from = is_written ? to : now - (is_bytes(stream) ? read_ahead(stream) : 0);
        streams[fd].read_from = now;
    } else if (now >= 0) {
        marked(fd, now);
    }
    errno = error;
    return pending;
}

static void unfollow(int fd) {
    if (is_followed(fd) && is_own()) streams[fd].at = NULL;
}

/* Counts all streams before the process exits or calls exec. */
static void settle_all(int are_flushed) {
    if (table_count == 0 || !is_own()) return;
    for (int fd = 0; fd < streams_end; fd++) {
        int64_t pending = settle(fd);
        if (are_flushed) streamed(fd, pending, 1);
        if (are_flushed) streams[fd].at = NULL;
    }
}

static void settle_unflushed(void) { settle_all(0); }

/* A child will share the inherited descriptors, so their positions no longer belong to one process. */
static void will_fork(void) {
    for (int fd = 0; fd <= 1; fd++) settle(fd), unfollow(fd);
}

/* A descriptor is a copy of another one: they share a position from now on. */
static void copied(int from, int to) {
    if (table_count == 0 || from < 0 || to < 0 || from >= DESCRIPTORS || to >= DESCRIPTORS) return;
    if (from == to || !is_own()) return;
    if (!streams[from].position_of) streams[from].position_of = __atomic_add_fetch(&positions, 1, __ATOMIC_RELAXED);
    streams[to].position_of = streams[from].position_of;
}

/* Counts the streams that share the position of a descriptor, before something else moves it. */
static void settle_shared(int fd) {
    if (table_count == 0 || fd < 0 || fd >= DESCRIPTORS) return;
    uint32_t number = streams[fd].position_of;
    if (number == 0) { settle(fd); return; }
    for (int other = 0; other < streams_end; other++)
        if (streams[other].position_of == number) settle(other);
}

/* The position has moved without reading or writing. */
static void moved(int fd, off_t now) {
    if (table_count == 0 || fd < 0 || fd >= DESCRIPTORS) return;
    uint32_t number = streams[fd].position_of;
    if (!(number || streams[fd].at) || !is_own()) return;
    if (streams[fd].at) marked(fd, now);
    for (int other = 0; number && other < streams_end; other++)
        if (streams[other].at && streams[other].position_of == number) marked(other, now);
}

/* ---- Seeks ---- */

/* The state of a stream before a seek. */
struct sought {
    int fd;
    /* The C library knows the position, so that it can seek from it to a block. */
    int is_placed;
    off_t now, buffered;
};

/* Counts what a stream has moved, and what the seek will write. */
static struct sought before_seek(FILE *stream) {
    struct sought before = {-1, 0, 0, 0};
    if (table_count == 0 || !stream) return before;
    int error = errno;
    before.fd = fileno_unlocked(stream);
    errno = error;
    if (!is_followed(before.fd) || !is_own()) return before;
    int64_t pending = settle(before.fd);
    streamed(before.fd, pending, 1);
    /* What is counted as pending moves the position, unless the write fails. */
    before.now = streams[before.fd].read_from;
#ifdef __GLIBC__
    before.is_placed = stream->_offset >= 0 || (pending && before_write(stream) != 0);
    /* A buffer that is written is empty after that. */
    before.buffered = pending ? 0 : stream->_IO_read_end - stream->_IO_buf_base;
#endif
    return before;
}

#ifdef __GLIBC__
/* The bytes that a seek has read. The C library seeks to the start of a block and reads it, unless the place
 * is in its buffer. If the file ends before the place, it drops what it has read. */
static off_t read_by_seek(FILE *stream, const struct sought *before, off_t now, int from) {
    off_t buffered = stream->_IO_read_end - stream->_IO_buf_base, block = stream->_IO_buf_end - stream->_IO_buf_base;
    if (buffered > 0) {
        int is_in_buffer = before->is_placed && before->now == now && before->buffered == buffered &&
                           stream->_IO_read_ptr < stream->_IO_read_end;
        return is_in_buffer ? 0 : buffered;
    }
    int has_tried = !(stream->_flags & CANNOT_READ) && (from != SEEK_CUR || before->is_placed);
    off_t start = now & ~(block - 1), delta = now - start;
    struct stat about;
    if (!has_tried || block <= 1 || delta == 0 || delta > block || fstat(fileno_unlocked(stream), &about)) return 0;
    off_t left = about.st_size - start;
    return left > 0 && left < delta ? left : 0;
}
#endif

static void after_seek(FILE *stream, const struct sought *before, int from, int is_seek) {
    int fd = before->fd;
    if (!is_followed(fd) || streams[fd].at != stream || !is_own()) return;
    int error = errno;
    off_t now = position(fd);
#ifdef __GLIBC__
    if (is_seek && now >= 0 && is_bytes(stream)) streamed(fd, read_by_seek(stream, before, now, from), 0);
#else
    (void)from, (void)is_seek;
#endif
    if (now >= 0) moved(fd, now);
    errno = error;
}
