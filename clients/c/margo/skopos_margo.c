/* Records the RPCs of a program that uses Margo of the Mochi project, without a change of the program:
 *
 *     cc -shared -fPIC skopos_margo.c $(pkg-config --cflags margo) -I.. -lskopos_ffi -o libskopos_margo.so
 *     LD_PRELOAD=./libskopos_margo.so SKOPOS_MARGO_FOLDER=traces ./server
 *
 * Its constructor puts a monitor in the place of Margo's default monitor and asks Margo to use it. It is not linked with
 * Margo, so a program without Margo is left alone. It leaves Margo alone too, with one line on stderr, if the library that
 * is loaded has another version than the header: members of the monitor differ between versions.
 *
 * Environment: SKOPOS_MARGO_FOLDER (the folder of the trace; without it the agent collects the records), SKOPOS_MARGO_NAME
 * (name of the service; the program's unless set), SKOPOS_MARGO_VERSION (the version of the loaded library, where its file
 * does not tell).
 *
 * Each hook costs about 40 ns, so these twelve are all: register, forward, set_input, forward_cb, rpc_handler, rpc_ult,
 * get_input, respond, set_output, respond_cb, destroy and finalize.
 *
 * Moments of a call: t1 forward begins; t2, t3 the input is serialized; t4 Margo has the request and makes its task; t5 the
 * task runs; t6, t7 the input is deserialized; t8 the task responds; t9, t10 the output is serialized; t13 the response was
 * sent; t14 the callback of the caller ran. A monitor cannot add bytes to a request, so the two sides of a call have no
 * common id: the callpath of a target begins with the name of the RPC that its caller served, and calls of a handler are
 * below its request in the process of the handler. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <margo.h>
#include <margo-monitoring.h>
#include <margo-version.h>

#include "skopos_rpc.h"

/* Most names of RPCs; services have some dozens. Calls of further ones are recorded as `other`. */
#define MAX_NAMES 1024
/* The lower bytes of an RPC's id are the provider's. */
#define PROVIDER_BITS 16

/* All symbols of Margo are weak: the plugin loads into programs without it. */
#pragma weak margo_default_monitor
#pragma weak margo_set_monitoring_data
#pragma weak margo_get_monitoring_data
#pragma weak ABT_key_create
#pragma weak ABT_key_set
#pragma weak ABT_key_get
#pragma weak HG_Get_info

struct name {
    _Atomic uint64_t id; /* with the lowest bit set, so that no id is 0 */
    skopos_rpc_name rpc;
};

/* One side of a call. A handle of Margo has it as long as the handle lives. */
struct call {
    skopos_rpc_span span;
    skopos_rpc_context context; /* of a target: for its own calls */
    struct call *parent;        /* of an origin: the target whose task calls */
    atomic_flag lock;
    atomic_int holders; /* the handle, and the calls below */
    bool is_live, has_responded;
    uint64_t part;     /* begin of the serialization that is going on */
    uint32_t children; /* calls that are going on */
    uint64_t since, covered;
};

static const skopos_rpc_recorder *recorder;
static struct name names[MAX_NAMES];
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static skopos_rpc_name other;
static ABT_key serving = ABT_KEY_NULL; /* the call that a task serves */

static uint64_t now(void) { return skopos_rpc_ticks(recorder); }

/* ---- Names ---- */

static uint64_t base_of(hg_id_t id) { return ((uint64_t)id >> PROVIDER_BITS) << 1 | 1; }

static struct name *place_of(uint64_t base) {
    size_t at = (size_t)((base * 0x9e3779b97f4a7c15u) >> 32) % MAX_NAMES;
    for (size_t steps = 0; steps < MAX_NAMES; steps++, at = (at + 1) % MAX_NAMES) {
        uint64_t found = atomic_load_explicit(&names[at].id, memory_order_acquire);
        if (found == base || found == 0) return &names[at];
    }
    return NULL;
}

static void remember(hg_id_t id, const char *name) {
    pthread_mutex_lock(&names_lock);
    struct name *place = place_of(base_of(id));
    if (place != NULL && atomic_load(&place->id) == 0) {
        place->rpc = skopos_rpc_intern(recorder, name);
        /* Pairs with the acquire in place_of: the name is there before its id. */
        atomic_store_explicit(&place->id, base_of(id), memory_order_release);
    }
    pthread_mutex_unlock(&names_lock);
}

static skopos_rpc_name name_of(hg_id_t id) {
    struct name *place = place_of(base_of(id));
    return place != NULL && atomic_load(&place->id) != 0 ? place->rpc : other;
}

