/* Uses files, streams, pipes and sockets in a random order that depends only on its seed. Some calls
 * are wrong and must fail as the C library makes them fail.
 *
 * usage: calls FOLDER SEED CALLS
 *        calls FOLDER wrong      makes each wrong call once
 *
 * Streams change between reading and writing only after a seek or a flush, as the C standard asks. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES 6
#define SLOTS 8
#define STREAMS 4
#define MOST 20000

static uint64_t state;
static uint64_t any(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state >> 11) % below;
}

static char block[MOST];
static int slots[SLOTS];
static struct { FILE *at; int reads, writes, last; } streams[STREAMS];
static int pair[2], ends[2], udp[2];
static struct sockaddr_in udp_at[2];

static const char *name(void) {
    static char text[16];
    sprintf(text, "file%d", (int)any(FILES));
    return text;
}
static size_t size(void) { return any(4) ? any(300) : any(MOST); }
static off_t place(void) { return (off_t)any(30000); }
static int *free_slot(void) {
    for (int i = 0; i < SLOTS; i++)
        if (slots[i] < 0) return &slots[i];
    int *slot = &slots[any(SLOTS)];
    close(*slot);
    return slot;
}
static int some(void) { return slots[any(SLOTS)]; }

static void open_one(void) {
    static const int flags[] = {O_RDONLY, O_RDWR, O_WRONLY | O_CREAT, O_RDWR | O_CREAT, O_WRONLY | O_APPEND};
    int *slot = free_slot(), how = flags[any(5)];
    struct file_handle *handle = (struct file_handle *)calloc(1, sizeof *handle + MAX_HANDLE_SZ);
    char text[32];
    int mount, here;
    switch (any(7)) {
    case 0: *slot = openat(AT_FDCWD, name(), how, 0600); break;
    case 1: *slot = open64(name(), how, 0600); break;
    case 2: strcpy(text, "made-XXXXXX"), *slot = mkstemp(text); break;
    case 3: strcpy(text, "made-XXXXXX.end"), *slot = mkostemps(text, 4, O_CLOEXEC); break;
    case 4:
        handle->handle_bytes = MAX_HANDLE_SZ;
        here = open(".", O_RDONLY | O_DIRECTORY);
        if (name_to_handle_at(AT_FDCWD, name(), handle, &mount, 0) == 0)
            *slot = open_by_handle_at(here, handle, O_RDWR);
        else *slot = -1;
        close(here);
        break;
    default: *slot = open(name(), how, 0600);
    }
    free(handle);
}

static void copy_descriptor(void) {
    int from = some(), *slot = free_slot();
    if (from < 0 || from == *slot) { *slot = -1; return; }
    switch (any(4)) {
    case 0: *slot = dup(from); break;
    case 1: *slot = fcntl(from, F_DUPFD, (int)any(30)); break;
    case 2: *slot = fcntl(from, F_DUPFD_CLOEXEC, (int)any(30)); break;
    default:
        *slot = open("file0", O_RDWR);
        if (*slot >= 0 && any(2)) dup2(from, *slot);
        else if (*slot >= 0) dup3(from, *slot, O_CLOEXEC);
    }
}

static void bytes(void) {
    int fd = some();
    size_t n = size(), half = n / 2;
    struct iovec parts[2] = {{block, half}, {block + half, n - half}};
    switch (any(13)) {
    case 0: case 1: read(fd, block, n); break;
    case 2: case 3: write(fd, block, n); break;
    case 4: pread(fd, block, n, place()); break;
    case 5: pwrite(fd, block, n, place()); break;
    case 6: readv(fd, parts, 2); break;
    case 7: writev(fd, parts, 2); break;
    case 8: preadv(fd, parts, 2, place()); break;
    case 9: pwritev(fd, parts, 2, place()); break;
    case 10: preadv2(fd, parts, 2, any(2) ? -1 : place(), 0); break;
    case 11: pwritev2(fd, parts, 2, any(2) ? -1 : place(), 0); break;
    default: lseek(fd, place(), SEEK_SET);
    }
}

static void drain(void) {
    int flags = fcntl(ends[0], F_GETFL);
    fcntl(ends[0], F_SETFL, flags | O_NONBLOCK);
    while (read(ends[0], block, MOST) > 0) {}
    fcntl(ends[0], F_SETFL, flags);
}

static void between(void) {
    int in = some(), out = some();
    off64_t at = place(), to = place();
    size_t n = size();
    struct iovec part = {block, n % 4000};
    int other[2];
    switch (any(5)) {
    case 0: sendfile(out, in, any(2) ? &at : NULL, n); break;
    case 1: copy_file_range(in, any(2) ? &at : NULL, out, any(2) ? &to : NULL, n, 0); break;
    case 2:
        splice(in, any(2) ? &at : NULL, ends[1], NULL, n % 4000, SPLICE_F_NONBLOCK);
        splice(ends[0], NULL, out, any(2) ? &to : NULL, n % 4000, SPLICE_F_NONBLOCK);
        break;
    case 3:
        vmsplice(ends[1], &part, 1, SPLICE_F_NONBLOCK);
        vmsplice(ends[0], &part, 1, SPLICE_F_NONBLOCK);
        break;
    default:
        if (pipe(other)) break;
        write(ends[1], block, n % 4000);
        tee(ends[0], other[1], n % 4000, SPLICE_F_NONBLOCK);
        close(other[0]), close(other[1]);
    }
    drain();
}

static void open_stream(int i) {
    static const char *const modes[] = {"r", "w", "r+", "w+"};
    int mode = (int)any(4), fd;
    const char *how = modes[mode];
    switch (any(6)) {
    case 0: streams[i].at = tmpfile(), mode = 3; break;
    case 1: streams[i].at = tmpfile64(), mode = 3; break;
    case 2:
        fd = open(name(), O_RDWR | O_CREAT, 0600);
        streams[i].at = fdopen(fd, how);
        if (!streams[i].at) close(fd);
        break;
    default: streams[i].at = fopen(name(), how);
    }
    streams[i].reads = mode != 1, streams[i].writes = mode != 0, streams[i].last = 0;
    if (!streams[i].at) return;
    /* A stream without a buffer does not show whether it has read or written last. */
    if (any(4) == 0) setvbuf(streams[i].at, NULL, mode < 2 ? _IONBF : _IOFBF, 1 << (6 + any(8)));
}

