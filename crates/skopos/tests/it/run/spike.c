/* spike MIB WAY: touches so much memory at once and exits by return, exit, _exit or kill. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words) {
    size_t bytes = (size_t)atol(words[1]) << 20;
    int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    if (bytes && mmap(0, bytes, prot, flags, -1, 0) == MAP_FAILED) return 1;
    const char *way = count > 2 ? words[2] : "return";
    if (!strcmp(way, "_exit")) _exit(0);
    if (!strcmp(way, "exit")) exit(0);
    if (!strcmp(way, "kill")) kill(getpid(), SIGKILL);
    return 0;
}
