#define _GNU_SOURCE
#include "place.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../gpu/state.h"

#define CPUSETS "/run/soda-cgroup/cpuset"

static unsigned number(const char *name, unsigned fallback)
{
    const char *text = getenv(name);
    return text && *text >= '0' && *text <= '9' ? (unsigned)strtoul(text, NULL, 10) : fallback;
}

/* "0,2" or "0-2,5" to numbers; 0 of them where the variable is missing or holds no list of indices. */
static unsigned indices(const char *text, unsigned *out)
{
    unsigned count = 0;
    while (text && *text >= '0' && *text <= '9') {
        char *end;
        unsigned first = (unsigned)strtoul(text, &end, 10), last = first;
        if (*end == '-')
            last = (unsigned)strtoul(end + 1, &end, 10);
        for (unsigned i = first; i <= last && count < GPU_MAX; i++)
            out[count++] = i;
        text = *end == ',' ? end + 1 : end;
    }
    return count;
}

static int contains(const unsigned *list, unsigned count, unsigned value)
{
    for (unsigned i = 0; i < count; i++)
        if (list[i] == value)
            return 1;
    return 0;
}

static void read_gpus(struct place *place)
{
    unsigned given[GPU_MAX], visible[GPU_MAX];
    const char *step = getenv("SLURM_STEP_GPUS");
    unsigned given_count = indices(step && *step ? step : getenv("SLURM_JOB_GPUS"), given);
    unsigned visible_count = indices(getenv("CUDA_VISIBLE_DEVICES"), visible);
    if (given_count == 0) { /* no GPUs by Slurm's own count: the numbers are those of the devices that can be opened */
        struct gpu_node node;
        gpu_node_read(&node);
        given_count = node.count;
        memcpy(given, node.minor, sizeof given);
        if (!getenv("CUDA_VISIBLE_DEVICES"))
            return;
    } else if (visible_count == 0) {
        visible_count = given_count;
        memcpy(visible, given, sizeof visible);
    }
    int absolute = 1;
    for (unsigned i = 0; i < visible_count; i++)
        absolute &= contains(given, given_count, visible[i]);
    for (unsigned i = 0; i < visible_count; i++)
        if (absolute || visible[i] < given_count)
            place->gpu[place->gpu_count++] = absolute ? visible[i] : given[visible[i]];
}

void place_read(struct place *place)
{
    *place = (struct place){.ranks = number("SLURM_STEP_NUM_TASKS", 1), .nodes = number("SLURM_STEP_NUM_NODES", 1)};
    place->rank = place->ranks > 1 ? number("SLURM_PROCID", 0) : 0;
    read_gpus(place);
}

/* CPUs of a list such as "0-3,8". */
static unsigned listed(const char *text)
{
    unsigned count = 0;
    while (*text >= '0' && *text <= '9') {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        count += (unsigned)(last - first + 1);
        text = *end == ',' ? end + 1 : end;
    }
    return count;
}

static int read_file(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* Cores of our group in the emulated cpuset tree (see ../cpuset), or 0 where there is none: asked anew every 0.2 s. */
static unsigned emulated_cores(void)
{
    static char path[PATH_MAX];
    static unsigned cores;
    static struct timespec asked;
    struct timespec now;
    char text[4096];
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (asked.tv_sec && (double)(now.tv_sec - asked.tv_sec) + (double)(now.tv_nsec - asked.tv_nsec) / 1e9 < 0.2)
        return cores;
    asked = now;
    if (!*path) {
        const char *root = getenv("SODA_CPUSETS");
        char *own = read_file("/proc/self/cgroup", text, sizeof text) ? strstr(text, ":cpuset:") : NULL;
        if (own)
            snprintf(path, sizeof path, "%s%.*s/cpuset.cpus", root ? root : CPUSETS, (int)strcspn(own + 8, "\n"), own + 8);
    }
    cores = *path && read_file(path, text, sizeof text) ? listed(text) : 0;
    return cores;
}

unsigned place_cores(void)
{
    unsigned emulated = emulated_cores();
    if (emulated)
        return emulated;
    cpu_set_t set;
    unsigned online = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    unsigned allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : online;
    unsigned given = number("SLURM_CPUS_ON_NODE", 0);
    if (given == 0)
        return allowed;
    return given <= online && allowed < given ? allowed : given;
}
