/* threads N: starts and joins N threads, ten at a time. */
#include <pthread.h>
#include <stdlib.h>

static void *nothing(void *unused) { return unused; }

int main(int count, char **words) {
    (void)count;
    for (long left = atol(words[1]); left > 0; left -= 10) {
        pthread_t ten[10];
        for (int i = 0; i < 10; i++) pthread_create(&ten[i], 0, nothing, 0);
        for (int i = 0; i < 10; i++) pthread_join(ten[i], 0);
    }
    return 0;
}
