/* hold MIB MILLISECONDS: touches so much memory, waits, and exits without any destructor. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words) {
    size_t bytes = (size_t)atol(words[1]) << 20;
    char *memory = malloc(bytes);
    memset(memory, 1, bytes);
    if (count > 2) usleep(atol(words[2]) * 1000);
    _exit(0);
}
