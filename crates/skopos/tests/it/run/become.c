/* become MIB PROGRAM ARGUMENTS: touches so much memory, and becomes the program. */
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words) {
    if (count < 3) return 2;
    size_t bytes = (size_t)atol(words[1]) << 20;
    /* Volatile, because a compiler leaves out writes that nothing reads. */
    volatile char *memory = malloc(bytes);
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
    execv(words[2], words + 2);
    return 1;
}
