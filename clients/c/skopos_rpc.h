/* Skopos records the calls of RPC services: this is the interface for libraries in C and C++.
 *
 * Link with libskopos_ffi.so (-lskopos_ffi) or libskopos_ffi.a (with -lpthread -ldl -lm).
 *
 * In short:
 *
 *     skopos_rpc_options *options = skopos_rpc_options_new("kv");
 *     skopos_rpc_options_trace_folder(options, "traces");
 *     const skopos_rpc_recorder *recorder;
 *     if (skopos_rpc_start(options, &recorder) != SKOPOS_RPC_OK)
 *         fprintf(stderr, "%s\n", skopos_rpc_last_error());
 *     skopos_rpc_name put = skopos_rpc_intern(recorder, "put");       // once for each call of the interface
 *
 *     skopos_rpc_span call = {{0}};                                     // the caller
 *     skopos_rpc_context context;
 *     skopos_rpc_origin(recorder, put, NULL, &call);
 *     skopos_rpc_span_context(&call, &context);                         // send it with the request
 *     skopos_rpc_span_end(&call, SKOPOS_RPC_STATUS_OK);                 // when the response was handled
 *
 *     skopos_rpc_span served = {{0}};                                   // the callee
 *     skopos_rpc_target(recorder, put, &context, 0, &served);           // t4: the request arrived
 *     skopos_rpc_span_begin(&served);                                   // t5: its handler runs
 *     skopos_rpc_span_end(&served, SKOPOS_RPC_STATUS_OK);
 *
 *     skopos_rpc_close(recorder);
 *
 * All functions can be called from any thread, but not from signal handlers: several take locks. A span that a handler
 * begins or ends while it interrupts another one of its thread is not recorded, and is counted. A recorder that is NULL records nothing, and so do spans of it; a span of
 * zeros is none. Functions that return int return SKOPOS_RPC_OK or another code, and skopos_rpc_last_error() has the
 * reason. Texts are UTF-8, end in a zero byte, and are copied. */

#ifndef SKOPOS_RPC_H
#define SKOPOS_RPC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header; skopos_rpc_abi_version() returns that of the library. */
#define SKOPOS_RPC_ABI 1

/* Codes. */
#define SKOPOS_RPC_OK 0
#define SKOPOS_RPC_INVALID (-1) /* an argument is NULL, not UTF-8 or out of its range */
#define SKOPOS_RPC_FAILED (-2)  /* the call failed */

/* The amount of what is recorded. */
enum {
    SKOPOS_RPC_STAGE_OFF = 0,     /* nothing */
    SKOPOS_RPC_STAGE_CONTEXT = 1, /* requests carry their context, and nothing is written */
    SKOPOS_RPC_STAGE_SPANS = 2,   /* a record for each side of a call */
    SKOPOS_RPC_STAGE_FULL = 3     /* with intervals and variables; the default */
};

/* The end of a call. */
enum {
    SKOPOS_RPC_STATUS_OK = 0,
    SKOPOS_RPC_STATUS_ERROR = 1,
    SKOPOS_RPC_STATUS_CANCELLED = 2,
    SKOPOS_RPC_STATUS_TIMED_OUT = 3
};

/* Parts of a call, in ns; t1 to t14 are the moments of a call. The library computes TARGET_HANDLER,
 * TARGET_EXECUTION_EXCLUSIVE, TARGET_COMPLETION_CALLBACK and CHILDREN from skopos_rpc_span_begin, _respond and _exclude. */
enum {
    SKOPOS_RPC_ORIGIN_EXECUTION = 1,              /* t1 to t14: the whole call, seen by the caller */
    SKOPOS_RPC_INPUT_SERIALIZATION = 2,           /* t2 to t3 */
    SKOPOS_RPC_TARGET_INTERNAL_RDMA_TRANSFER = 3, /* t3 to t4: input that did not fit the first message */
    SKOPOS_RPC_TARGET_HANDLER = 4,                /* t4 to t5: the queue of the target */
    SKOPOS_RPC_INPUT_DESERIALIZATION = 5,         /* t6 to t7 */
    SKOPOS_RPC_TARGET_EXECUTION_EXCLUSIVE = 6,    /* t5 to t8 without calls to others */
    SKOPOS_RPC_OUTPUT_SERIALIZATION = 7,          /* t9 to t10 */
    SKOPOS_RPC_TARGET_COMPLETION_CALLBACK = 8,    /* t8 to t13 */
    SKOPOS_RPC_ORIGIN_COMPLETION_CALLBACK = 9,    /* t12 to t14 */
    SKOPOS_RPC_CHILDREN = 10                      /* calls of a target to others */
};

