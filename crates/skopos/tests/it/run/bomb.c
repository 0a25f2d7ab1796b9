/* bomb FILE: starts processes for as long as it can, but for at most two minutes: if the monitor fails
 * to kill it, the machine still recovers, and a process that is left creates FILE. */
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    time_t end = time(NULL) + 120;
    while (time(NULL) < end)
        if (fork() < 0) usleep(100);
    open(argv[argc - 1], O_CREAT | O_WRONLY, 0600);
}