/* ---- Calls ---- */

static void lock(struct call *call) {
    while (atomic_flag_test_and_set_explicit(&call->lock, memory_order_acquire)) {
    }
}

static void unlock(struct call *call) { atomic_flag_clear_explicit(&call->lock, memory_order_release); }

static void release(struct call *call) {
    if (call != NULL && atomic_fetch_sub(&call->holders, 1) == 1) free(call);
}

static struct call *call_of(hg_handle_t handle) {
    margo_monitor_data_t data = {0};
    return margo_get_monitoring_data(handle, &data) == HG_SUCCESS ? data.p : NULL;
}

/* Returns the call of a handle, which may be used for one call after another; NULL without memory. */
static struct call *call_for(hg_handle_t handle) {
    struct call *call = call_of(handle);
    if (call != NULL) return call;
    call = calloc(1, sizeof *call);
    if (call == NULL) return NULL;
    atomic_store(&call->holders, 1);
    margo_monitor_data_t data = {.p = call};
    if (margo_set_monitoring_data(handle, data) == HG_SUCCESS) return call;
    free(call);
    return NULL;
}

static void child_begins(struct call *parent) {
    lock(parent);
    if (parent->children++ == 0) parent->since = now();
    unlock(parent);
}

static void child_ends(struct call *parent) {
    lock(parent);
    if (--parent->children == 0) parent->covered += now() - parent->since;
    unlock(parent);
}

/* Records a call, once. */
static void end(struct call *call, uint32_t status) {
    lock(call);
    bool was_live = call->is_live;
    call->is_live = false;
    uint64_t covered = call->covered + (call->children > 0 ? now() - call->since : 0);
    unlock(call);
    if (!was_live) return;
    if (covered > 0) skopos_rpc_span_exclude(&call->span, skopos_rpc_ticks_to_ns(recorder, covered));
    skopos_rpc_span_end(&call->span, status);
    if (call->parent != NULL) {
        child_ends(call->parent);
        release(call->parent);
        call->parent = NULL;
    }
}

static uint32_t status_of(hg_return_t ret) {
    switch (ret) {
    case HG_SUCCESS: return SKOPOS_RPC_STATUS_OK;
    case HG_CANCELED: return SKOPOS_RPC_STATUS_CANCELLED;
    case HG_TIMEOUT: return SKOPOS_RPC_STATUS_TIMED_OUT;
    default: return SKOPOS_RPC_STATUS_ERROR;
    }
}

/* Measures a part of a call between the two events of a hook. */
static void part(struct call *call, margo_monitor_event_t event, uint32_t interval) {
    if (call == NULL || !call->is_live) return;
    if (event == MARGO_MONITOR_FN_START) call->part = now();
    else if (call->part != 0) skopos_rpc_span_interval_ticks(&call->span, interval, call->part, now());
}

/* ---- Hooks ---- */

static void on_register(void *state, double ts, margo_monitor_event_t event, margo_monitor_register_args_t args) {
    (void)state, (void)ts;
    if (event == MARGO_MONITOR_FN_END && args->ret == HG_SUCCESS && args->name != NULL) remember(args->id, args->name);
}

static void on_forward(void *state, double ts, margo_monitor_event_t event, margo_monitor_forward_args_t args) {
    (void)state, (void)ts;
    if (event == MARGO_MONITOR_FN_END) {
        struct call *call = call_of(args->handle);
        /* No callback follows. */
        if (call != NULL && args->ret != HG_SUCCESS) end(call, status_of(args->ret));
        return;
    }
    const struct hg_info *info = HG_Get_info(args->handle);
    struct call *call = info == NULL ? NULL : call_for(args->handle);
    if (call == NULL) return;
    end(call, SKOPOS_RPC_STATUS_CANCELLED);
    memset(&call->span, 0, sizeof call->span);
    void *task = NULL;
    ABT_key_get(serving, &task);
    call->parent = task;
    call->covered = call->children = call->part = 0;
    if (call->parent != NULL) {
        atomic_fetch_add(&call->parent->holders, 1);
        child_begins(call->parent);
    }
    skopos_rpc_origin(recorder, name_of(info->id), call->parent == NULL ? NULL : &call->parent->context, &call->span);
    call->is_live = true;
}

static void on_set_input(void *state, double ts, margo_monitor_event_t event, margo_monitor_set_input_args_t args) {
    (void)state, (void)ts;
    part(call_of(args->handle), event, SKOPOS_RPC_INPUT_SERIALIZATION);
}

