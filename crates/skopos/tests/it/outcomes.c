/* Reports outcomes with the header for C: outcomes MODE SOCKET prints lines of counts. Ends with the line of the check that
 * failed. */

#include "skopos_report.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                                   \
            return 1;                                                                                                 \
        }                                                                                                             \
    } while (0)

/* Time that only ends a hang. */
enum { PATIENCE_SECONDS = 180, CHILDREN = 20, THREADS = 2 };

static skopos_report_counts counts_of(const skopos_reporter *reporter)
{
    skopos_report_counts counts;
    skopos_reporter_counts(reporter, &counts);
    return counts;
}

static int flushed(const skopos_reporter *reporter)
{
    return skopos_reporter_flush(reporter, PATIENCE_SECONDS * 1000) == SKOPOS_REPORT_OK;
}

static void print(const skopos_reporter *reporter)
{
    skopos_report_counts counts = counts_of(reporter);
    printf("%d %d %d %d %d\n", (int)counts.waiting, (int)counts.taken, (int)counts.refused, (int)counts.dropped,
           counts.error);
    fflush(stdout);
}

/* No agent answers. */
static int once(const skopos_reporter *reporter)
{
    CHECK(skopos_report(reporter, "n02", 0.0012, 0, 0.0) == SKOPOS_REPORT_OK);
    print(reporter);
    return 0;
}

/* The agent lets outcomes wait until the bound, and then answers in three ways. */
static int hung(const skopos_reporter *reporter)
{
    int dropped = 0;
    CHECK(skopos_report(reporter, "n02", 0.0012, 1, 0.25) == SKOPOS_REPORT_OK);
    for (int at = 1; at < 300; at++)
        dropped += skopos_report(reporter, "n03", 3e-9 * at, 0, 0.0) == SKOPOS_REPORT_FULL;
    CHECK(dropped == 43);
    CHECK(skopos_reporter_flush(reporter, 0) == SKOPOS_REPORT_WAITING);
    print(reporter);
    CHECK(flushed(reporter));
    print(reporter);
    CHECK(strstr(counts_of(reporter).answer, "ranks no profile") != NULL);
    CHECK(skopos_report(reporter, "n03", 1.0, 0, 0.0) == SKOPOS_REPORT_OK);
    CHECK(flushed(reporter));
    print(reporter);
    return 0;
}

/* Outcomes that have waited for too long make room for the next one. */
static int stale(const skopos_reporter *reporter)
{
    CHECK(skopos_report(reporter, "n02", 1.0, 0, 0.0) == SKOPOS_REPORT_OK);
    CHECK(skopos_report(reporter, "n02", 2.0, 0, 0.0) == SKOPOS_REPORT_OK);
    uint64_t then = skopos_report_now();
    while (skopos_report_now() == then)
        sched_yield();
    CHECK(skopos_report(reporter, "n02", 3.0, 0, 0.0) == SKOPOS_REPORT_OK);
    print(reporter);
    return 0;
}

typedef struct {
    pthread_t thread;
    const skopos_reporter *reporter;
    int *is_over;
    uint64_t reported;
} worker;

static void *work(void *argument)
{
    worker *own = (worker *)argument;
    while (!__atomic_load_n(own->is_over, __ATOMIC_RELAXED)) {
        skopos_report(own->reporter, own->reported % 2 ? "n02" : "n03", 0.001, 0, 0.0);
        own->reported++;
        sched_yield();
    }
    return NULL;
}

/* A child reports by the reporter of its parent, whose lock another thread may hold. */
static int child(const skopos_reporter *reporter)
{
    alarm(PATIENCE_SECONDS);
    skopos_report_counts counts = counts_of(reporter);
    CHECK(counts.waiting == 0 && counts.taken == 0 && counts.refused == 0 && counts.dropped == 0);
    CHECK(skopos_report(reporter, "n02", 0.001, 0, 0.0) == SKOPOS_REPORT_OK);
    CHECK(flushed(reporter));
    counts = counts_of(reporter);
    CHECK(counts.taken == 1 && counts.dropped == 0);
    return 0;
}

