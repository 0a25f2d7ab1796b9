/* Records one call with all that the header offers; compiled as C and as C++. Ends with the line of the check that failed. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fork and waitpid, also with -std=c11 */
#endif

#include "skopos_rpc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, skopos_rpc_last_error());                      \
            return 1;                                                                                                 \
        }                                                                                                             \
    } while (0)

static uint64_t depth(void *argument) {
    return *(uint64_t *)argument;
}

static int check_contexts(const skopos_rpc_context *context) {
    uint8_t bytes[SKOPOS_RPC_CONTEXT_BYTES];
    skopos_rpc_context read, before;
    char parent[SKOPOS_RPC_TRACEPARENT_BYTES], state[SKOPOS_RPC_TRACESTATE_BYTES];
    skopos_rpc_context_to_bytes(context, bytes);
    CHECK(skopos_rpc_context_from_bytes(bytes, sizeof bytes, &read) == SKOPOS_RPC_OK);
    CHECK(read.request_low == context->request_low && read.span == context->span);
    CHECK(skopos_rpc_context_from_bytes(bytes, 31, &read) == SKOPOS_RPC_INVALID);
    bytes[0] = 0;
    CHECK(skopos_rpc_context_from_bytes(bytes, sizeof bytes, &read) == SKOPOS_RPC_FAILED);
    CHECK(strlen(skopos_rpc_last_error()) > 0);
    CHECK(skopos_rpc_context_to_w3c(context, NULL, parent, sizeof parent, state, sizeof state) == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_context_to_w3c(context, NULL, parent, 10, state, sizeof state) == SKOPOS_RPC_INVALID);
    CHECK(skopos_rpc_context_from_w3c(parent, state, &read) == SKOPOS_RPC_OK);
    CHECK(read.request_high == context->request_high && read.callpath == context->callpath);
    CHECK(skopos_rpc_context_from_w3c("nothing", NULL, &read) == SKOPOS_RPC_FAILED);
    CHECK(skopos_rpc_context_current(&read) == 0);
    skopos_rpc_context_set_current(context, &before);
    CHECK(before.request_low == 0);
    CHECK(skopos_rpc_context_current(&read) == 1 && read.span == context->span);
    skopos_rpc_context_set_current(&before, NULL);
    CHECK(skopos_rpc_context_current(NULL) == 0);
    CHECK(skopos_rpc_ancestry_push(skopos_rpc_ancestry_push(0, "a"), "b") >> 16 == skopos_rpc_ancestry_push(0, "a"));
    return 0;
}

static int check_session(const skopos_rpc_recorder *recorder, skopos_rpc_span *span) {
    skopos_rpc_session *session = skopos_rpc_session_open(recorder);
    skopos_rpc_pvar_info info;
    uint32_t handle;
    uint64_t value;
    size_t found = 0, count = skopos_rpc_session_count(session);
    for (size_t index = 0; index < count; index++) {
        CHECK(skopos_rpc_session_query(session, index, &info) == SKOPOS_RPC_OK);
        if (strcmp(info.name, "pool_depth") == 0)
            found += info.binding == SKOPOS_RPC_PVAR_NO_OBJECT && info.pvar_class == SKOPOS_RPC_PVAR_LEVEL;
        if (strcmp(info.name, "rdma_time") == 0)
            found += info.binding == SKOPOS_RPC_PVAR_HANDLE && strcmp(info.unit, "ns") == 0;
    }
    CHECK(found == 2);
    CHECK(skopos_rpc_session_query(session, count, &info) == SKOPOS_RPC_INVALID);
    CHECK(skopos_rpc_session_handle(session, "pool_depth", &handle) == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_session_sample(session, handle, NULL, &value) == SKOPOS_RPC_OK && value == 17);
    CHECK(skopos_rpc_session_handle(session, "rdma_time", &handle) == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_session_sample(session, handle, NULL, &value) == SKOPOS_RPC_FAILED);
    CHECK(skopos_rpc_session_sample(session, handle, span, &value) == SKOPOS_RPC_OK && value == 900);
    CHECK(skopos_rpc_session_handle(session, "nothing", &handle) == SKOPOS_RPC_FAILED);
    skopos_rpc_session_finalize(session);
    return 0;
}

