/* Reports outcomes of ranked choices to the agent of this machine, from the path of a request, without waiting for the agent.
 *
 * Everything is in this header; include it in one or more files. It needs Linux 4.14 or newer, and GCC or Clang. With
 * -std=c11, define _GNU_SOURCE before the first header; a libc older than glibc 2.34 needs -lpthread.
 *
 *     skopos_reporter reporter;
 *     if (skopos_reporter_open(&reporter, "/dev/shm/skopos-1000/agent.sock", "reads") != SKOPOS_REPORT_OK)
 *         perror("skopos_reporter_open");
 *     skopos_report(&reporter, "n02", 0.0012, 0, 0.0);       // for each request that a candidate served
 *     skopos_reporter_flush(&reporter, 1000);                // before the end
 *     skopos_reporter_close(&reporter);
 *
 * The way to the agent is that of `skopos rank report`: a line of JSON on its control socket. A reporter gathers outcomes and
 * sends many in a line. There is no thread: the call of skopos_report that finds a line due sends it. docs/reference/outcomes.md
 * has all bounds.
 *
 * Cost: a call writes a text of less than 400 bytes, takes a lock and reads the clock of the last tick, without a system call.
 * At most twenty times a second, one call also makes up to six system calls, and other threads that report meanwhile wait for
 * its lock. No system call waits: a line that the kernel does not take at once is dropped.
 *
 * Bounds: the agent works on a line in the thread that polls its sensors, so a reporter sends at most 20 lines a second with at
 * most 256 outcomes each, 5120 outcomes a second. Above that rate outcomes are dropped; report a random part of them instead.
 * One line is in flight at a time: while the agent does not answer, at most one further line waits.
 *
 * Times: the first outcome after a quiet second is sent at once, later ones within a second, with the next call. After a burst
 * the last outcomes wait for the next call; a timer that calls skopos_reporter_flush(&reporter, 0) sends them. Outcomes that
 * have waited for five seconds are dropped, because the agent would attribute them to a ranking that they did not follow.
 *
 * Errors: each outcome ends as taken, refused or dropped, and skopos_reporter_counts has their numbers, the reason of the last
 * drop and the last refusal. A reporter that lost its agent finds the next one by itself: an agent that starts again listens
 * at the same path.
 *
 * Threads and forks: any number of threads may use a reporter, but not signal handlers; one reporter for a process is enough.
 * A child of fork() goes on with the same reporter: its outcomes and its counts begin anew, and those of the parent stay
 * with the parent. The child keeps a descriptor of the parent's line in flight, if there is one, until it ends or execs. */

#ifndef SKOPOS_REPORT_H
#define SKOPOS_REPORT_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    SKOPOS_REPORT_OK = 0,
    SKOPOS_REPORT_INVALID = 1, /* an argument is out of its range; the outcome is counted as refused */
    SKOPOS_REPORT_FULL = 2,    /* the outcome is dropped: too many come, or the agent does not answer */
    SKOPOS_REPORT_WAITING = 3, /* outcomes still wait for the agent */
    SKOPOS_REPORT_FAILED = 4   /* the reporter is not open; after skopos_reporter_open, errno has the reason */
};

/* Most outcomes of a line, and its greatest length in bytes: the agent refuses more. */
#define SKOPOS_REPORT_OUTCOMES 256u
#define SKOPOS_REPORT_LINE_BYTES (32u * 1024u)
/* The longest name of a profile or a candidate, in bytes: that of the longest topic. */
#define SKOPOS_REPORT_NAME_BYTES 255u
/* Length of an outcome with the longest name and the longest numbers. */
#define SKOPOS_REPORT_OUTCOME_BYTES 400u
/* The part of an answer that is kept, in bytes: its numbers and the reason of a refusal, which come first. */
#define SKOPOS_REPORT_ANSWER_BYTES 256u
/* Time after which a line is sent that is not full: the usual time between two rankings. */
#define SKOPOS_REPORT_EVERY_NS UINT64_C(1000000000)
/* The least time between two lines: twenty of them a second cost the agent little beside its sensors. */
#define SKOPOS_REPORT_GAP_NS UINT64_C(50000000)
/* The longest time that an outcome waits: that for which a ranking of each second is valid. A program whose agent ranks at
 * another interval may define another time before it includes this header. */
