/* kinds KIND: ways in which programs start, leave, stop and change themselves. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *const TRUE[] = {"/bin/true", 0};

static void *become(void *words) {
    execv(((char **)words)[0], words);
    _exit(99);
}

static void *nothing(void *unused) { return pause(), unused; }

static int vfork_many(long count) {
    while (count-- > 0) {
        pid_t pid = vfork();
        if (pid == 0) _exit(0);
        if (pid < 0 || waitpid(pid, 0, 0) != pid) return 1;
    }
    return 0;
}

static void write_some(long bytes) {
    char *memory = calloc(1, bytes + 1);
    int fd = open("/dev/null", O_WRONLY);
    if (bytes && write(fd, memory, bytes) != bytes) _exit(98);
}

int main(int count, char **words) {
    const char *kind = words[1];
    long number = count > 2 ? atol(words[2]) : 0;
    if (!strcmp(kind, "vforks")) return vfork_many(number);
    if (!strcmp(kind, "vfork-exec")) {
        pid_t pid = vfork();
        if (pid == 0) execv(TRUE[0], TRUE), _exit(99);
        int status;
        return waitpid(pid, &status, 0) != pid || status;
    }
    if (!strcmp(kind, "guest")) {
        memset(malloc(number << 20), 1, number << 20);
        pid_t pid = vfork();
        if (pid == 0) usleep(atol(words[3]) * 1000), execv(TRUE[0], TRUE), _exit(99);
        return waitpid(pid, 0, 0) != pid;
    }
    if (!strcmp(kind, "spawn")) {
        pid_t pid;
        int status;
        if (posix_spawn(&pid, TRUE[0], 0, 0, TRUE, environ)) return 98;
        return waitpid(pid, &status, 0) != pid || status;
    }
    if (!strcmp(kind, "daemon")) {
        if (fork()) return 0;
        setsid();
        for (int fd = 0; fd < 3; fd++) close(fd);
        if (fork()) _exit(0);
        usleep(number * 1000);
        int fd = open(words[3], O_CREAT | O_WRONLY, 0600);
        return write(fd, "done", 4) != 4;
    }
    if (!strcmp(kind, "ignore-children")) {
        signal(SIGCHLD, SIG_IGN);
        for (int i = 0; i < 20; i++)
            if (fork() == 0) write_some(number), execv(TRUE[0], TRUE), _exit(99);
        while (wait(0) > 0 || errno != ECHILD) {}
        return 0;
    }
    if (!strcmp(kind, "exec-from-thread")) {
        static char *next[] = {"/bin/sh", "-c", "exit 12", 0};
        pthread_t one, other;
        pthread_create(&other, 0, nothing, 0);
        pthread_create(&one, 0, become, next);
        pause();
    }
    if (!strcmp(kind, "stop-self")) {
        pid_t pid = fork();
        if (pid == 0) raise(SIGSTOP), _exit(7);
        int status;
        if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) return 1;
        kill(pid, SIGCONT);
        if (waitpid(pid, &status, 0) != pid) return 2;
        return WEXITSTATUS(status);
    }
    if (!strcmp(kind, "user")) {
        if (setgid(number) || setuid(number)) return 1;
        pid_t pid = fork();
        if (pid == 0) execv(TRUE[0], TRUE), _exit(99);
        int status;
        return waitpid(pid, &status, 0) != pid || status;
    }
    if (!strcmp(kind, "trace")) {
        pid_t pid = fork();
        if (pid == 0) {
            if (ptrace(PTRACE_TRACEME, 0, 0, 0)) _exit(5);
            raise(SIGSTOP);
            _exit(6);
        }
        int status;
        waitpid(pid, &status, WUNTRACED);
        if (WIFEXITED(status)) return WEXITSTATUS(status);
        ptrace(PTRACE_CONT, pid, 0, 0);
        waitpid(pid, &status, 0);
        return WEXITSTATUS(status);
    }
    if (!strcmp(kind, "leader-leaves")) {
        static char *next[] = {"/bin/sh", "-c", "exit 12", 0};
        pthread_t one;
        pthread_create(&one, 0, become, next);
        pthread_exit(0);
    }
    return 97;
}
