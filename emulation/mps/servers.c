#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon.h"

#define SERVERS_MAX 16
#define ANSWER_MS 1000

int daemon_log = -1, daemon_multiuser, daemon_quitting;
static struct server servers[SERVERS_MAX];
static unsigned count, started;
static double quit_by_s = -1;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

struct server *servers_of(uid_t uid)
{
    for (unsigned i = 0; i < count; i++)
        if (daemon_multiuser || servers[i].uid == uid)
            return &servers[i];
    return NULL;
}

struct server *servers_by_pid(pid_t pid)
{
    for (unsigned i = 0; i < count; i++)
        if (servers[i].pid == pid)
            return &servers[i];
    return NULL;
}

struct server *servers_next(unsigned *at) { return *at < count ? &servers[(*at)++] : NULL; }

int servers_any(void) { return count > 0; }

static void become_server(uid_t uid, int listening, int log)
{
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 32);
    program[length > 0 ? length : 0] = '\0';
    char *name = strrchr(program, '/');
    strcpy(name ? name + 1 : program, "nvidia-cuda-mps-server"); /* it lies beside the daemon */
    int high_listening = fcntl(listening, F_DUPFD, 16), high_log = fcntl(log, F_DUPFD, 16);
    dup2(high_listening, MPS_LISTEN_FD);
    dup2(high_log, MPS_LOG_FD);
    close_range(MPS_LOG_FD + 1, ~0U, 0);
    if (daemon_multiuser)
        setenv("SODA_MPS_MULTIUSER", "1", 1);
    else if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setuid(uid) != 0))
        _exit(1);
    execl(program, "nvidia-cuda-mps-server", (char *)NULL);
    _exit(1);
}

struct server *servers_start(uid_t uid)
{
    const char *logs = getenv("CUDA_MPS_LOG_DIRECTORY");
    char path[PATH_MAX];
    struct server *server = &servers[count];
    if (count && !daemon_multiuser)
        return NULL;
    snprintf(server->socket, sizeof server->socket, "server.%u", ++started);
    snprintf(path, sizeof path, "%s/server.log", logs && *logs ? logs : "/var/log/nvidia-mps");
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
    int listening = mps_listen(server->socket, 0666);
    pid_t pid = log < 0 || listening < 0 ? -1 : fork();
    if (pid == 0)
        become_server(uid, listening, log);
    if (log >= 0)
        close(log);
    if (listening >= 0)
        close(listening);
    if (pid < 0)
        return NULL;
    server->pid = pid;
    server->stopping = 0;
    server->uid = daemon_multiuser ? geteuid() : uid;
    count++;
    mps_log(daemon_log, "Control", "Starting new server %d for user %u", (int)pid, (unsigned)uid);
    return server;
}

void servers_stop_when_idle(void)
{
    char answer[8];
    for (unsigned i = 0; i < count; i++)
        if (!servers[i].stopping) {
            servers[i].stopping = 1;
            servers_ask(&servers[i], "SHUTDOWN", answer, sizeof answer);
        }
}

void servers_reap(void)
{
    for (unsigned i = 0; i < count;) {
        int status;
        if (waitpid(servers[i].pid, &status, WNOHANG) != servers[i].pid) {
            i++;
            continue;
        }
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", mps_directory(), servers[i].socket);
        unlink(path);
        mps_log(daemon_log, "Control", "Server %d exited with status %d", (int)servers[i].pid, WEXITSTATUS(status));
        servers[i] = servers[--count];
    }
}

void servers_kill(void)
{
    for (unsigned i = 0; i < count; i++)
        kill(servers[i].pid, SIGKILL);
    while (count) {
        servers_reap();
        usleep(10000);
    }
}

void servers_quit(double within_s)
{
    daemon_quitting = 1;
    quit_by_s = within_s < 0 ? -1 : now_s() + within_s;
    servers_stop_when_idle();
}

int servers_late(void) { return quit_by_s >= 0 && now_s() >= quit_by_s; }

const char *servers_ask(const struct server *server, const char *question, char *answer, size_t size)
{
    char line[MPS_LINE];
    size_t used = 0;
    answer[0] = '\0';
    int fd = mps_connect(server->socket);
    if (fd < 0)
        return answer;
    if (mps_say(fd, "%s\n", question) == 0)
        while (mps_read_line(fd, line, ANSWER_MS) >= 0 && used < size - 1)
            used += (size_t)snprintf(answer + used, size - used, "%s\n", line);
    close(fd);
    return answer;
}
