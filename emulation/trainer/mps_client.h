/* A training as a client of the emulated MPS: what the CUDA library does in a real one. */
#ifndef SODA_TRAIN_MPS_CLIENT_H
#define SODA_TRAIN_MPS_CLIENT_H

#include <stdint.h>
#include <sys/types.h>

#include "../mps/mps.h"
#include "place.h"

struct mps_client {
    int fd;       /* -1 without MPS */
    pid_t server; /* 0 without MPS */
    double percentage;
    uint64_t limit_mib[16]; /* of each of the place's GPUs; 0: none */
};

/* Join the server of the pipe directory, now or never. Without a daemon there, and without the variable that names the
 * directory, the training has its GPUs by itself. 0, or CUDA's error number. */
int mps_join(struct mps_client *client, const struct place *place);

/* CUDA's error number once the server has told one or is gone, else 0. Does not wait. */
int mps_error(const struct mps_client *client);

/* This client's kernel has faulted: the server tells all who share its GPUs. */
void mps_fault(const struct mps_client *client);

const char *cuda_error_text(int error);

#endif
