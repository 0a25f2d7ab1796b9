/* contained ERRNO PROGRAM ARGS...: runs a program under a filter such as containers have. System calls that look
   into other processes or into the kernel, and newer ones, fail with this error. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#define SYS_io_uring_enter 426
#define SYS_io_uring_register 427
#endif

static const int REFUSED[] = {
    SYS_futex_waitv, SYS_membarrier, SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register, SYS_bpf,
    SYS_perf_event_open, SYS_ptrace,
};
enum { COUNT = sizeof REFUSED / sizeof *REFUSED };

int main(int count, char **words) {
    int error = !strcmp(words[1], "ENOSYS") ? ENOSYS : EPERM;
    struct sock_filter steps[COUNT + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0)};
    for (int i = 0; i < COUNT; i++)
        steps[i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)REFUSED[i], COUNT - i, 0);
    steps[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    steps[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error);
    struct sock_fprog program = {COUNT + 3, steps};
    if (count < 3 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        perror("contained");
        return 77;
    }
    execvp(words[2], words + 2);
    perror(words[2]);
    return 127;
}
