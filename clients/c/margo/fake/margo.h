/* The parts of Margo, Mercury and Argobots that a monitor touches, with their names, for tests where Mochi is not there. */
#ifndef FAKE_MARGO_H
#define FAKE_MARGO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t hg_id_t;
typedef enum { HG_SUCCESS, HG_TIMEOUT = 4, HG_OTHER_ERROR = 5, HG_CANCELED = 24 } hg_return_t;
typedef struct fake_handle *hg_handle_t;
struct hg_info {
    hg_id_t id;
};
struct hg_cb_info {
    union {
        struct {
            hg_handle_t handle;
        } forward, respond;
    } info;
    hg_return_t ret;
};
const struct hg_info *HG_Get_info(hg_handle_t handle);

typedef void *ABT_key;
typedef void *ABT_pool;
#define ABT_KEY_NULL ((ABT_key)0)
#define ABT_SUCCESS 0
int ABT_key_create(void (*destructor)(void *), ABT_key *key);
int ABT_key_set(ABT_key key, void *value);
int ABT_key_get(ABT_key key, void **value);

typedef struct margo_instance *margo_instance_id;
typedef struct margo_request_struct *margo_request;

#endif
