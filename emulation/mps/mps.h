/* What the control daemon, its servers and their clients share: where they meet, and how they talk.
 *
 * NVIDIA's programs talk a protocol of their own over sockets of these names; this one is made up: one line a request.
 * To the daemon's `control`: CLIENT, answered "SERVER PID SOCKET" or "ERROR NUMBER". To `control_privileged`: one command,
 * answered until the end of the connection. To a server: "JOIN MINOR,MINOR", answered "OK PERCENT LIMITS" or
 * "ERROR NUMBER"; the client keeps that connection for as long as it lives, says "FAULT" when its kernel faults, and hears
 * "ERROR NUMBER" when it is to end. */
#ifndef SODA_MPS_H
#define SODA_MPS_H

#include <stddef.h>
#include <sys/types.h>

/* CUDA's numbers. */
enum {
    CUDA_OUT_OF_MEMORY = 2,
    CUDA_DEVICES_UNAVAILABLE = 46,
    CUDA_ILLEGAL_ADDRESS = 700,
    CUDA_MPS_CONNECTION_FAILED = 805,
    CUDA_MPS_RPC_FAILURE = 806,
    CUDA_MPS_SERVER_NOT_READY = 807,
    CUDA_MPS_MAX_CLIENTS_REACHED = 808,
    CUDA_MPS_CLIENT_TERMINATED = 810,
};

#define MPS_LINE 512
#define MPS_LISTEN_FD 3 /* a server's, open when it starts */
#define MPS_LOG_FD 4
#define MPS_PERCENTAGE "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define MPS_MEMORY_LIMIT "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"

/* CUDA_MPS_PIPE_DIRECTORY, or where MPS looks without it. */
const char *mps_directory(void);

/* Sockets in the pipe directory, however long its path is. -1 with errno. */
int mps_connect(const char *name);
int mps_listen(const char *name, mode_t mode);

/* One line without its end, read with a limit of time. Its length; -1 where there is none. */
int mps_read_line(int fd, char line[MPS_LINE], int limit_ms);

/* 0, or -1 where the other end is gone. */
int mps_say(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Who is at the other end. */
void mps_peer(int fd, pid_t *pid, uid_t *uid);

/* "[2026-01-31 12:00:00.000 Control  123] text" */
void mps_log(int fd, const char *who, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
