/* around WAY FILE MIB: writes so much to a file by a way that no count of bytes written contains: `mmap`,
   or `aio` (io_submit, as libaio does). Returns 77 where that is not allowed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 4) return 2;
    int file = open(words[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
    size_t step = 1 << 20, bytes = (size_t)atol(words[3]) << 20;
    if (file < 0 || ftruncate(file, bytes)) return 1;
    if (!strcmp(words[1], "mmap")) {
        char *all = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (all == MAP_FAILED) return 1;
        memset(all, 7, bytes);
        return 0;
    }
    aio_context_t ring = 0;
    if (syscall(SYS_io_setup, 8, &ring)) return 77;
    char *part = malloc(step);
    memset(part, 7, step);
    for (size_t at = 0; at < bytes; at += step) {
        struct iocb call = {.aio_lio_opcode = IOCB_CMD_PWRITE, .aio_fildes = file};
        struct iocb *calls[] = {&call};
        struct io_event done;
        call.aio_buf = (unsigned long)part;
        call.aio_nbytes = step;
        call.aio_offset = at;
        if (syscall(SYS_io_submit, ring, 1, calls) != 1) return 77;
        if (syscall(SYS_io_getevents, ring, 1, 1, &done, 0) != 1 || done.res != (long)step) return 1;
    }
    return 0;
}