/* Classes of performance variables. */
enum {
    SKOPOS_RPC_PVAR_STATE = 1,          /* one of a set of states */
    SKOPOS_RPC_PVAR_COUNTER = 2,        /* only grows */
    SKOPOS_RPC_PVAR_TIMER = 3,          /* a time between two events */
    SKOPOS_RPC_PVAR_LEVEL = 4,          /* use of a resource */
    SKOPOS_RPC_PVAR_SIZE = 5,           /* size of a resource */
    SKOPOS_RPC_PVAR_HIGHWATERMARK = 6,  /* greatest value so far */
    SKOPOS_RPC_PVAR_LOWWATERMARK = 7    /* smallest value so far */
};

/* Bindings of performance variables. */
enum {
    SKOPOS_RPC_PVAR_NO_OBJECT = 0, /* the process */
    SKOPOS_RPC_PVAR_HANDLE = 1     /* a request: the value dies with its span and rides on the span's record */
};

typedef struct skopos_rpc_options skopos_rpc_options;
typedef struct skopos_rpc_recorder skopos_rpc_recorder;
typedef struct skopos_rpc_session skopos_rpc_session;

/* The interned name of a call. */
typedef struct {
    uint64_t hash;
    uint32_t id;
} skopos_rpc_name;

/* The interned name of another entity; 0 is not known. */
typedef uint16_t skopos_rpc_peer_id;

/* The part of a call that travels with the request. request_low is 0 if there is none. */
typedef struct {
    uint64_t request_low;
    uint64_t request_high;
    uint64_t span;
    uint64_t callpath;
    uint32_t lamport;
    uint16_t order;
    uint8_t flags;
} skopos_rpc_context;

/* Length of a context in its binary form, of a traceparent with its end, and of the longest tracestate of its own. */
#define SKOPOS_RPC_CONTEXT_BYTES 32
#define SKOPOS_RPC_TRACEPARENT_BYTES 56
#define SKOPOS_RPC_TRACESTATE_BYTES 64

/* One side of a call while it lasts, in your memory: on the stack, or in your request. Set it to zeros before its first use.
 * It can be moved by memcpy, and used by one thread at a time. A span that is not ended is not recorded. */
typedef struct {
    uint64_t opaque[40];
} skopos_rpc_span;

/* The description of a variable. The texts live as long as the session. */
typedef struct {
    const char *name;
    const char *unit;
    uint16_t number;
    uint8_t pvar_class;
    uint8_t binding;
} skopos_rpc_pvar_info;

/* The version of the library. */
uint32_t skopos_rpc_abi_version(void);

/* The reason for the last failure of this thread; valid until the next one. Never NULL. */
const char *skopos_rpc_last_error(void);

/* ---- Options ---- */