#ifndef SKOPOS_REPORT_STALE_NS
#define SKOPOS_REPORT_STALE_NS UINT64_C(5000000000)
#endif
/* The longest latency in seconds: eleven days. */
#define SKOPOS_REPORT_SECONDS_MAX 1e6
/* The smallest probability of a choice: the unit in which numbers are written. */
#define SKOPOS_REPORT_PROBABILITY_MIN 1e-12

/* The outcomes of a reporter in this process. */
typedef struct {
    uint64_t waiting; /* not sent, or sent without an answer */
    uint64_t taken;   /* the agent took them */
    uint64_t refused; /* an argument is out of its range, or the agent refused them, such as those of an unknown candidate */
    uint64_t dropped; /* too many, too old, or without an agent; outcomes of a line without an answer may have been taken */
    int error;        /* errno of the last drop: ENOENT and ECONNREFUSED if there is no agent, ECONNRESET if it ended before it
                         answered, EAGAIN if there are too many outcomes, ETIMEDOUT if they are too old; 0 before */
    char answer[SKOPOS_REPORT_ANSWER_BYTES]; /* the beginning of the last answer that refused an outcome; empty before */
} skopos_report_counts;

/* The part of a reporter that changes, in pages that the kernel empties in a child of fork(). Zeros are a valid state: no
 * outcome, no socket, and a mutex that is not locked, also if another thread held it at the fork. */
typedef struct {
    pthread_mutex_t lock;
    int socket_plus_one;  /* the connection of the line in flight; 0 without one */
    uint32_t in_flight;   /* its outcomes */
    uint32_t outcomes;    /* outcomes in `line` */
    uint32_t bytes;
    uint64_t first_ns;    /* the time of the first of them */
    uint64_t sent_ns;     /* the time of the last line */
    uint64_t next_ns;     /* the time before which nothing is sent */
    skopos_report_counts counts;
    char line[SKOPOS_REPORT_LINE_BYTES];
} skopos_report_state;

/* A reporter. It does not change after it was opened, so it may be copied and moved. */
typedef struct {
    struct sockaddr_un address;
    char head[SKOPOS_REPORT_NAME_BYTES + 64]; /* the beginning of each line */
    skopos_report_state *state;
} skopos_reporter;

/* Returns the time of the last tick of the clock, which is exact enough here and cheap to read. */
static inline uint64_t skopos_report_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Returns 1 if a name is printable ASCII that needs no escapes in JSON, as all names of profiles and candidates are. */
static inline int skopos_report_is_name(const char *name)
{
    size_t at = 0;
    if (name == NULL)
        return 0;
    for (; name[at] != 0; at++)
        if (at == SKOPOS_REPORT_NAME_BYTES || name[at] <= ' ' || name[at] > '~' || name[at] == '"' || name[at] == '\\')
            return 0;
    return at > 0;
}

/* Writes a text without its final zero, and returns the end. */
static inline char *skopos_report_text(char *to, const char *text)
{
    size_t length = strlen(text);
    memcpy(to, text, length);
    return to + length;
}

/* Writes a number of at most 1e6 in units of 1e-12, and returns the end. An integer has no decimal comma in any locale. */
static inline char *skopos_report_number(char *to, double number)
{
    char digits[20];
    int count = 0;
    uint64_t rest = (uint64_t)(number * 1e12 + 0.5);
    do {
        digits[count++] = (char)('0' + (int)(rest % 10));
        rest /= 10;
    } while (rest != 0);
    while (count > 0)
        *to++ = digits[--count];
    return skopos_report_text(to, "e-12");
}