static int check_nothing(void) {
    skopos_rpc_span none;
    memset(&none, 0, sizeof none);
    skopos_rpc_span_begin(&none);
    CHECK(skopos_rpc_span_end(&none, SKOPOS_RPC_STATUS_OK) == 0);
    CHECK(skopos_rpc_span_end(NULL, SKOPOS_RPC_STATUS_OK) == 0);
    skopos_rpc_origin(NULL, skopos_rpc_intern(NULL, "put"), NULL, &none);
    CHECK(skopos_rpc_span_end(&none, SKOPOS_RPC_STATUS_OK) == 0);
    CHECK(skopos_rpc_options_new(NULL) == NULL);
    CHECK(skopos_rpc_start(NULL, NULL) == SKOPOS_RPC_INVALID);
    skopos_rpc_options_free(skopos_rpc_options_new("unused"));
    skopos_rpc_context nothing;
    memset(&nothing, 0xff, sizeof nothing);
    memset(&none, 0, sizeof none);
    skopos_rpc_span_context(&none, &nothing);
    CHECK(nothing.request_low == 0 && nothing.span == 0);
    const skopos_rpc_recorder *refused = (const skopos_rpc_recorder *)&none;
    CHECK(skopos_rpc_start(NULL, &refused) == SKOPOS_RPC_INVALID && refused == NULL);
    refused = (const skopos_rpc_recorder *)&none;
    CHECK(skopos_rpc_start(skopos_rpc_options_new("Not A Name"), &refused) == SKOPOS_RPC_FAILED && refused == NULL);
    CHECK(skopos_rpc_global() == NULL && skopos_rpc_stage(NULL) == SKOPOS_RPC_STAGE_OFF);
    return 0;
}

static int record(const skopos_rpc_recorder *recorder) {
    static uint64_t waiting = 17;
    uint16_t pool, rdma;
    CHECK(skopos_rpc_pvar_register_source(recorder, "pool_depth", SKOPOS_RPC_PVAR_LEVEL, "", depth, &waiting, &pool) == 0);
    CHECK(skopos_rpc_pvar_register(recorder, "rdma_time", SKOPOS_RPC_PVAR_TIMER, "ns", &rdma) == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_pvar_register(recorder, "rdma_time", 99, "ns", &rdma) == SKOPOS_RPC_INVALID);
    CHECK(skopos_rpc_pvar_ride(recorder, pool) == SKOPOS_RPC_OK);
    skopos_rpc_name put = skopos_rpc_intern(recorder, "put"), get = skopos_rpc_intern(recorder, "get");
    skopos_rpc_span call, served, below, step;
    memset(&call, 0, sizeof call);
    memset(&served, 0, sizeof served);
    memset(&below, 0, sizeof below);
    memset(&step, 0, sizeof step);
    skopos_rpc_context context, inside;
    skopos_rpc_origin(recorder, put, NULL, &call);
    skopos_rpc_span_interval(&call, SKOPOS_RPC_INPUT_SERIALIZATION, 100);
    skopos_rpc_span_peer(&call, skopos_rpc_peer(recorder, "n01:4000"));
    skopos_rpc_span_context(&call, &context);
    uint64_t arrived = skopos_rpc_ticks(recorder);
    skopos_rpc_target(recorder, put, &context, arrived, &served);
    skopos_rpc_span_begin(&served);
    skopos_rpc_span_pvar(&served, rdma, 900);
    CHECK(check_session(recorder, &served) == 0);
    skopos_rpc_span_interval_ticks(&served, SKOPOS_RPC_INPUT_DESERIALIZATION, arrived, skopos_rpc_ticks(recorder));
    skopos_rpc_span_context(&served, &inside);
    CHECK(check_contexts(&inside) == 0);
    skopos_rpc_origin(recorder, get, &inside, &below);
    skopos_rpc_span_exclude(&served, skopos_rpc_span_end(&below, SKOPOS_RPC_STATUS_TIMED_OUT));
    skopos_rpc_local(recorder, skopos_rpc_intern(recorder, "sort"), &inside, &step);
    CHECK(skopos_rpc_span_end(&step, SKOPOS_RPC_STATUS_OK) > 0);
    skopos_rpc_span_respond(&served);
    skopos_rpc_span_end(&served, SKOPOS_RPC_STATUS_OK);
    CHECK(skopos_rpc_span_end(&served, SKOPOS_RPC_STATUS_OK) == 0);
    skopos_rpc_span_observe(&call, 1000);
    CHECK(skopos_rpc_span_end(&call, SKOPOS_RPC_STATUS_OK) > 0);
    /* A caller that is not recorded. */
    skopos_rpc_target(recorder, put, NULL, 0, &served);
    skopos_rpc_span_end(&served, SKOPOS_RPC_STATUS_ERROR);
    return 0;
}