static void seek_stream(FILE *at) {
    fpos_t mark;
    switch (any(8)) {
    case 0: fseek(at, -(long)any(200), SEEK_END); break;
    case 1: fseek(at, (long)any(6000) - 3000, SEEK_CUR); break;
    case 2: rewind(at); break;
    case 3: fgetpos(at, &mark), fsetpos(at, &mark); break;
    case 4: fseeko(at, 0, SEEK_END); break;
    case 5: fflush(at); break;
    default: fseek(at, place(), SEEK_SET);
    }
}

static void use_stream(void) {
    int i = (int)any(STREAMS), fd;
    FILE *at = streams[i].at;
    if (!at) { open_stream(i); return; }
    size_t n = size();
    uint64_t what = any(10);
    if (what < 3 && streams[i].reads) {
        if (streams[i].last == 2) fseek(at, 0, SEEK_CUR);
        streams[i].last = 1;
        if (any(3)) fread(block, 1, n, at);
        else fgets(block, (int)n + 2, at);
    } else if (what < 6 && streams[i].writes) {
        if (streams[i].last == 1) fseek(at, 0, SEEK_CUR);
        streams[i].last = 2;
        if (any(3)) fwrite(block, 1, n, at);
        else fputc('x', at);
    } else if (what < 8) {
        seek_stream(at);
        streams[i].last = 0;
    } else if (what == 8) {
        /* A descriptor of its own for a moment, with the same position. */
        fflush(at), streams[i].last = 0;
        fd = dup(fileno(at));
        if (streams[i].writes) write(fd, block, 10);
        close(fd);
        fseek(at, 0, SEEK_CUR);
    } else if (any(3) == 0) {
        streams[i].at = freopen(name(), "r+", at);
        streams[i].reads = streams[i].writes = 1, streams[i].last = 0;
    } else {
        fclose(at);
        streams[i].at = NULL;
    }
}

static void talk(void) {
    size_t n = 1 + any(300);
    struct iovec part = {block, n}, room = {block, MOST};
    struct sockaddr_in from;
    socklen_t length = any(2) ? sizeof from : 0;
    struct msghdr sent = {.msg_iov = &part, .msg_iovlen = 1};
    struct msghdr got = {.msg_iov = &room, .msg_iovlen = 1, .msg_name = &from, .msg_namelen = length};
    struct mmsghdr many[2] = {{.msg_hdr = sent}, {.msg_hdr = sent}}, got_many[2] = {{.msg_hdr = got}, {.msg_hdr = got}};
    switch (any(4)) {
    case 0: send(pair[0], block, n, 0); break;
    case 1: write(pair[0], block, n); break;
    case 2: sendmsg(pair[0], &sent, 0); break;
    default: sendmmsg(pair[0], many, 2, 0);
    }
    recv(pair[1], block, MOST, MSG_PEEK | MSG_DONTWAIT);
    if (any(2)) recvmsg(pair[1], &got, MSG_PEEK | MSG_DONTWAIT);
    switch (any(4)) {
    case 0: recv(pair[1], block, MOST, MSG_DONTWAIT); break;
    case 1: read(pair[1], block, 1); break;
    case 2: recvfrom(pair[1], block, MOST, MSG_DONTWAIT, (struct sockaddr *)&from, &length); break;
    default: recvmsg(pair[1], &got, MSG_DONTWAIT);
    }
    while (recv(pair[1], block, MOST, MSG_DONTWAIT) > 0) {}
    sendto(udp[0], block, n, 0, (struct sockaddr *)&udp_at[1], sizeof udp_at[1]);
    length = any(2) ? sizeof from : 0;
    if (any(2)) recvfrom(udp[1], block, MOST, MSG_PEEK, length ? (struct sockaddr *)&from : (void *)8, &length);
    if (any(2)) recvfrom(udp[1], block, MOST, MSG_DONTWAIT, NULL, NULL);
    else recvmmsg(udp[1], got_many, 2, MSG_DONTWAIT, NULL);
}

