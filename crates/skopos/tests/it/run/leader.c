/* leader: its first thread exits at once. Another one starts a process that sleeps for a minute, and waits
 * for it. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static void *work(void *unused) {
    if (fork() == 0) return (void *)(long)sleep(60);
    wait(NULL);
    _exit(0);
}

int main(void) {
    pthread_t worker;
    pthread_create(&worker, NULL, work, NULL);
    pthread_exit(NULL);
}