/* Writes an outcome as JSON, and returns its length. */
static inline uint32_t skopos_report_outcome(char *to, const char *candidate, double seconds, int failed,
                                             double probability)
{
    char *end = skopos_report_text(to, "{\"candidate\":\"");
    end = skopos_report_text(end, candidate);
    end = skopos_report_number(skopos_report_text(end, "\",\"seconds\":"), seconds);
    if (failed)
        end = skopos_report_text(end, ",\"failed\":true");
    if (probability > 0.0)
        end = skopos_report_number(skopos_report_text(end, ",\"probability\":"), probability);
    *end++ = '}';
    return (uint32_t)(end - to);
}

/* Returns 1 if the line has no room for an outcome of `length` bytes. The caller holds the lock. */
static inline int skopos_report_is_full(const skopos_report_state *state, uint32_t length)
{
    /* A comma before the outcome, and three bytes at the end of the line. */
    return state->outcomes == SKOPOS_REPORT_OUTCOMES
        || (state->outcomes > 0 && state->bytes + length + 4u > SKOPOS_REPORT_LINE_BYTES);
}

/* Appends an outcome to the line, which has room. The caller holds the lock. */
static inline void skopos_report_append(const skopos_reporter *reporter, const char *outcome, uint32_t length,
                                        uint64_t now)
{
    skopos_report_state *state = reporter->state;
    if (state->outcomes == 0) {
        state->bytes = (uint32_t)(skopos_report_text(state->line, reporter->head) - state->line);
        state->first_ns = now;
    } else {
        state->line[state->bytes++] = ',';
    }
    memcpy(state->line + state->bytes, outcome, length);
    state->bytes += length;
    state->outcomes++;
}

/* Counts what waits in the line as dropped, for the reason `error`. The caller holds the lock. */
static inline void skopos_report_drop(skopos_report_state *state, int error)
{
    state->counts.dropped += state->outcomes;
    state->counts.error = error;
    state->outcomes = 0;
}

/* Takes the answer about the line in flight, if it has come. Returns 1 if no line is in flight then. The caller holds the
 * lock. */
static inline int skopos_report_settle(skopos_report_state *state)
{
    skopos_report_counts *counts = &state->counts;
    char answer[SKOPOS_REPORT_ANSWER_BYTES];
    if (state->socket_plus_one == 0)
        return 1;
    ssize_t length = recv(state->socket_plus_one - 1, answer, sizeof answer - 1, MSG_DONTWAIT);
    int error = length < 0 ? errno : ECONNRESET;
    if (length < 0 && (error == EAGAIN || error == EINTR))
        return 0;
    close(state->socket_plus_one - 1);
    state->socket_plus_one = 0;
    if (length <= 0) {
        counts->dropped += state->in_flight;
        counts->error = error;
    } else {
        answer[length] = 0;
        /* An answer without this number refuses the whole line. A quote in a text of the answer has a backslash. */
        const char *number = strstr(answer, "\"taken\":");
        uint64_t taken = number == NULL ? 0 : strtoull(number + 8, NULL, 10);
        if (taken > state->in_flight)
            taken = state->in_flight;
        counts->taken += taken;
        counts->refused += state->in_flight - taken;
        if (taken < state->in_flight) {
            answer[strcspn(answer, "\n")] = 0;
            memcpy(counts->answer, answer, strlen(answer) + 1);
        }
    }
    state->in_flight = 0;
    return 1;
}

/* Drops outcomes that have waited for too long. The caller holds the lock. */
static inline void skopos_report_drop_stale(skopos_report_state *state, uint64_t now)
{
    if (state->outcomes > 0 && now - state->first_ns > SKOPOS_REPORT_STALE_NS)
        skopos_report_drop(state, ETIMEDOUT);
}

