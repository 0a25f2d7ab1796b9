/* The monitoring interface of Margo, as far as the plugin uses it. Members that it does not use are left out, so a plugin
 * that was made with this header works with the fake alone. */
#ifndef FAKE_MARGO_MONITORING_H
#define FAKE_MARGO_MONITORING_H

#include <margo.h>

typedef union {
    int64_t i;
    double f;
    void *p;
} margo_monitor_data_t;

typedef enum { MARGO_MONITOR_FN_START, MARGO_MONITOR_FN_END, MARGO_MONITOR_POINT } margo_monitor_event_t;

struct json_object;

/* Arguments of a hook on a handle. */
#define FAKE_ARGS(hook, members)        \
    struct margo_monitor_##hook##_args { \
        margo_monitor_data_t uctx;      \
        members                         \
        hg_return_t ret;                \
    };                                  \
    typedef struct margo_monitor_##hook##_args *margo_monitor_##hook##_args_t;

FAKE_ARGS(register, const char *name; hg_id_t id;)
FAKE_ARGS(forward, uint16_t provider_id; hg_handle_t handle;)
FAKE_ARGS(set_input, hg_handle_t handle;)
FAKE_ARGS(rpc_handler, hg_handle_t handle; hg_id_t parent_rpc_id;)
FAKE_ARGS(rpc_ult, hg_handle_t handle;)
FAKE_ARGS(get_input, hg_handle_t handle;)
FAKE_ARGS(respond, hg_handle_t handle;)
FAKE_ARGS(set_output, hg_handle_t handle;)
FAKE_ARGS(destroy, hg_handle_t handle;)
FAKE_ARGS(finalize, )
FAKE_ARGS(cb, const struct hg_cb_info *info;)
typedef struct margo_monitor_cb_args *margo_monitor_forward_cb_args_t;
typedef struct margo_monitor_cb_args *margo_monitor_respond_cb_args_t;

#define FAKE_HOOK(hook) void (*on_##hook)(void *, double, margo_monitor_event_t, margo_monitor_##hook##_args_t);

struct margo_monitor {
    void *uargs;
    void *(*initialize)(margo_instance_id mid, void *uargs, struct json_object *config);
    void (*finalize)(void *uargs);
    const char *(*name)(void);
    FAKE_HOOK(register)
    FAKE_HOOK(forward)
    FAKE_HOOK(forward_cb)
    FAKE_HOOK(respond)
    FAKE_HOOK(respond_cb)
    FAKE_HOOK(destroy)
    FAKE_HOOK(rpc_handler)
    FAKE_HOOK(rpc_ult)
    FAKE_HOOK(set_input)
    FAKE_HOOK(set_output)
    FAKE_HOOK(get_input)
    FAKE_HOOK(finalize)
};

extern struct margo_monitor *margo_default_monitor;
hg_return_t margo_set_monitoring_data(hg_handle_t handle, margo_monitor_data_t data);
hg_return_t margo_get_monitoring_data(hg_handle_t handle, margo_monitor_data_t *data);

#endif
