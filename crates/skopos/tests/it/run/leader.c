/* leader: its first thread exits at once. Another one starts a process. Both wait for a minute. */
#include <pthread.h>
#include <unistd.h>

static void *work(void *unused) {
    fork();
    sleep(60);
    _exit(0);
}

int main(void) {
    pthread_t worker;
    pthread_create(&worker, NULL, work, NULL);
    pthread_exit(NULL);
}
