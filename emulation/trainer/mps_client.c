#define _GNU_SOURCE
#include "mps_client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_MS 600000 /* a client waits while another user's server still has clients */

/* "0=4G,1=512M": the smaller of what was known and what is said here of each of the process's devices. */
static void limit_memory(struct mps_client *client, const char *text)
{
    for (char *end; text && *text >= '0' && *text <= '9'; text = *end ? end + 1 : end) {
        unsigned long device = strtoul(text, &end, 10);
        if (*end != '=')
            return;
        uint64_t mib = strtoull(end + 1, &end, 10);
        if (*end == 'G')
            mib *= 1024;
        end += strcspn(end, ",");
        if (device < 16 && mib && (!client->limit_mib[device] || mib < client->limit_mib[device]))
            client->limit_mib[device] = mib;
    }
}

static void limit_threads(struct mps_client *client, const char *text)
{
    double value = text ? atof(text) : 0;
    if (value > 0 && value < client->percentage)
        client->percentage = value;
}

/* The answer to one line, or CUDA's error number. */
static int ask(int fd, const char *question, char answer[MPS_LINE])
{
    int number = CUDA_MPS_CONNECTION_FAILED;
    if (fd < 0 || mps_say(fd, "%s\n", question) != 0 || mps_read_line(fd, answer, ANSWER_MS) < 0)
        return number;
    return sscanf(answer, "ERROR %d", &number) == 1 ? number : 0;
}

static int meet_server(struct mps_client *client, const char *name, const struct place *place)
{
    char question[MPS_LINE] = "JOIN ", answer[MPS_LINE], limits[MPS_LINE] = "";
    for (unsigned i = 0; i < place->gpu_count; i++)
        snprintf(question + strlen(question), sizeof question - strlen(question), "%s%u", i ? "," : "", place->gpu[i]);
    client->fd = mps_connect(name);
    int error = ask(client->fd, question, answer);
    if (error)
        return error;
    client->percentage = 100;
    sscanf(answer, "OK %lf %511s", &client->percentage, limits);
    limit_threads(client, getenv(MPS_PERCENTAGE));
    limit_memory(client, limits);
    limit_memory(client, getenv(MPS_MEMORY_LIMIT));
    return 0;
}

int mps_join(struct mps_client *client, const struct place *place)
{
    char answer[MPS_LINE], name[32];
    int server = 0;
    *client = (struct mps_client){.fd = -1, .percentage = 100};
    if (place->gpu_count == 0)
        return 0;
    int control = mps_connect("control");
    if (control < 0)
        return errno == ENOENT || !getenv("CUDA_MPS_PIPE_DIRECTORY") ? 0 : CUDA_MPS_CONNECTION_FAILED;
    int error = ask(control, "CLIENT", answer);
    close(control);
    if (!error && sscanf(answer, "SERVER %d %31s", &server, name) != 2)
        error = CUDA_MPS_CONNECTION_FAILED;
    if (!error)
        error = meet_server(client, name, place);
    client->server = error ? 0 : server;
    return error;
}

int mps_error(const struct mps_client *client)
{
    char line[MPS_LINE];
    int number = CUDA_MPS_RPC_FAILURE;
    struct pollfd heard = {.fd = client->fd, .events = POLLIN};
    if (client->fd < 0 || poll(&heard, 1, 0) != 1)
        return 0;
    if (mps_read_line(client->fd, line, 100) > 0)
        sscanf(line, "ERROR %d", &number);
    return number;
}

void mps_fault(const struct mps_client *client)
{
    if (client->fd >= 0)
        mps_say(client->fd, "FAULT\n");
}

const char *cuda_error_text(int error)
{
    switch (error) {
    case CUDA_OUT_OF_MEMORY: return "out of memory";
    case CUDA_DEVICES_UNAVAILABLE: return "all CUDA-capable devices are busy or unavailable";
    case CUDA_ILLEGAL_ADDRESS: return "an illegal memory access was encountered";
    case CUDA_MPS_CONNECTION_FAILED: return "MPS client failed to connect to the MPS control daemon or the MPS server";
    case CUDA_MPS_RPC_FAILURE: return "the remote procedural call between the MPS server and the MPS client failed";
    case CUDA_MPS_SERVER_NOT_READY: return "MPS server is not ready to accept new MPS client requests";
    case CUDA_MPS_MAX_CLIENTS_REACHED: return "the hardware resources required to create MPS client have been exhausted";
    case CUDA_MPS_CLIENT_TERMINATED: return "the MPS client has been terminated by the server";
    default: return "unknown error";
    }
}
