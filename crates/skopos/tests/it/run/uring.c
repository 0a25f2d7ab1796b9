/* Opens a file by io_uring. Returns 77 where io_uring is not allowed. */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct io_uring_params p;
    memset(&p, 0, sizeof p);
    int ring = syscall(SYS_io_uring_setup, 1, &p);
    if (ring < 0 || argc < 2) return 77;
    size_t bytes = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    char *queue = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(0, p.sq_entries * sizeof *entry, PROT_READ | PROT_WRITE,
                                      MAP_SHARED, ring, IORING_OFF_SQES);
    if (queue == MAP_FAILED || entry == MAP_FAILED) return 1;
    memset(entry, 0, sizeof *entry);
    entry->opcode = IORING_OP_OPENAT;
    entry->fd = AT_FDCWD;
    entry->addr = (unsigned long)argv[1];
    entry->open_flags = O_RDONLY;
    ((unsigned *)(queue + p.sq_off.array))[0] = 0;
    *(volatile unsigned *)(queue + p.sq_off.tail) += 1;
    return syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) != 1;
}