/* Sends the line, unless the last one has no answer yet. The caller holds the lock. */
static inline void skopos_report_send(const skopos_reporter *reporter, uint64_t now)
{
    skopos_report_state *state = reporter->state;
    state->next_ns = now + SKOPOS_REPORT_GAP_NS;
    if (!skopos_report_settle(state) || state->outcomes == 0)
        return;
    state->sent_ns = now;
    memcpy(state->line + state->bytes, "]}\n", 3);
    size_t length = state->bytes + 3u;
    ssize_t sent = -1;
    int file = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (file >= 0 && connect(file, (const struct sockaddr *)&reporter->address, sizeof reporter->address) == 0)
        sent = send(file, state->line, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == (ssize_t)length) {
        state->socket_plus_one = file + 1;
        state->in_flight = state->outcomes;
        state->outcomes = 0;
        return;
    }
    /* The kernel takes a part of a line if the buffers of sockets are configured to be tiny. */
    skopos_report_drop(state, sent < 0 ? errno : ENOBUFS);
    if (file >= 0)
        close(file);
}

/* Opens a reporter for the agent that listens at `socket_path`, `agent.sock` beside its segment, whether it runs or not.
 * `profile` is NULL for the only profile of the agent.
 *
 * Returns SKOPOS_REPORT_OK; SKOPOS_REPORT_INVALID if the path is longer than 107 bytes or `profile` is not a name;
 * SKOPOS_REPORT_FAILED if there is no memory, or the kernel is too old. A reporter that is not open takes no outcomes. */
static inline int skopos_reporter_open(skopos_reporter *reporter, const char *socket_path, const char *profile)
{
    memset(reporter, 0, sizeof *reporter);
    if (socket_path == NULL || strlen(socket_path) >= sizeof reporter->address.sun_path
        || (profile != NULL && !skopos_report_is_name(profile)))
        return SKOPOS_REPORT_INVALID;
    reporter->address.sun_family = AF_UNIX;
    memcpy(reporter->address.sun_path, socket_path, strlen(socket_path) + 1);
    char *end = skopos_report_text(reporter->head, "{\"verb\":\"outcomes\",");
    if (profile != NULL) {
        end = skopos_report_text(skopos_report_text(end, "\"profile\":\""), profile);
        end = skopos_report_text(end, "\",");
    }
    skopos_report_text(end, "\"outcomes\":[");
    size_t bytes = sizeof(skopos_report_state);
    void *state = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (state == MAP_FAILED)
        return SKOPOS_REPORT_FAILED;
    if (madvise(state, bytes, MADV_WIPEONFORK) != 0) {
        int error = errno;
        munmap(state, bytes);
        errno = error;
        return SKOPOS_REPORT_FAILED;
    }
    reporter->state = (skopos_report_state *)state;
    return SKOPOS_REPORT_OK;
}

/* Reports that `candidate` served a request in `seconds`, or failed it after that time. `probability` is that with which the
 * caller chose the candidate, for the recording of the agent; 0 stands for its weight in the ranking.
 *
 * Returns SKOPOS_REPORT_OK if the outcome waits or was sent: the counts say what becomes of it; SKOPOS_REPORT_INVALID if the
 * name is not 1 to 255 characters of printable ASCII without spaces, double quotes and backslashes, `seconds` is not from 0 to
 * 1e6, or `probability` is neither 0 nor from 1e-12 to 1; SKOPOS_REPORT_FULL if the outcome is dropped; SKOPOS_REPORT_FAILED
 * if the reporter is not open. */
