/* Processes that are hard to see. `births short N` starts N processes one after the other, and each exits
   at once. `births spike KIB` touches that much memory and exits without a return to the C library.
   `births threads` ends its first thread before the others, which read. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t all_there;

static void *reads(void *none) {
    char block[1000];
    int zero = open("/dev/zero", O_RDONLY);
    pthread_barrier_wait(&all_there);
    usleep(50000);
    for (int i = 0; i < 100; i++)
        if (read(zero, block, sizeof block) != sizeof block)
            _exit(1);
    return none;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    long number = argc > 2 ? atol(argv[2]) : 0;
    int status = 0;
    if (!strcmp(what, "short")) {
        for (long i = 0; i < number; i++) {
            pid_t child = vfork();
            if (child == 0) {
                execl("/bin/true", "/bin/true", (char *)0);
                _exit(1);
            }
            waitpid(child, &status, 0);
            if (status)
                return 1;
        }
    } else if (!strcmp(what, "spike")) {
        size_t bytes = (size_t)number << 10;
        char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t at = 0; at < bytes; at += 4096)
            memory[at] = 1;
        _exit(0);
    } else if (!strcmp(what, "threads")) {
        pthread_t thread;
        pthread_barrier_init(&all_there, 0, 4);
        for (int i = 0; i < 3; i++)
            pthread_create(&thread, 0, reads, 0);
        pthread_barrier_wait(&all_there);
        /* The system call avoids the library that `pthread_exit` loads. */
        syscall(SYS_exit, 0);
    }
    return 0;
}
