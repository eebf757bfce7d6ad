/* Who holds which emulated GPU: one small text file per process in a directory that every user may write to.
 *
 * The directory plays the part of the driver. A process writes only its own file; readers ignore a file whose process is
 * gone (so a killed job frees its GPUs), whose process id was used again, or whose owner is not the process's owner. */
#ifndef SODA_GPU_STATE_H
#define SODA_GPU_STATE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GPU_MAX 16         /* GPUs of one node */
#define GPU_HOLDERS_MAX 512 /* (process, GPU) pairs of one node */

/* What one process uses of one GPU. */
struct gpu_use {
    unsigned minor;      /* N of /dev/nvidiaN */
    uint64_t memory_mib;
    unsigned util_pct;   /* share of the GPU's time that it uses now */
    unsigned demand_pct; /* what it would use alone */
    unsigned tx_kib_s;   /* PCIe, GPU to host */
    unsigned rx_kib_s;   /* PCIe, host to GPU */
};

struct gpu_holder {
    pid_t pid;
    pid_t server; /* its MPS server; 0: it has a context of its own */
    char model[32];
    struct gpu_use use;
};

/* NVML's numbers. */
enum gpu_mode { GPU_DEFAULT = 0, GPU_PROHIBITED = 2, GPU_EXCLUSIVE_PROCESS = 3 };

#define GPU_RESERVED_MIB 512ULL /* what driver and firmware keep of each GPU */

/* The GPUs that this process may open, and what they are. */
struct gpu_node {
    unsigned count;
    unsigned minor[GPU_MAX]; /* ascending */
    uint32_t mig;            /* bit N: /dev/nvidiaN is in MIG mode, where NVML has no utilisation */
    char name[96];
    uint64_t memory_mib;
    unsigned power_limit_mw;
    enum gpu_mode mode;
    int capability[2]; /* major, minor */
    int server_samples; /* samples of utilisation name an MPS server in place of its clients */
};

/* Directory in use: $SODA_GPU_STATE, else DEFAULT/$SLURMD_NODENAME where that exists (many nodes in one container), else
 * DEFAULT = /run/soda-gpus. */
void gpu_state_dir(char *path, size_t size);

/* Make the directory (mode 1777) if it is missing. 0, or -1 with errno. */
int gpu_state_make_dir(void);

/* What this process writes of itself from now on: its model (a word) and its MPS server. */
void gpu_state_identify(const char *model, pid_t server);

/* Replace this process's file, where every GPU's mode admits it and has the memory left: two processes at the same time
 * cannot both have the last of it. 0; -1 with errno; -2 with errno EBUSY (mode) or ENOMEM. */
int gpu_state_claim(const struct gpu_use *uses, unsigned count);

/* Replace this process's file. Readers see the old or the new one, never half. 0, or -1 with errno. */
int gpu_state_write(const struct gpu_use *uses, unsigned count);

/* Remove this process's file, and files of this user's dead processes. */
void gpu_state_clear(void);

/* All uses by live processes, at most max. Returns how many. */
unsigned gpu_state_read(struct gpu_holder *holders, unsigned max);

/* GPUs that exist: `devices=` of gpus.conf in the state directory, else the /dev/nvidiaN that may be opened. */
void gpu_node_read(struct gpu_node *node);

#endif
