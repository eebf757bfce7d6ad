/* Where this process runs: its GPUs, its CPU cores and its rank, from Slurm's variables and the kernel. */
#ifndef SODA_TRAIN_PLACE_H
#define SODA_TRAIN_PLACE_H

struct place {
    unsigned gpu_count;
    unsigned gpu[16]; /* N of /dev/nvidiaN */
    unsigned rank, ranks, nodes;
};

/* Exact GPUs: CUDA_VISIBLE_DEVICES counts within the GPUs that Slurm gave (SLURM_STEP_GPUS, SLURM_JOB_GPUS) where Slurm
 * hides the others, and over the whole node where it does not. */
void place_read(struct place *place);

/* Cores that the process may use now: those of its group where an emulated cpuset tree is mounted (SODA_CPUSETS names
 * another place for it). Else, where the node claims no more CPUs than the machine has, its CPU affinity counts too, so that
 * limits set while it runs are felt; else (emulated CPUs) what Slurm gave is believed. */
unsigned place_cores(void);

#endif
