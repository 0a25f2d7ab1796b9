/* Moves bytes in each way that a program can: `moves_by calls IN OUT` by system calls, `map IN` through a
   mapping, `ring IN OUT` by io_uring (returns 77 if that is not allowed), `peer` to itself by TCP,
   `splice IN OUT` through a pipe. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char block[1 << 20];

static int check(long result, long expected) {
    if (result != expected) {
        perror("moves_by");
        exit(1);
    }
    return 0;
}

static void calls(const char *from, const char *to) {
    int in = open(from, O_RDONLY), out = open(to, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 100; i++) {
        check(read(in, block, 4096), 4096);
        check(write(out, block, 4096), 4096);
    }
    struct iovec parts[2] = {{block, 1000}, {block, 500}};
    check(pread(in, block, 10, 0), 10);
    check(readv(in, parts, 2), 1500);
    check(preadv(in, parts, 2, 7), 1500);
    check(pwrite(out, block, 20, 0), 20);
    check(writev(out, parts, 2), 1500);
    check(pwritev(out, parts, 2, 9), 1500);
    check(sendfile(out, in, 0, 3000), 3000);
    loff_t at = 0;
    check(copy_file_range(in, &at, out, 0, 5000, 0), 5000);
    int again = dup(in);
    check(read(again, block, 11), 11);
}

static void map(const char *from) {
    struct stat about;
    int in = open(from, O_RDWR);
    fstat(in, &about);
    volatile char *memory = mmap(0, about.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, in, 0);
    for (long at = 0; at < about.st_size; at += 4096) memory[at] = memory[at] + 1;
}

/* Runs one operation at a time, with the rings in the layout of the kernel. */
static int ring(const char *from, const char *to) {
    struct io_uring_params p = {0};
    int fd = syscall(SYS_io_uring_setup, 8, &p);
    if (fd < 0) return 77;
    char *sq = mmap(0, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
    char *cq = mmap(0, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED,
        fd, IORING_OFF_CQ_RING);
    struct io_uring_sqe *sqes = mmap(0, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQES);
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 40; i++) {
        unsigned tail = *(unsigned *)(sq + p.sq_off.tail), mask = *(unsigned *)(sq + p.sq_off.ring_mask);
        struct io_uring_sqe *sqe = &sqes[tail & mask];
        memset(sqe, 0, sizeof *sqe);
        sqe->opcode = i % 2 ? IORING_OP_WRITE : IORING_OP_READ;
        sqe->fd = i % 2 ? out : in;
        sqe->addr = (unsigned long)block;
        sqe->len = 8192;
        sqe->off = (unsigned long)i / 2 * 8192;
        /* A kernel thread of the process runs some of the operations. */
        sqe->flags = i % 4 < 2 ? IOSQE_ASYNC : 0;
        ((unsigned *)(sq + p.sq_off.array))[tail & mask] = tail & mask;
        __atomic_store_n((unsigned *)(sq + p.sq_off.tail), tail + 1, __ATOMIC_RELEASE);
        check(syscall(SYS_io_uring_enter, fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0), 1);
        unsigned head = *(unsigned *)(cq + p.cq_off.head);
        struct io_uring_cqe *cqes = (void *)(cq + p.cq_off.cqes);
        check(cqes[head & *(unsigned *)(cq + p.cq_off.ring_mask)].res, 8192);
        __atomic_store_n((unsigned *)(cq + p.cq_off.head), head + 1, __ATOMIC_RELEASE);
    }
    return 0;
}

static void peer(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), here = socket(AF_INET, SOCK_STREAM, 0);
    bind(listener, (void *)&at, sizeof at);
    listen(listener, 1);
    getsockname(listener, (void *)&at, &length);
    check(connect(here, (void *)&at, sizeof at), 0);
    int there = accept(listener, 0, 0);
    check(send(here, block, 1000, 0), 1000);
    check(recv(there, block, 1000, MSG_WAITALL), 1000);
    check(write(there, block, 700), 700);
    check(read(here, block, 700), 700);
    printf("%d\n", ntohs(at.sin_port));
}

static void by_splice(const char *from, const char *to) {
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600), ends[2];
    check(pipe(ends), 0);
    for (int i = 0; i < 10; i++) {
        check(splice(in, 0, ends[1], 0, 5000, 0), 5000);
        check(splice(ends[0], 0, out, 0, 5000, 0), 5000);
    }
    off64_t at = 7;
    check(splice(in, &at, ends[1], 0, 3000, 0), 3000);
    at = 100;
    check(splice(ends[0], 0, out, &at, 3000, 0), 3000);
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "";
    if (!strcmp(how, "calls")) calls(words[2], words[3]);
    if (!strcmp(how, "map")) map(words[2]);
    if (!strcmp(how, "ring")) return ring(words[2], words[3]);
    if (!strcmp(how, "peer")) peer();
    if (!strcmp(how, "splice")) by_splice(words[2], words[3]);
    return 0;
}
