#include <margo-monitoring.h>

struct fake_handle {
    struct hg_info info;
    margo_monitor_data_t data;
};
