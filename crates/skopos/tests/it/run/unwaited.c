/* A child works for a moment. The parent ignores it or waits for it, by the argument. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "ignore"))
        signal(SIGCHLD, SIG_IGN);
    if (!fork()) {
        for (volatile long i = 0; i < 5000000; i++) {}
        _exit(0);
    }
    while (wait(0) > 0) {}
    return 0;
}