static void on_forward_cb(void *state, double ts, margo_monitor_event_t event, margo_monitor_forward_cb_args_t args) {
    (void)state, (void)ts;
    struct call *call = call_of(args->info->info.forward.handle);
    if (call == NULL) return;
    part(call, event, SKOPOS_RPC_ORIGIN_COMPLETION_CALLBACK);
    if (event == MARGO_MONITOR_FN_END) end(call, status_of(args->info->ret));
}

static void on_rpc_handler(void *state, double ts, margo_monitor_event_t event, margo_monitor_rpc_handler_args_t args) {
    (void)state, (void)ts;
    if (event != MARGO_MONITOR_FN_START) return;
    const struct hg_info *info = HG_Get_info(args->handle);
    struct call *call = info == NULL ? NULL : call_for(args->handle);
    if (call == NULL) return;
    memset(&call->span, 0, sizeof call->span);
    call->covered = call->children = call->part = 0;
    call->has_responded = false;
    skopos_rpc_name rpc = name_of(info->id);
    if (args->parent_rpc_id == 0) {
        skopos_rpc_target(recorder, rpc, NULL, 0, &call->span);
    } else {
        /* The caller served this RPC. Its step is not recorded here, and only gives the callpath. */
        skopos_rpc_span above = {{0}};
        skopos_rpc_context context = {0};
        skopos_rpc_local(recorder, name_of(args->parent_rpc_id), NULL, &above);
        skopos_rpc_span_context(&above, &context);
        skopos_rpc_target(recorder, rpc, &context, 0, &call->span);
    }
    skopos_rpc_span_context(&call->span, &call->context);
    call->is_live = true;
}

static void on_rpc_ult(void *state, double ts, margo_monitor_event_t event, margo_monitor_rpc_ult_args_t args) {
    (void)state, (void)ts;
    struct call *call = call_of(args->handle);
    if (call == NULL) return;
    if (event == MARGO_MONITOR_FN_START) {
        skopos_rpc_span_begin(&call->span);
        ABT_key_set(serving, call);
    } else {
        ABT_key_set(serving, NULL);
        /* An RPC without a response ends here. */
        if (!call->has_responded) end(call, SKOPOS_RPC_STATUS_OK);
    }
}

static void on_get_input(void *state, double ts, margo_monitor_event_t event, margo_monitor_get_input_args_t args) {
    (void)state, (void)ts;
    part(call_of(args->handle), event, SKOPOS_RPC_INPUT_DESERIALIZATION);
}

static void on_respond(void *state, double ts, margo_monitor_event_t event, margo_monitor_respond_args_t args) {
    (void)state, (void)ts;
    struct call *call = call_of(args->handle);
    if (call == NULL || !call->is_live) return;
    if (event == MARGO_MONITOR_FN_START) {
        call->has_responded = true;
        skopos_rpc_span_respond(&call->span);
    } else if (args->ret != HG_SUCCESS) {
        end(call, status_of(args->ret));
    }
}

static void on_set_output(void *state, double ts, margo_monitor_event_t event, margo_monitor_set_output_args_t args) {
    (void)state, (void)ts;
    part(call_of(args->handle), event, SKOPOS_RPC_OUTPUT_SERIALIZATION);
}

static void on_respond_cb(void *state, double ts, margo_monitor_event_t event, margo_monitor_respond_cb_args_t args) {
    (void)state, (void)ts;
    struct call *call = call_of(args->info->info.respond.handle);
    if (call != NULL && event == MARGO_MONITOR_FN_START) end(call, status_of(args->info->ret));
}

static void on_destroy(void *state, double ts, margo_monitor_event_t event, margo_monitor_destroy_args_t args) {
    (void)state, (void)ts;
    if (event != MARGO_MONITOR_FN_START) return;
    struct call *call = call_of(args->handle);
    if (call == NULL) return;
    margo_monitor_data_t none = {0};
    margo_set_monitoring_data(args->handle, none);
    /* A handler may have freed its handle before its response was sent; the end is then here. */
    end(call, call->has_responded ? SKOPOS_RPC_STATUS_OK : SKOPOS_RPC_STATUS_CANCELLED);
    release(call);
}

static void on_finalize(void *state, double ts, margo_monitor_event_t event, margo_monitor_finalize_args_t args) {
    (void)state, (void)ts, (void)args;
    if (event == MARGO_MONITOR_FN_START) skopos_rpc_flush(recorder);
}

static void *initialize(margo_instance_id mid, void *uargs, struct json_object *config) {
    (void)mid, (void)uargs, (void)config;
    return &recorder;
}