/* Options of the recorder of service `name`: 1 to 48 of the characters a-z 0-9 _ - . ; NULL if the name is NULL. */
skopos_rpc_options *skopos_rpc_options_new(const char *name);
/* Frees options that were not given to skopos_rpc_start. */
void skopos_rpc_options_free(skopos_rpc_options *options);
/* The name of the node. */
int skopos_rpc_options_node(skopos_rpc_options *options, const char *value);
/* The runtime directory, instead of $SKOPOS_DIR or /dev/shm/skopos-UID. */
int skopos_rpc_options_dir(skopos_rpc_options *options, const char *value);
/* The folder of the trace, which exists. Without it the agent of the node collects the records. */
int skopos_rpc_options_trace_folder(skopos_rpc_options *options, const char *value);
/* The RPC library and its version, such as "margo 0.15". */
int skopos_rpc_options_host(skopos_rpc_options *options, const char *value);
/* A value of the service's configuration, which is kept with the trace. */
int skopos_rpc_options_config(skopos_rpc_options *options, const char *key, const char *value);
/* An interval that the host sees; one that it cannot see, with the reason. */
int skopos_rpc_options_sees(skopos_rpc_options *options, uint32_t interval);
int skopos_rpc_options_cannot_see(skopos_rpc_options *options, uint32_t interval, const char *reason);
/* The stage at the beginning. */
int skopos_rpc_options_stage(skopos_rpc_options *options, uint32_t stage);
/* The share of processor time that recording may cost (0.01 unless set); a negative number sets no bound. */
int skopos_rpc_options_budget(skopos_rpc_options *options, double share);
/* The number of threads that record at a time (64), and the records of each one's ring (8192, a power of two). */
int skopos_rpc_options_rings(skopos_rpc_options *options, uint32_t threads, uint32_t records);
/* The bound on the trace on disk in bytes (1 GiB); the oldest parts are deleted, and their records counted. */
int skopos_rpc_options_max_trace_bytes(skopos_rpc_options *options, uint64_t bytes);

/* ---- Recorders ---- */

/* Starts a recorder and frees the options, also if it fails; *recorder is NULL then. The recorder lives until the process ends. */
int skopos_rpc_start(skopos_rpc_options *options, const skopos_rpc_recorder **recorder);
/* The recorder for hosts that do not get one: NULL before skopos_rpc_set_global. */
const skopos_rpc_recorder *skopos_rpc_global(void);
void skopos_rpc_set_global(const skopos_rpc_recorder *recorder);
/* Writes everything that ended before to the trace. */
int skopos_rpc_flush(const skopos_rpc_recorder *recorder);
/* Ends a recorder; exit() does it too. Spans that end later are not recorded. */
int skopos_rpc_close(const skopos_rpc_recorder *recorder);
/* Interns the name of a call. It takes a lock: do it once for each name, not for each request. */
skopos_rpc_name skopos_rpc_intern(const skopos_rpc_recorder *recorder, const char *name);
/* Interns the name of another entity, such as an address. */
skopos_rpc_peer_id skopos_rpc_peer(const skopos_rpc_recorder *recorder, const char *name);
/* Sets a value of the service's configuration while it runs. */
int skopos_rpc_set_config(const skopos_rpc_recorder *recorder, const char *key, const char *value);
/* The stage; it can be smaller than the one that was set, by the budget or the file NAME.stage. */
uint32_t skopos_rpc_stage(const skopos_rpc_recorder *recorder);
void skopos_rpc_set_stage(const skopos_rpc_recorder *recorder, uint32_t stage);
/* The clock in ticks, 0 if nothing is recorded; and ticks as ns. */
uint64_t skopos_rpc_ticks(const skopos_rpc_recorder *recorder);
uint64_t skopos_rpc_ticks_to_ns(const skopos_rpc_recorder *recorder, uint64_t ticks);

/* ---- Spans ---- */

/* Begins the caller's side of a call (t1), below `parent`; with NULL a new request begins. */
void skopos_rpc_origin(const skopos_rpc_recorder *recorder, skopos_rpc_name rpc, const skopos_rpc_context *parent,
                       skopos_rpc_span *span);
/* Begins the callee's side of a call that arrived (t4) at `arrived` ticks, or now if that is 0. With NULL a new request
 * begins: its caller is not recorded. */
void skopos_rpc_target(const skopos_rpc_recorder *recorder, skopos_rpc_name rpc, const skopos_rpc_context *context,
                       uint64_t arrived, skopos_rpc_span *span);
/* Begins a step inside of the process. */
void skopos_rpc_local(const skopos_rpc_recorder *recorder, skopos_rpc_name rpc, const skopos_rpc_context *parent,
                      skopos_rpc_span *span);