/* A child records nothing with the recorder of its parent, and starts its own. */
static int record_in_child(const skopos_rpc_recorder *of_parent, char **arguments) {
    skopos_rpc_span span;
    memset(&span, 0, sizeof span);
    skopos_rpc_origin(of_parent, skopos_rpc_intern(of_parent, "put"), NULL, &span);
    CHECK(skopos_rpc_span_end(&span, SKOPOS_RPC_STATUS_OK) == 0);
    CHECK(skopos_rpc_stage(of_parent) == SKOPOS_RPC_STAGE_OFF);
    skopos_rpc_options *options = skopos_rpc_options_new("child");
    const skopos_rpc_recorder *recorder = NULL;
    CHECK(skopos_rpc_options_dir(options, arguments[1]) == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_options_trace_folder(options, arguments[2]) == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_start(options, &recorder) == SKOPOS_RPC_OK);
    skopos_rpc_origin(recorder, skopos_rpc_intern(recorder, "put"), NULL, &span);
    CHECK(skopos_rpc_span_end(&span, SKOPOS_RPC_STATUS_OK) > 0);
    return 0;
}

static int check_fork(const skopos_rpc_recorder *recorder, char **arguments) {
    pid_t child = fork();
    CHECK(child != -1);
    if (child == 0)
        exit(record_in_child(recorder, arguments));
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(skopos_rpc_stage(recorder) == SKOPOS_RPC_STAGE_FULL);
    return 0;
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    CHECK(skopos_rpc_abi_version() == SKOPOS_RPC_ABI);
    CHECK(check_nothing() == 0);
    skopos_rpc_options *options = skopos_rpc_options_new("kv");
    const skopos_rpc_recorder *recorder = NULL;
    CHECK(skopos_rpc_options_dir(options, arguments[1]) == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_options_trace_folder(options, arguments[2]) == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_options_node(options, "n01") == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_options_host(options, "test 1") == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_options_config(options, "databases", "4") == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_options_sees(options, SKOPOS_RPC_TARGET_HANDLER) == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_options_cannot_see(options, SKOPOS_RPC_ORIGIN_COMPLETION_CALLBACK, "no hook") == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_options_sees(options, 99) == SKOPOS_RPC_INVALID);
    CHECK(skopos_rpc_options_stage(options, SKOPOS_RPC_STAGE_OFF) == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_options_budget(options, -1) == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_options_rings(options, 8, 256) == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_options_max_trace_bytes(options, 16 << 20) == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_start(options, &recorder) == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_ticks(recorder) == 0);
    skopos_rpc_set_stage(recorder, SKOPOS_RPC_STAGE_FULL);
    CHECK(skopos_rpc_stage(recorder) == SKOPOS_RPC_STAGE_FULL);
    skopos_rpc_set_global(recorder);
    CHECK(skopos_rpc_global() == recorder);
    CHECK(skopos_rpc_set_config(recorder, "streams", "2") == SKOPOS_RPC_OK);
    CHECK(skopos_rpc_ticks_to_ns(recorder, 1000000) > 0);
    CHECK(record(recorder) == 0);
    CHECK(check_fork(recorder, arguments) == 0);
    CHECK(skopos_rpc_flush(recorder) == SKOPOS_RPC_OK);
    /* exit() closes the recorder too, but has no caller to tell of a failure. */
    return skopos_rpc_close(recorder) == SKOPOS_RPC_OK ? 0 : 1;
}
