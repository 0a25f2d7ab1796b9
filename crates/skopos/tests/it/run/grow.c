/* grow THREADS MIB: the threads together allocate so much memory as fast as the kernel can. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { STEP = 1 << 20 };

static long steps;

static void *grow(void *unused) {
    int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
    for (long left = steps; left > 0; left--) mmap(0, STEP, prot, flags, -1, 0);
    return unused;
}

int main(int count, char **words) {
    (void)count;
    pthread_t all[16];
    int threads = atoi(words[1]) & 15;
    steps = atol(words[2]) / threads;
    for (int i = 0; i < threads; i++) pthread_create(&all[i], 0, grow, 0);
    for (int i = 0; i < threads; i++) pthread_join(all[i], 0);
    return 0;
}
