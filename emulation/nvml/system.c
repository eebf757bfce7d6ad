/* The library itself, the versions, and the ways to find a device. */
#include "nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned references;
struct gpu_node nvml_node;
static struct device devices[GPU_MAX];

/* The same GPU of the same node has the same UUID in every process and after every restart. */
static void name_device(struct device *device, unsigned index)
{
    char seed[512], host[128] = "", dir[256];
    unsigned long long hash[2] = {14695981039346656037ULL, 1099511628211ULL};
    gethostname(host, sizeof host - 1);
    gpu_state_dir(dir, sizeof dir);
    snprintf(seed, sizeof seed, "%s %s %u", host, dir, nvml_node.minor[index]);
    for (const char *c = seed; *c; c++) { /* FNV-1a, once plainly and once over the growing first hash */
        hash[0] = (hash[0] ^ (unsigned char)*c) * 1099511628211ULL;
        hash[1] = (hash[1] ^ hash[0]) * 1099511628211ULL;
    }
    device->index = index;
    device->minor = nvml_node.minor[index];
    snprintf(device->uuid, sizeof device->uuid, "GPU-%08x-%04x-%04x-%04x-%012llx", (unsigned)(hash[0] >> 32),
             (unsigned)(hash[0] >> 16) & 0xffff, (unsigned)hash[0] & 0xffff, (unsigned)(hash[1] >> 48),
             hash[1] & 0xffffffffffffULL);
    snprintf(device->bus_id, sizeof device->bus_id, "00000000:%02X:00.0", (nvml_node.minor[index] + 1) * 0x10 & 0xff);
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    nvmlReturn_t result = NVML_SUCCESS;
    pthread_mutex_lock(&lock);
    if (references == 0) {
        if (geteuid() == 0) /* as the real one loads its driver */
            gpu_state_make_dir();
        gpu_node_read(&nvml_node);
        for (unsigned i = 0; i < nvml_node.count; i++)
            name_device(&devices[i], i);
        if (nvml_node.count == 0)
            result = NVML_ERROR_DRIVER_NOT_LOADED;
    }
    if (result == NVML_SUCCESS)
        references++;
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = references ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (references)
        references--;
    pthread_mutex_unlock(&lock);
    return result;
}

int nvml_initialised(void)
{
    pthread_mutex_lock(&lock);
    int ready = references > 0;
    pthread_mutex_unlock(&lock);
    return ready;
}

nvmlReturn_t nvml_check(nvmlDevice_t device, const void *result)
{
    if (!nvml_initialised())
        return NVML_ERROR_UNINITIALIZED;
    if (device < devices || device >= devices + nvml_node.count || !result)
        return NVML_ERROR_INVALID_ARGUMENT;
    return NVML_SUCCESS;
}

nvmlReturn_t nvml_copy_text(const char *text, char *buffer, unsigned length)
{
    if (!buffer)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument Version Mismatch";
    default: return "Unknown Error";
    }
}

static nvmlReturn_t system_text(const char *text, char *buffer, unsigned length)
{
    return nvml_initialised() ? nvml_copy_text(text, buffer, length) : NVML_ERROR_UNINITIALIZED;
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    return system_text("550.54.15", version, length);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    return system_text("12.550.54.15", version, length);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = 12040;
    return NVML_SUCCESS; /* the real one needs no initialisation for this */
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    char path[64], target[1024];
    if (!nvml_initialised())
        return NVML_ERROR_UNINITIALIZED;
    if (!name || !length)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    size_t got = file ? fread(target, 1, sizeof target - 1, file) : 0;
    if (file)
        fclose(file);
    if (!got)
        return NVML_ERROR_NOT_FOUND;
    target[got] = '\0';
    return nvml_copy_text(target, name, length);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    if (!nvml_initialised())
        return NVML_ERROR_UNINITIALIZED;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = nvml_node.count;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    if (!nvml_initialised())
        return NVML_ERROR_UNINITIALIZED;
    if (!device || index >= nvml_node.count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = &devices[index];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    if (!nvml_initialised())
        return NVML_ERROR_UNINITIALIZED;
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < nvml_node.count; i++)
        if (strcmp(devices[i].uuid, uuid) == 0) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    if (!nvml_initialised())
        return NVML_ERROR_UNINITIALIZED;
    if (!bus_id || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < nvml_node.count; i++)
        if (strcmp(devices[i].bus_id, bus_id) == 0 || strcmp(devices[i].bus_id + 4, bus_id) == 0) {
            *device = &devices[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

