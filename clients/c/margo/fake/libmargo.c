/* A Margo without a network: see margo.h. */
#include <margo-monitoring.h>

#include "fake.h"

static struct margo_monitor none;
struct margo_monitor *margo_default_monitor = &none;
static _Thread_local void *local;

const struct hg_info *HG_Get_info(hg_handle_t handle) { return &handle->info; }

int ABT_key_create(void (*destructor)(void *), ABT_key *key) {
    (void)destructor;
    *key = &local;
    return ABT_SUCCESS;
}

int ABT_key_set(ABT_key key, void *value) {
    (void)key;
    local = value;
    return ABT_SUCCESS;
}

int ABT_key_get(ABT_key key, void **value) {
    (void)key;
    *value = local;
    return ABT_SUCCESS;
}

hg_return_t margo_set_monitoring_data(hg_handle_t handle, margo_monitor_data_t data) {
    handle->data = data;
    return HG_SUCCESS;
}

hg_return_t margo_get_monitoring_data(hg_handle_t handle, margo_monitor_data_t *data) {
    *data = handle->data;
    return HG_SUCCESS;
}
