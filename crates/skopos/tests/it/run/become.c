/* become MIB PROGRAM ARGUMENTS: touches so much memory, and becomes the program. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 3) return 2;
    size_t bytes = (size_t)atol(words[1]) << 20;
    char *memory = malloc(bytes);
    memset(memory, 1, bytes);
    execv(words[2], words + 2);
    return 1;
}
