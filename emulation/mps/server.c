/* nvidia-cuda-mps-server: started by the control daemon, with its socket and its log open. */
#define _GNU_SOURCE
#include "mps.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../gpu/state.h"

#define CLIENTS_MAX 48   /* NVIDIA's limit from Volta on */
#define CONTEXT_MIB 30   /* what a server's own context takes of a GPU */
#define REQUEST_MS 500

struct client {
    int fd;
    pid_t pid;
    uint32_t gpus; /* bit N: /dev/nvidiaN */
    int faulted;
};

static struct client clients[CLIENTS_MAX];
static unsigned count;
static int stopping, multiuser;
static double percentage = 100;
static char limits[256];

static void hold_contexts(void)
{
    struct gpu_use uses[GPU_MAX];
    unsigned used = 0;
    uint32_t all = 0;
    for (unsigned i = 0; i < count; i++)
        all |= clients[i].gpus;
    for (unsigned minor = 0; minor < 32 && used < GPU_MAX; minor++)
        if (all >> minor & 1)
            uses[used++] = (struct gpu_use){.minor = minor, .memory_mib = CONTEXT_MIB};
    if (used == 0)
        gpu_state_clear();
    else
        gpu_state_write(uses, used);
}

static int faulted(void)
{
    for (unsigned i = 0; i < count; i++)
        if (clients[i].faulted)
            return 1;
    return 0;
}

static void leave(unsigned at)
{
    int before = faulted();
    mps_log(MPS_LOG_FD, "Server", "Client %d disconnected", (int)clients[at].pid);
    close(clients[at].fd);
    clients[at] = clients[--count];
    hold_contexts();
    if (before && !faulted())
        mps_log(MPS_LOG_FD, "Server", "Recreated the contexts of the affected GPUs: server status is ACTIVE");
}

/* Everyone who shares a GPU with the fault, or with somebody who does, is told of it; not whose it was. */
static void fault(uint32_t gpus)
{
    for (uint32_t before = 0; before != gpus;) {
        before = gpus;
        for (unsigned i = 0; i < count; i++)
            if (clients[i].gpus & gpus)
                gpus |= clients[i].gpus;
    }
    mps_log(MPS_LOG_FD, "Server", "Fatal GPU exception on GPUs of mask 0x%" PRIx32 ": server status is FAULT", gpus);
    for (unsigned i = 0; i < count; i++)
        if (clients[i].gpus & gpus && !clients[i].faulted) {
            clients[i].faulted = 1;
            mps_log(MPS_LOG_FD, "Server", "Client %d is told of the fatal exception", (int)clients[i].pid);
            mps_say(clients[i].fd, "ERROR %d\n", CUDA_ILLEGAL_ADDRESS);
        }
}

static uint32_t mask(const char *minors)
{
    uint32_t gpus = 0;
    for (char *end; *minors >= '0' && *minors <= '9'; minors = *end == ',' ? end + 1 : end) {
        unsigned long minor = strtoul(minors, &end, 10);
        gpus |= minor < 32 ? UINT32_C(1) << minor : 0;
    }
    return gpus;
}

/* 1 where the connection stays open: its client has joined. */
static int join(int fd, pid_t pid, uid_t uid, const char *minors)
{
    int refusal = !multiuser && uid != geteuid()  ? CUDA_MPS_CONNECTION_FAILED
                  : stopping || faulted()         ? CUDA_MPS_SERVER_NOT_READY
                  : count == CLIENTS_MAX          ? CUDA_MPS_MAX_CLIENTS_REACHED
                                                  : 0;
    if (refusal) {
        mps_say(fd, "ERROR %d\n", refusal);
        return 0;
    }
    clients[count++] = (struct client){.fd = fd, .pid = pid, .gpus = mask(minors)};
    mps_log(MPS_LOG_FD, "Server", "New client %d connected", (int)pid);
    hold_contexts();
    mps_say(fd, "OK %g %s\n", percentage, *limits ? limits : "-");
    return 1;
}

static void terminate(pid_t pid)
{
    for (unsigned i = 0; i < count; i++)
        if (clients[i].pid == pid)
            mps_say(clients[i].fd, "ERROR %d\n", CUDA_MPS_CLIENT_TERMINATED);
}

/* What the daemon asks; its peer is root or the server's own user. */
static void answer(int fd, const char *line)
{
    if (strcmp(line, "STATUS") == 0)
        mps_say(fd, "%s\n", faulted() ? "FAULT" : "ACTIVE");
    else if (strcmp(line, "COUNT") == 0)
        mps_say(fd, "%u\n", count);
    else if (strcmp(line, "CLIENTS") == 0)
        for (unsigned i = 0; i < count; i++)
            mps_say(fd, "%d\n", (int)clients[i].pid);
    else if (strncmp(line, "PERCENTAGE ", 11) == 0)
        percentage = atof(line + 11);
    else if (strcmp(line, "PERCENTAGE") == 0)
        mps_say(fd, "%.1f\n", percentage);
    else if (strncmp(line, "TERMINATE ", 10) == 0)
        terminate((pid_t)atoi(line + 10));
    else if (strcmp(line, "SHUTDOWN") == 0)
        stopping = 1;
}

static void meet(int fd)
{
    char line[MPS_LINE];
    pid_t pid;
    uid_t uid;
    mps_peer(fd, &pid, &uid);
    int stays = 0;
    if (mps_read_line(fd, line, REQUEST_MS) > 0) {
        if (strncmp(line, "JOIN ", 5) == 0)
            stays = join(fd, pid, uid, line + 5);
        else if (uid == 0 || uid == geteuid())
            answer(fd, line);
    }
    if (!stays)
        close(fd);
}

static void hear(unsigned at)
{
    char line[MPS_LINE];
    if (mps_read_line(clients[at].fd, line, REQUEST_MS) < 0)
        leave(at);
    else if (strcmp(line, "FAULT") == 0)
        fault(clients[at].gpus);
}

int main(void)
{
    const char *given = getenv(MPS_PERCENTAGE), *memory = getenv(MPS_MEMORY_LIMIT);
    multiuser = getenv("SODA_MPS_MULTIUSER") != NULL;
    if (given && atof(given) > 0 && atof(given) <= 100)
        percentage = atof(given);
    snprintf(limits, sizeof limits, "%s", memory ? memory : "");
    signal(SIGPIPE, SIG_IGN);
    mps_log(MPS_LOG_FD, "Server", "Start");
    while (!stopping || count) {
        struct pollfd polled[CLIENTS_MAX + 1] = {{.fd = MPS_LISTEN_FD, .events = POLLIN}};
        for (unsigned i = 0; i < count; i++)
            polled[i + 1] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
        poll(polled, count + 1, 1000);
        for (unsigned i = count; i-- > 0;)
            if (polled[i + 1].revents)
                hear(i);
        int fd = polled[0].revents ? accept4(MPS_LISTEN_FD, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (fd >= 0)
            meet(fd);
    }
    gpu_state_clear();
    mps_log(MPS_LOG_FD, "Server", "Exiting");
    return 0;
}