static void finalize(void *uargs) { (void)uargs; }

static const char *monitor_name(void) { return "skopos"; }

static struct margo_monitor monitor = {
    .initialize = initialize,
    .finalize = finalize,
    .name = monitor_name,
    .on_register = on_register,
    .on_forward = on_forward,
    .on_set_input = on_set_input,
    .on_forward_cb = on_forward_cb,
    .on_rpc_handler = on_rpc_handler,
    .on_rpc_ult = on_rpc_ult,
    .on_get_input = on_get_input,
    .on_respond = on_respond,
    .on_set_output = on_set_output,
    .on_respond_cb = on_respond_cb,
    .on_destroy = on_destroy,
    .on_finalize = on_finalize,
};

/* ---- Attaching ---- */

/* Reads the version behind `.so.` in the name of the file from which Margo was loaded: libmargo.so.0.18.3. */
static bool loaded_version(int version[2]) {
    const char *text = getenv("SKOPOS_MARGO_VERSION");
    char path[PATH_MAX];
    if (text == NULL) {
        Dl_info info;
        if (dladdr((void *)margo_set_monitoring_data, &info) == 0 || realpath(info.dli_fname, path) == NULL) return false;
        text = strstr(path, ".so.");
        if (text == NULL) return false;
        text += strlen(".so.");
    }
    return sscanf(text, "%d.%d", &version[0], &version[1]) == 2;
}

/* The name of the service: at most 48 characters of those that are allowed. */
static void service_name(char *name, size_t capacity) {
    const char *from = getenv("SKOPOS_MARGO_NAME");
    if (from == NULL || *from == 0) from = program_invocation_short_name;
    size_t length = 0;
    for (; from[length] != 0 && length + 1 < capacity; length++) {
        char c = from[length];
        if (c >= 'A' && c <= 'Z') c = (char)(c - 'A' + 'a');
        bool is_allowed = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
        name[length] = is_allowed ? c : '_';
    }
    name[length] = 0;
}

static int start(void) {
    char name[49];
    service_name(name, sizeof name);
    skopos_rpc_options *options = skopos_rpc_options_new(name);
    skopos_rpc_options_host(options, "margo " MARGO_VERSION);
    const char *folder = getenv("SKOPOS_MARGO_FOLDER");
    if (folder != NULL) skopos_rpc_options_trace_folder(options, folder);
    static const uint32_t seen[] = {
        SKOPOS_RPC_ORIGIN_EXECUTION,      SKOPOS_RPC_INPUT_SERIALIZATION,        SKOPOS_RPC_TARGET_HANDLER,
        SKOPOS_RPC_INPUT_DESERIALIZATION, SKOPOS_RPC_TARGET_EXECUTION_EXCLUSIVE, SKOPOS_RPC_OUTPUT_SERIALIZATION,
        SKOPOS_RPC_TARGET_COMPLETION_CALLBACK, SKOPOS_RPC_ORIGIN_COMPLETION_CALLBACK, SKOPOS_RPC_CHILDREN,
    };
    for (size_t at = 0; at < sizeof seen / sizeof *seen; at++) skopos_rpc_options_sees(options, seen[at]);
    skopos_rpc_options_cannot_see(options, SKOPOS_RPC_TARGET_INTERNAL_RDMA_TRANSFER,
                                  "Mercury transfers the rest of a request before it tells Margo of the request");
    return skopos_rpc_start(options, &recorder);
}

__attribute__((constructor)) static void attach(void) {
    int version[2] = {-1, -1};
    if (&margo_default_monitor == NULL) return;
    if (!loaded_version(version) || version[0] != MARGO_VERSION_MAJOR || version[1] != MARGO_VERSION_MINOR) {
        fprintf(stderr, "skopos: not attached: made for Margo %d.%d, and the loaded one is %d.%d\n", MARGO_VERSION_MAJOR,
                MARGO_VERSION_MINOR, version[0], version[1]);
        return;
    }
    if (start() != SKOPOS_RPC_OK) {
        fprintf(stderr, "skopos: not attached: %s\n", skopos_rpc_last_error());
        return;
    }
    other = skopos_rpc_intern(recorder, "other");
    if (ABT_key_create(NULL, &serving) != ABT_SUCCESS) {
        fprintf(stderr, "skopos: not attached: Argobots has no key\n");
        return;
    }
    margo_default_monitor = &monitor;
    setenv("MARGO_ENABLE_MONITORING", "1", 0);
}
