/* Reads topics in turns: read READS SEGMENT TOPIC... prints the nanoseconds of a read without and with its age. */

#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "skopos_shm.h"

enum { MAX_TOPICS = 16 };

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int argc, char **argv)
{
    skopos_segment segment;
    skopos_vertex vertices[MAX_TOPICS];
    int count = argc - 3;
    long reads = argc > 1 ? atol(argv[1]) : 0;
    if (count < 1 || count > MAX_TOPICS || reads < 1)
        return 2;
    if (skopos_segment_open(argv[2], &segment) != SKOPOS_OK)
        return 1;
    for (int at = 0; at < count; at++)
        if (skopos_find(&segment, argv[3 + at], &vertices[at]) != SKOPOS_OK)
            return 1;
    for (int with_age = 0; with_age < 2; with_age++) {
        double value, age = 0.0, sum = 0.0, started = now();
        int at = 0;
        for (long read = 0; read < reads; read++) {
            if (skopos_read(&vertices[at], &value, with_age ? &age : NULL) == SKOPOS_OK && age < 5.0)
                sum += value;
            at = at + 1 == count ? 0 : at + 1;
        }
        double spent = now() - started;
        if (sum <= 0.0)
            return 1;
        printf("%f\n", spent / (double)reads);
    }
    return 0;
}