static inline int skopos_report(const skopos_reporter *reporter, const char *candidate, double seconds, int failed,
                                double probability)
{
    skopos_report_state *state = reporter->state;
    char outcome[SKOPOS_REPORT_OUTCOME_BYTES];
    int code = SKOPOS_REPORT_OK;
    if (state == NULL)
        return SKOPOS_REPORT_FAILED;
    /* NaN is in no range. */
    if (!skopos_report_is_name(candidate) || !(seconds >= 0.0 && seconds <= SKOPOS_REPORT_SECONDS_MAX)
        || !(probability == 0.0 || (probability >= SKOPOS_REPORT_PROBABILITY_MIN && probability <= 1.0))) {
        pthread_mutex_lock(&state->lock);
        state->counts.refused++;
        pthread_mutex_unlock(&state->lock);
        return SKOPOS_REPORT_INVALID;
    }
    uint32_t length = skopos_report_outcome(outcome, candidate, seconds, failed, probability);
    pthread_mutex_lock(&state->lock);
    uint64_t now = skopos_report_now(); /* under the lock, so that times in the state never lie ahead */
    skopos_report_drop_stale(state, now);
    if (skopos_report_is_full(state, length) && now >= state->next_ns)
        skopos_report_send(reporter, now);
    if (skopos_report_is_full(state, length)) {
        state->counts.dropped++;
        state->counts.error = EAGAIN;
        code = SKOPOS_REPORT_FULL;
    } else {
        skopos_report_append(reporter, outcome, length, now);
        if (now >= state->next_ns
            && (state->outcomes == SKOPOS_REPORT_OUTCOMES || now - state->sent_ns >= SKOPOS_REPORT_EVERY_NS))
            skopos_report_send(reporter, now);
    }
    pthread_mutex_unlock(&state->lock);
    return code;
}

/* Writes the counts, also those of an answer that has come since the last call. */
static inline void skopos_reporter_counts(const skopos_reporter *reporter, skopos_report_counts *counts)
{
    skopos_report_state *state = reporter->state;
    memset(counts, 0, sizeof *counts);
    if (state == NULL)
        return;
    pthread_mutex_lock(&state->lock);
    skopos_report_settle(state);
    *counts = state->counts;
    counts->waiting = (uint64_t)state->in_flight + state->outcomes;
    pthread_mutex_unlock(&state->lock);
}

/* Sends what waits, at most 20 lines a second, and waits at most `timeout_ms` for the answers of the agent; 0 does not wait.
 *
 * Returns SKOPOS_REPORT_OK if no outcome waits: each was taken, refused or dropped, as the counts say; SKOPOS_REPORT_WAITING if
 * the time was too short; SKOPOS_REPORT_FAILED if the reporter is not open. */
static inline int skopos_reporter_flush(const skopos_reporter *reporter, int timeout_ms)
{
    skopos_report_state *state = reporter->state;
    uint64_t end = skopos_report_now() + (timeout_ms > 0 ? (uint64_t)timeout_ms * UINT64_C(1000000) : 0);
    if (state == NULL)
        return SKOPOS_REPORT_FAILED;
    for (;;) {
        struct pollfd answer;
        pthread_mutex_lock(&state->lock);
        uint64_t now = skopos_report_now(), left = end > now ? end - now : 0;
        skopos_report_drop_stale(state, now);
        if (now >= state->next_ns)
            skopos_report_send(reporter, now);
        else
            skopos_report_settle(state);
        int is_done = state->in_flight == 0 && state->outcomes == 0;
        answer.fd = state->socket_plus_one - 1; /* poll() ignores a descriptor below zero */
        answer.events = POLLIN;
        answer.revents = 0;
        pthread_mutex_unlock(&state->lock);
        if (is_done)
            return SKOPOS_REPORT_OK;
        if (left == 0)
            return SKOPOS_REPORT_WAITING;
        /* Another thread may take the answer, or send a line: look again after the time of one line. */
        uint64_t wait = left < SKOPOS_REPORT_GAP_NS ? left : SKOPOS_REPORT_GAP_NS;
        poll(&answer, 1, (int)(wait / UINT64_C(1000000)) + 1);
    }
}

/* Closes a reporter that no other thread uses any more. Outcomes that wait are lost: flush before, and read the counts. */
static inline void skopos_reporter_close(skopos_reporter *reporter)
{
    skopos_report_state *state = reporter->state;
    if (state == NULL)
        return;
    if (state->socket_plus_one != 0)
        close(state->socket_plus_one - 1);
    munmap(state, sizeof *state);
    reporter->state = NULL;
}

#endif
