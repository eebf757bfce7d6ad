/* What one device says of the processes on it. */
#include "nvml.h"

#include <time.h>

typedef struct {
    unsigned pid;
    unsigned long long used_memory;
} nvmlProcessInfo_v1_t;
typedef struct {
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance, compute_instance;
} nvmlProcessInfo_v2_t;
typedef struct {
    unsigned pid;
    unsigned long long time_us;
    unsigned sm_util, mem_util, enc_util, dec_util;
} nvmlProcessUtilizationSample_t;

#define NO_INSTANCE 0xFFFFFFFFU
#define SAMPLE_US 166667U /* between two samples: NVML's reference says 1/6 s to 1 s, by product */
#define MAXWELL 5 /* the first generation with samples of processes; major compute capability */

void nvml_read_load(nvmlDevice_t device, struct load *load)
{
    unsigned all = gpu_state_read(load->holders, GPU_HOLDERS_MAX);
    load->count = load->util_pct = load->tx_kib_s = load->rx_kib_s = 0;
    load->memory_mib = 0;
    for (unsigned i = 0; i < all; i++) {
        struct gpu_holder holder = load->holders[i];
        if (holder.use.minor != device->minor)
            continue;
        load->holders[load->count++] = holder;
        load->util_pct += holder.use.util_pct;
        load->tx_kib_s += holder.use.tx_kib_s;
        load->rx_kib_s += holder.use.rx_kib_s;
        load->memory_mib += holder.use.memory_mib;
    }
    if (load->util_pct > 100)
        load->util_pct = 100;
    if (load->memory_mib > nvml_node.memory_mib - GPU_RESERVED_MIB)
        load->memory_mib = nvml_node.memory_mib - GPU_RESERVED_MIB;
}

/* NVML's two-step protocol: a short or missing array yields the count needed and "insufficient size". */
static nvmlReturn_t list_processes(nvmlDevice_t device, unsigned *count, void *infos, int version, int under_mps)
{
    struct load load;
    nvmlReturn_t bad = nvml_check(device, count);
    if (bad)
        return bad;
    if (*count && !infos)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvml_read_load(device, &load);
    unsigned room = *count, found = 0;
    for (unsigned i = 0; i < load.count; i++) {
        if ((load.holders[i].server != 0) != under_mps)
            continue;
        unsigned pid = (unsigned)load.holders[i].pid;
        unsigned long long bytes = load.holders[i].use.memory_mib * MIB;
        if (found >= room)
            ; /* only counted */
        else if (version == 1)
            ((nvmlProcessInfo_v1_t *)infos)[found] = (nvmlProcessInfo_v1_t){pid, bytes};
        else
            ((nvmlProcessInfo_v2_t *)infos)[found] = (nvmlProcessInfo_v2_t){pid, bytes, NO_INSTANCE, NO_INSTANCE};
        found++;
    }
    *count = found;
    return room < found ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_v1_t *infos)
{
    return list_processes(device, count, infos, 1, 0);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_v2_t *infos)
{
    return list_processes(device, count, infos, 2, 0);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                            nvmlProcessInfo_v2_t *infos)
{
    return list_processes(device, count, infos, 3, 0);
}

/* Clients of an MPS server; the server itself is among the compute processes. */
EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                               nvmlProcessInfo_v2_t *infos)
{
    return list_processes(device, count, infos, 3, 1);
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count, void *infos)
{
    (void)infos;
    nvmlReturn_t bad = nvml_check(device, count);
    if (!bad)
        *count = 0;
    return bad;
}

/* Whom a sample names: drivers differ in that under MPS. */
static pid_t sampled_pid(const struct gpu_holder *holder)
{
    return nvml_node.server_samples && holder->server ? holder->server : holder->pid;
}

/* One sample of each process that uses the GPU now, dated by the newest of the driver's moments of sampling. */
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                    unsigned *count, unsigned long long last_seen_us)
{
    struct load load;
    struct timespec now;
    nvmlReturn_t bad = nvml_check(device, count);
    if (bad)
        return bad;
    if (nvml_in_mig_mode(device) || nvml_node.capability[0] < MAXWELL)
        return NVML_ERROR_NOT_SUPPORTED;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long now_us = (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
    now_us -= now_us % SAMPLE_US;
    nvml_read_load(device, &load);
    unsigned room = samples ? *count : 0, found = 0;
    for (unsigned i = 0; i < load.count && last_seen_us < now_us; i++) {
        unsigned util = load.holders[i].use.util_pct;
        if (util == 0)
            continue;
        if (found < room)
            samples[found] = (nvmlProcessUtilizationSample_t){
                .pid = (unsigned)sampled_pid(&load.holders[i]), .time_us = now_us, .sm_util = util, .mem_util = util / 2};
        found++;
    }
    *count = found;
    if (found == 0)
        return NVML_ERROR_NOT_FOUND;
    return room < found ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
