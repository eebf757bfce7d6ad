/* What one device says of itself. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;
typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;
typedef struct {
    unsigned version, sensor;
    int temperature;
} nvmlTemperature_v1_t;

#define IDLE_MW 52000U
#define MEMORY_V2 0x02000028U
#define TEMPERATURE_V1 0x0100000CU

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length)
{
    nvmlReturn_t bad = nvml_check(device, name);
    return bad ? bad : nvml_copy_text(nvml_node.name, name, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length)
{
    nvmlReturn_t bad = nvml_check(device, uuid);
    return bad ? bad : nvml_copy_text(device->uuid, uuid, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    nvmlReturn_t bad = nvml_check(device, pci);
    if (bad)
        return bad;
    *pci = (nvmlPciInfo_t){.bus = (device->minor + 1) * 0x10 & 0xff, .pci_device_id = 0x20B010DE};
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", device->bus_id);
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%.15s", device->bus_id + 4);
    return NVML_SUCCESS;
}

/* A call with one unsigned result, whose value may use `device` and, where it reads the load, `load`. */
#define UNSIGNED_CALL(function, value)                                                                                 \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned *result)                                                \
    {                                                                                                                  \
        nvmlReturn_t bad = nvml_check(device, result);                                                                      \
        if (!bad)                                                                                                      \
            *result = (value);                                                                                         \
        return bad;                                                                                                    \
    }

static unsigned power_mw(nvmlDevice_t device)
{
    struct load load;
    nvml_read_load(device, &load);
    return IDLE_MW + (unsigned)((nvml_node.power_limit_mw - IDLE_MW) / 100ULL * load.util_pct * 85 / 100);
}

static unsigned temperature_c(nvmlDevice_t device)
{
    struct load load;
    nvml_read_load(device, &load);
    return 32 + load.util_pct * 2 / 5;
}

UNSIGNED_CALL(nvmlDeviceGetIndex, device->index)
UNSIGNED_CALL(nvmlDeviceGetMinorNumber, device->minor)
UNSIGNED_CALL(nvmlDeviceGetPowerManagementLimit, nvml_node.power_limit_mw)
UNSIGNED_CALL(nvmlDeviceGetPowerManagementDefaultLimit, nvml_node.power_limit_mw)
UNSIGNED_CALL(nvmlDeviceGetEnforcedPowerLimit, nvml_node.power_limit_mw)
UNSIGNED_CALL(nvmlDeviceGetPowerUsage, power_mw(device))
UNSIGNED_CALL(nvmlDeviceGetComputeMode, nvml_node.mode)
UNSIGNED_CALL(nvmlDeviceGetPersistenceMode, 1)

int nvml_in_mig_mode(nvmlDevice_t device) { return device->minor < 32 && (nvml_node.mig >> device->minor & 1); }

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending)
{
    nvmlReturn_t bad = nvml_check(device, pending ? current : NULL);
    if (!bad)
        *current = *pending = (unsigned)nvml_in_mig_mode(device);
    return bad;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    nvmlReturn_t bad = nvml_check(device, minor ? major : NULL);
    if (!bad) {
        *major = nvml_node.capability[0];
        *minor = nvml_node.capability[1];
    }
    return bad;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *result)
{
    nvmlReturn_t bad = nvml_check(device, result);
    if (bad)
        return bad;
    if (sensor != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *result = temperature_c(device);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *result)
{
    nvmlReturn_t bad = nvml_check(device, result);
    if (bad)
        return bad;
    if (result->version != TEMPERATURE_V1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (result->sensor != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    result->temperature = (int)temperature_c(device);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    struct load load;
    nvmlReturn_t bad = nvml_check(device, memory);
    if (bad)
        return bad;
    nvml_read_load(device, &load);
    memory->total = nvml_node.memory_mib * MIB;
    memory->used = (GPU_RESERVED_MIB + load.memory_mib) * MIB; /* version 1 counts the driver's part as used */
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    struct load load;
    nvmlReturn_t bad = nvml_check(device, memory);
    if (bad)
        return bad;
    if (memory->version != MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvml_read_load(device, &load);
    memory->total = nvml_node.memory_mib * MIB;
    memory->reserved = GPU_RESERVED_MIB * MIB;
    memory->used = load.memory_mib * MIB;
    memory->free = memory->total - memory->reserved - memory->used;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    struct load load;
    nvmlReturn_t bad = nvml_check(device, rates);
    if (bad)
        return bad;
    if (nvml_in_mig_mode(device)) /* as NVML's reference says of this call */
        return NVML_ERROR_NOT_SUPPORTED;
    nvml_read_load(device, &load);
    rates->gpu = load.util_pct;
    rates->memory = load.util_pct / 2; /* share of time that device memory was read or written */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned counter, unsigned *kib_s)
{
    struct load load;
    nvmlReturn_t bad = nvml_check(device, kib_s);
    if (bad)
        return bad;
    if (counter > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvml_read_load(device, &load);
    *kib_s = counter == 0 ? load.tx_kib_s : load.rx_kib_s;
    return NVML_SUCCESS;
}
