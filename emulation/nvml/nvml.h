/* libnvidia-ml.so.1 over emulated GPUs: the part of NVML that monitoring calls, for the unmodified nvidia-ml-py.
 *
 * Written from NVML's public API reference: names, argument order, structure layouts and error codes are NVIDIA's
 * interface; what stands behind them is gpu/state.h. */
#ifndef SODA_NVML_H
#define SODA_NVML_H

#include "../gpu/state.h"

#define EXPORT __attribute__((visibility("default")))

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

struct device {
    unsigned index, minor;
    char uuid[48], bus_id[32];
};
typedef struct device *nvmlDevice_t;

extern struct gpu_node nvml_node;

/* Between nvmlInit and the last nvmlShutdown. */
int nvml_initialised(void);

/* Every call on a device begins with this: initialised, the handle is one of ours, the result has a place to go. */
nvmlReturn_t nvml_check(nvmlDevice_t device, const void *result);

/* Copy with its terminator, or NVML_ERROR_INSUFFICIENT_SIZE. */
nvmlReturn_t nvml_copy_text(const char *text, char *buffer, unsigned length);

#define MIB (1024ULL * 1024ULL)

/* All uses of one GPU: sums over its processes, and the list of them. */
struct load {
    unsigned count, util_pct, tx_kib_s, rx_kib_s;
    unsigned long long memory_mib;
    struct gpu_holder holders[GPU_HOLDERS_MAX];
};

void nvml_read_load(nvmlDevice_t device, struct load *load);

int nvml_in_mig_mode(nvmlDevice_t device);

#endif
