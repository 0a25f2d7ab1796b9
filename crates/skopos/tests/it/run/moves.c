/* Reads and writes files of the current folder: the byte counts of each file are known beforehand. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static char block[4096];

static int new(const char *name) { return open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644); }

static void put(int fd, int bytes) {
    if (write(fd, block, bytes) != bytes) _exit(9);
}

static void *closes(void *fd) { close(*(int *)fd); return 0; }

static void nothing(int signal) { (void)signal; }

static int copy(void) {
    int from = open("in", O_RDONLY), to = new("copy");
    ssize_t n;
    while ((n = read(from, block, sizeof block)) > 0) put(to, n);
    return 0;
}

static int shares(void) {
    /* Inheritance and dup share one open file description. */
    int fd = open("shared", O_WRONLY | O_CREAT, 0644);
    put(fd, 100);
    if (!fork()) { put(fd, 200); _exit(0); }
    wait(0);
    int twin = dup(fd);
    close(fd);
    put(twin, 300);
    int late = fcntl(twin, F_DUPFD_CLOEXEC, 100);
    dup2(late, twin);
    put(twin, 400);
    close_range(late, ~0u, 0);
    close(twin);
    /* Two processes, then two threads of one, close the file at the same time: a thousand bytes in all. */
    for (int i = 0; i < 500; i++) {
        int both = open("both", O_WRONLY | O_CREAT | O_TRUNC, 0644), other;
        pthread_t thread;
        put(both, 2);
        if (!fork()) { close(both); _exit(0); }
        other = dup(both);
        pthread_create(&thread, 0, closes, &both);
        close(other);
        pthread_join(thread, 0);
        wait(0);
    }
    return 0;
}

static int seeks(void) {
    int fd = new("sought");
    put(fd, 100);
    lseek(fd, 50, SEEK_SET);
    put(fd, 10);
    lseek(fd, -5, SEEK_CUR);
    put(fd, 7);
    lseek(fd, -1000, SEEK_SET);
    lseek(fd, 0, SEEK_CUR);
    lseek(fd, 1000, SEEK_END);
    put(fd, 1);
    close(fd);
    /* The child moves the position that it shares with the parent. */
    fd = open("in", O_RDONLY);
    if (read(fd, block, 60) != 60) return 8;
    if (!fork()) { lseek(fd, 10, SEEK_SET); _exit(read(fd, block, 5) != 5); }
    wait(0);
    if (read(fd, block, 4) != 4) return 7;
    close(fd);
    return 0;
}

static int becomes(char **argv) {
    int fd = new("became");
    put(fd, 10);
    /* A failed exec leaves the file open. */
    char *none[] = {"none", 0};
    execv("none", none);
    put(fd, 20);
    argv[1] = "nothing";
    execv("/proc/self/exe", argv);
    return 6;
}

static int interrupted(void) {
    /* The handler does not restart calls. A call that cannot fail without a monitor must not fail here. */
    struct sigaction action = {.sa_handler = nothing};
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    int failed = 0;
    sigaction(SIGALRM, &action, 0);
    setitimer(ITIMER_REAL, &often, 0);
    for (int i = 0; i < 20000; i++) {
        int fd = open("in", O_RDONLY);
        if (fd < 0) continue;
        failed += lseek(fd, 1, SEEK_SET) != 1;
        failed += close(dup(fd)) != 0;
        failed += close(fd) != 0;
    }
    setitimer(ITIMER_REAL, &never, 0);
    printf("%d\n", failed);
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "copy")) return copy();
    if (!strcmp(what, "shares")) return shares();
    if (!strcmp(what, "seeks")) return seeks();
    if (!strcmp(what, "becomes")) return becomes(argv);
    if (!strcmp(what, "interrupted")) return interrupted();
    if (!strcmp(what, "many")) {
        for (int i = 0; i < 10000; i++) {
            char name[16];
            snprintf(name, sizeof name, "m%d", i % 5000);
            int fd = new(name);
            put(fd, 3);
            close(fd);
        }
    } else if (!strcmp(what, "closes")) {
        for (int fd = 0; fd < 4096; fd++) close(fd);
        put(new("closed"), 8);
    } else if (!strcmp(what, "killed")) {
        put(new("killed"), 500);
        raise(SIGKILL);
    } else if (!strcmp(what, "kinds")) {
        int both = open("both-ways", O_RDWR | O_CREAT, 0644), end = open("log", O_WRONLY | O_APPEND);
        put(both, 40);
        put(end, 30);
        put(1, 5);
    } else if (!strcmp(what, "loop")) {
        /* Prints its process id, then works until there is a file named `stop`. */
        printf("%d\n", getpid());
        fflush(stdout);
        while (access("stop", F_OK)) {
            int fd = open("in", O_RDONLY);
            if (fd < 0 || close(fd)) return 5;
        }
        return 3;
    }
    return 0;
}