static int fork_children(const skopos_reporter *reporter)
{
    for (int at = 0; at < CHILDREN; at++) {
        int status = 0;
        pid_t forked = fork();
        if (forked == 0)
            _exit(child(reporter));
        CHECK(forked > 0 && waitpid(forked, &status, 0) == forked);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return 0;
}

static int invalid(const skopos_reporter *reporter)
{
    skopos_reporter other;
    CHECK(skopos_report(reporter, NULL, 1.0, 0, 0.0) == SKOPOS_REPORT_INVALID);
    CHECK(skopos_report(reporter, "", 1.0, 0, 0.0) == SKOPOS_REPORT_INVALID);
    CHECK(skopos_report(reporter, "a\"b", 1.0, 0, 0.0) == SKOPOS_REPORT_INVALID);
    CHECK(skopos_report(reporter, "n02", NAN, 0, 0.0) == SKOPOS_REPORT_INVALID);
    CHECK(skopos_report(reporter, "n02", -1.0, 0, 0.0) == SKOPOS_REPORT_INVALID);
    CHECK(skopos_report(reporter, "n02", 2e6, 0, 0.0) == SKOPOS_REPORT_INVALID);
    CHECK(skopos_report(reporter, "n02", 1.0, 0, 1.5) == SKOPOS_REPORT_INVALID);
    CHECK(skopos_report(reporter, "n02", 1.0, 0, 1e-13) == SKOPOS_REPORT_INVALID);
    CHECK(skopos_reporter_open(&other, "agent.sock", "a b") == SKOPOS_REPORT_INVALID);
    CHECK(skopos_report(&other, "n02", 1.0, 0, 0.0) == SKOPOS_REPORT_FAILED);
    skopos_reporter_close(&other);
    return 0;
}

/* An agent runs that ranks n02 and n03. Prints the number of outcomes that it took. */
static int agent(const skopos_reporter *reporter)
{
    worker workers[THREADS];
    int is_over = 0;
    uint64_t reported = 100;
    CHECK(skopos_report(reporter, "n99", 0.1, 0, 0.0) == SKOPOS_REPORT_OK);
    CHECK(flushed(reporter) && counts_of(reporter).refused == 1);
    CHECK(strstr(counts_of(reporter).answer, "n99") != NULL);
    CHECK(invalid(reporter) == 0 && counts_of(reporter).refused == 9);
    for (int at = 0; at < 100; at++)
        CHECK(skopos_report(reporter, at % 2 ? "n02" : "n03", 0.001 * at, at % 10 == 0, at % 2 ? 0.5 : 0.0)
              == SKOPOS_REPORT_OK);
    CHECK(flushed(reporter) && counts_of(reporter).taken == 100);
    for (int at = 0; at < THREADS; at++) {
        workers[at].reporter = reporter;
        workers[at].is_over = &is_over;
        workers[at].reported = 0;
        CHECK(pthread_create(&workers[at].thread, NULL, work, &workers[at]) == 0);
    }
    CHECK(fork_children(reporter) == 0);
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    for (int at = 0; at < THREADS; at++) {
        CHECK(pthread_join(workers[at].thread, NULL) == 0);
        reported += workers[at].reported;
    }
    CHECK(flushed(reporter));
    skopos_report_counts counts = counts_of(reporter);
    CHECK(counts.refused == 9 && counts.waiting == 0 && counts.taken + counts.dropped == reported);
    printf("%d\n", (int)counts.taken + CHILDREN);
    return 0;
}

int main(int argc, char **argv)
{
    skopos_reporter reporter;
    int code = 2;
    CHECK(argc == 3 && skopos_reporter_open(&reporter, argv[2], "reads") == SKOPOS_REPORT_OK);
    if (strcmp(argv[1], "once") == 0)
        code = once(&reporter);
    if (strcmp(argv[1], "hung") == 0)
        code = hung(&reporter);
    if (strcmp(argv[1], "stale") == 0)
        code = stale(&reporter);
    if (strcmp(argv[1], "agent") == 0)
        code = agent(&reporter);
    skopos_reporter_close(&reporter);
    return code;
}