/* The context: of an origin, for its request; of others, for the calls below. Without a span, request_low is 0. */
void skopos_rpc_span_context(skopos_rpc_span *span, skopos_rpc_context *context);
/* The handler begins (t5), and ends (t8). */
void skopos_rpc_span_begin(skopos_rpc_span *span);
void skopos_rpc_span_respond(skopos_rpc_span *span);
/* Takes `ns` of calls to others out of the exclusive time of the handler. */
void skopos_rpc_span_exclude(skopos_rpc_span *span, uint64_t ns);
/* Adds an interval in ns, or between two moments in ticks. */
void skopos_rpc_span_interval(skopos_rpc_span *span, uint32_t interval, uint64_t ns);
void skopos_rpc_span_interval_ticks(skopos_rpc_span *span, uint32_t interval, uint64_t from, uint64_t to);
/* Adds the value of a variable. A span has room for 14 intervals and variables; the rest is counted. */
void skopos_rpc_span_pvar(skopos_rpc_span *span, uint16_t pvar, uint64_t value);
/* Names the other entity. */
void skopos_rpc_span_peer(skopos_rpc_span *span, skopos_rpc_peer_id peer);
/* Takes the Lamport clock of a response into account. */
void skopos_rpc_span_observe(skopos_rpc_span *span, uint32_t lamport);
/* Ends a span and records it (origin t14, target t13). Returns its duration in ns, 0 if nothing is recorded. */
uint64_t skopos_rpc_span_end(skopos_rpc_span *span, uint32_t status);

/* ---- Contexts ---- */

/* The binary form: 32 bytes. */
void skopos_rpc_context_to_bytes(const skopos_rpc_context *context, uint8_t *bytes);
int skopos_rpc_context_from_bytes(const uint8_t *bytes, size_t length, skopos_rpc_context *context);
/* The headers of W3C. `others` is the tracestate that came with the request, or NULL; `tracestate` may be NULL. */
int skopos_rpc_context_to_w3c(const skopos_rpc_context *context, const char *others, char *traceparent,
                              size_t traceparent_capacity, char *tracestate, size_t tracestate_capacity);
int skopos_rpc_context_from_w3c(const char *traceparent, const char *tracestate, skopos_rpc_context *context);
/* The current context of this thread: returns 1 and writes it, or returns 0. */
int skopos_rpc_context_current(skopos_rpc_context *context);
/* Makes `context` the current one, or none if it is NULL or without a request; writes the one before. With tasks of user
 * level, do it each time that a task begins or goes on, and set the one before when it ends or waits. */
void skopos_rpc_context_set_current(const skopos_rpc_context *context, skopos_rpc_context *previous);
/* Appends a name to an ancestry of four 16-bit hops, the youngest in the lowest bits. */
uint64_t skopos_rpc_ancestry_push(uint64_t ancestry, const char *name);

/* ---- Performance variables ---- */

/* Registers a variable of requests; give its values to spans by skopos_rpc_span_pvar. */
int skopos_rpc_pvar_register(const skopos_rpc_recorder *recorder, const char *name, uint32_t pvar_class,
                             const char *unit, uint16_t *number);
/* Registers a variable of the process: `function` is called from any thread until the process ends, and returns at once. */
int skopos_rpc_pvar_register_source(const skopos_rpc_recorder *recorder, const char *name, uint32_t pvar_class,
                                    const char *unit, uint64_t (*function)(void *), void *argument,
                                    uint16_t *number);
/* Samples a variable of the process at the end of each span. */
int skopos_rpc_pvar_ride(const skopos_rpc_recorder *recorder, uint16_t number);
/* Tools: open a session, query the variables, allocate handles, sample, finalize. One thread at a time uses a session. */
skopos_rpc_session *skopos_rpc_session_open(const skopos_rpc_recorder *recorder);
size_t skopos_rpc_session_count(const skopos_rpc_session *session);
int skopos_rpc_session_query(const skopos_rpc_session *session, size_t index, skopos_rpc_pvar_info *info);
int skopos_rpc_session_handle(skopos_rpc_session *session, const char *name, uint32_t *handle);
/* Samples a variable; `span` is the request of a variable that is bound to requests, else NULL. */
int skopos_rpc_session_sample(const skopos_rpc_session *session, uint32_t handle, skopos_rpc_span *span,
                              uint64_t *value);
void skopos_rpc_session_finalize(skopos_rpc_session *session);

#ifdef __cplusplus
}
#endif

#endif