#define WRONG 20

/* Calls that fail. Each says so by its result and goes on. */
static void wrong(uint64_t which) {
    void *const bad = (void *)8;
    struct msghdr half = {.msg_iov = bad, .msg_iovlen = 1};
    socklen_t length = 16;
    switch (which) {
    case 0: closedir(NULL); break;
    case 1: recvmsg(pair[0], NULL, MSG_DONTWAIT); break;
    case 2: sendmsg(pair[0], NULL, MSG_DONTWAIT); break;
    case 3: connect(udp[0], bad, 16); break;
    case 4: connect(udp[0], NULL, 0); break;
    case 5: recvmsg(pair[0], &half, MSG_DONTWAIT); break;
    case 6: sendto(udp[0], block, 1, 0, bad, 16); break;
    case 7: recvfrom(udp[0], block, 1, MSG_DONTWAIT, bad, &length); break;
    case 8: sendmmsg(pair[0], bad, 1, MSG_DONTWAIT); break;
    case 9: recvmmsg(pair[0], bad, 1, MSG_DONTWAIT, NULL); break;
    case 10: open(bad, O_RDONLY); break;
    case 11: fopen("missing/file", "r"); break;
    case 12: read(-1, block, 1), write(1 << 20, block, 1), close(-1); break;
    case 13: read(some(), bad, 100); break;
    case 14: dup2(-1, some()); break;
    case 15: opendir("missing"); break;
    case 16: fdopendir(-1); break;
    case 17: fdopen(-1, "r"); break;
    case 18: splice(-1, NULL, ends[1], NULL, 10, 0), tee(-1, -1, 1, 0), vmsplice(-1, bad, 1, 0); break;
    default: fcntl(-1, F_DUPFD, 0), accept(udp[0], bad, bad), open_by_handle_at(-1, bad, 0);
    }
}

static void folders(void) {
    DIR *folder = any(2) ? opendir(".") : fdopendir(open(".", O_RDONLY | O_DIRECTORY));
    if (!folder) return;
    for (int i = 0; i < 3; i++) readdir(folder);
    closedir(folder);
}

static void step(void) {
    switch (any(12)) {
    case 0: case 1: open_one(); break;
    case 2: copy_descriptor(); break;
    case 3: between(); break;
    case 4: case 5: case 6: use_stream(); break;
    case 7: if (any(2)) talk(); else wrong(any(WRONG)); break;
    case 8: if (any(3)) wrong(any(WRONG)); else folders(); break;
    default: bytes();
    }
}

static void child(void) {
    pid_t pid = fork();
    if (pid < 0) return;
    if (pid > 0) { waitpid(pid, NULL, 0); return; }
    /* The parent's streams are its own. */
    memset(streams, 0, sizeof streams);
    for (int i = 0; i < SLOTS; i++) slots[i] = -1;
    for (int i = 0; i < 20; i++) step();
    if (any(2)) _exit(0);
    for (int i = 0; i < STREAMS; i++)
        if (streams[i].at) fflush(streams[i].at);
    _exit(0);
}

static void prepare(void) {
    socklen_t length = sizeof udp_at[0];
    for (int i = 0; i < FILES; i++) {
        char text[16];
        sprintf(text, "file%d", i);
        int fd = open(text, O_RDWR | O_CREAT | O_TRUNC, 0600);
        for (int n = 0; n < i; n++) write(fd, block, 5000);
        close(fd);
    }
    for (int i = 0; i < SLOTS; i++) slots[i] = -1;
    if (pipe(ends) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) exit(3);
    for (int i = 0; i < 2; i++) {
        udp_at[i] = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        udp[i] = socket(AF_INET, SOCK_DGRAM, 0);
        if (bind(udp[i], (struct sockaddr *)&udp_at[i], length)) exit(3);
        getsockname(udp[i], (struct sockaddr *)&udp_at[i], &length);
    }
}

int main(int argc, char **argv) {
    if (argc < 3 || chdir(argv[1])) return 2;
    if (!strcmp(argv[2], "wrong")) {
        prepare();
        for (int which = 0; which < WRONG; which++) wrong(which);
        return write(open("survived", O_WRONLY | O_CREAT, 0600), "yes", 3) != 3;
    }
    if (argc < 4) return 2;
    state = strtoull(argv[2], NULL, 10) * 0x9e3779b97f4a7c15ull + 1;
    for (int i = 0; i < MOST; i++) block[i] = i % 61 ? 'a' + i % 26 : '\n';
    prepare();
    for (int n = atoi(argv[3]); n > 0; n--) {
        step();
        if (any(60) == 0) child();
    }
    if (any(3) == 0) _exit(0);
    return 0;
}
