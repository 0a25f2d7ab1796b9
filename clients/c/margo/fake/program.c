/* A program that was linked with Margo only, and knows nothing of Skopos: it serves `relay`, whose handler calls `put`
 * twice, the second time without success; and it serves `put`. The hooks come in the order in which Margo calls them. */
#include <margo-monitoring.h>
#include <stdlib.h>
#include <time.h>

#include "fake.h"

enum { RELAY = 0x10000, PUT = 0x20000, PROVIDER = 7 };

#define HOOK(hook, event, ...)                                                         \
    do {                                                                               \
        struct margo_monitor_##hook##_args args = {__VA_ARGS__};                       \
        if (margo_default_monitor->on_##hook)                                          \
            margo_default_monitor->on_##hook(NULL, 0, MARGO_MONITOR_FN_##event, &args); \
    } while (0)
#define BOTH(hook, ...) \
    do {                \
        HOOK(hook, START, __VA_ARGS__); \
        work();         \
        HOOK(hook, END, __VA_ARGS__);   \
    } while (0)

static void work(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

static void callback(hg_handle_t handle, hg_return_t ret, int is_forward) {
    struct hg_cb_info info = {.info.forward.handle = handle, .ret = ret};
    struct margo_monitor_cb_args args = {.info = &info};
    struct margo_monitor *m = margo_default_monitor;
    void (*hook)(void *, double, margo_monitor_event_t, struct margo_monitor_cb_args *) =
        is_forward ? m->on_forward_cb : m->on_respond_cb;
    if (!hook) return;
    hook(NULL, 0, MARGO_MONITOR_FN_START, &args);
    work();
    hook(NULL, 0, MARGO_MONITOR_FN_END, &args);
}

static void forward(struct fake_handle *handle, hg_return_t ret) {
    HOOK(forward, START, .handle = handle, .provider_id = PROVIDER);
    BOTH(set_input, .handle = handle);
    HOOK(forward, END, .handle = handle, .provider_id = PROVIDER);
    work();
    callback(handle, ret, 1);
}

static void serve(hg_id_t id, hg_id_t parent, int calls) {
    struct fake_handle handle = {.info.id = id | PROVIDER}, below = {.info.id = PUT};
    HOOK(rpc_handler, START, .handle = &handle, .parent_rpc_id = parent);
    work();
    HOOK(rpc_ult, START, .handle = &handle);
    BOTH(get_input, .handle = &handle);
    for (int call = 0; call < calls; call++) forward(&below, call == 0 ? HG_SUCCESS : HG_TIMEOUT);
    HOOK(respond, START, .handle = &handle);
    BOTH(set_output, .handle = &handle);
    HOOK(respond, END, .handle = &handle);
    HOOK(rpc_ult, END, .handle = &handle);
    callback(&handle, HG_SUCCESS, 0);
    HOOK(destroy, START, .handle = &handle);
    if (calls > 0) HOOK(destroy, START, .handle = &below);
}

int main(void) {
    if (margo_default_monitor->on_register == NULL) return 3;
    if (getenv("MARGO_ENABLE_MONITORING") == NULL) return 4;
    HOOK(register, END, .name = "relay", .id = RELAY);
    HOOK(register, END, .name = "put", .id = PUT);
    serve(RELAY, 0, 2);
    serve(PUT, RELAY, 0);
    struct fake_handle lost = {.info.id = PUT};
    HOOK(forward, START, .handle = &lost);
    HOOK(forward, END, .handle = &lost);
    HOOK(destroy, START, .handle = &lost);
    HOOK(finalize, START, .ret = HG_SUCCESS);
    return 0;
}
