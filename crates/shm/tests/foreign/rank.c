/* Reads topics with the header for C: rank SEGMENT TOPIC... prints the value of each, or the code of its error. Without topics
 * it prints "open 0", and then reads a topic from each line of its input. */

#define _GNU_SOURCE
#include <stdio.h>

#include "skopos_shm.h"

static void show(const skopos_segment *segment, const char *topic)
{
    skopos_vertex vertex;
    double value, age;
    int code = skopos_find(segment, topic, &vertex);
    if (code == SKOPOS_OK)
        code = skopos_read(&vertex, &value, &age);
    if (code == SKOPOS_OK)
        printf("%.17g %d\n", value, age >= 0.0 && age < skopos_silence(segment) + 1000.0);
    else
        printf("code %d\n", code);
}

int main(int argc, char **argv)
{
    skopos_segment segment;
    char line[512];
    int opened = argc > 1 ? skopos_segment_open(argv[1], &segment) : SKOPOS_NO_FILE;
    if (opened != SKOPOS_OK)
        return printf("open %d\n", opened), 1;
    for (int at = 2; at < argc; at++)
        show(&segment, argv[at]);
    if (argc == 2) {
        printf("open 0\n");
        fflush(stdout);
        while (fgets(line, sizeof line, stdin) != NULL) {
            line[strcspn(line, "\n")] = '\0';
            show(&segment, line);
        }
    }
    skopos_segment_close(&segment);
    return 0;
}
