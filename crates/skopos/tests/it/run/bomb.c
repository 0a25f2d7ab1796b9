/* bomb: starts processes for as long as it can, but for at most 20 s: if the monitor fails to kill it,
 * the machine still recovers. */
#include <time.h>
#include <unistd.h>

int main(void) {
    time_t end = time(NULL) + 20;
    while (time(NULL) < end)
        if (fork() < 0) usleep(100);
}
