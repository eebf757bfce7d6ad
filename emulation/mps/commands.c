/* The commands of nvidia-cuda-mps-control's manual that somebody here sends, with the manual's words. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon.h"

#define ANSWER 4096

static struct server *named(int fd, const char *pid)
{
    struct server *server = pid ? servers_by_pid((pid_t)atoi(pid)) : NULL;
    if (!server)
        mps_say(fd, "Failed to find the specified server\n");
    return server;
}

static void list_servers(int fd)
{
    unsigned at = 0;
    for (struct server *server; (server = servers_next(&at));)
        mps_say(fd, "%d\n", (int)server->pid);
}

static void list_processes(int fd)
{
    char answer[ANSWER];
    unsigned at = 0;
    mps_say(fd, "PID       ID    SERVER    DEVICE    NAMESPACE    COMMAND\n");
    for (struct server *server; (server = servers_next(&at));) {
        char *rest = NULL;
        unsigned id = 0;
        servers_ask(server, "CLIENTS", answer, sizeof answer);
        for (char *pid = strtok_r(answer, "\n", &rest); pid; pid = strtok_r(NULL, "\n", &rest))
            mps_say(fd, "%-9s %-5u %-9d -         -            -\n", pid, id++, (int)server->pid);
    }
}

static int percentage(const char *text)
{
    char *end;
    double value = text ? strtod(text, &end) : 0;
    return text && *end == '\0' && value > 0 && value <= 100;
}

static void of_server(int fd, const char *name, const struct server *server, const char *word)
{
    char answer[ANSWER], question[MPS_LINE];
    if (strcmp(name, "get_server_status") == 0)
        snprintf(question, sizeof question, "STATUS");
    else if (strcmp(name, "get_client_list") == 0)
        snprintf(question, sizeof question, "CLIENTS");
    else if (strcmp(name, "get_active_thread_percentage") == 0)
        snprintf(question, sizeof question, "PERCENTAGE");
    else if (strcmp(name, "set_active_thread_percentage") == 0 && percentage(word))
        snprintf(question, sizeof question, "PERCENTAGE %.16s", word);
    else if (strcmp(name, "terminate_client") == 0 && word)
        snprintf(question, sizeof question, "TERMINATE %.16s", word);
    else if (strcmp(name, "shutdown_server") == 0 && word && strcmp(word, "-f") == 0) {
        kill(server->pid, SIGKILL);
        return;
    } else if (strcmp(name, "shutdown_server") == 0)
        snprintf(question, sizeof question, "SHUTDOWN");
    else {
        mps_say(fd, "Invalid argument\n");
        return;
    }
    mps_say(fd, "%s", servers_ask(server, question, answer, sizeof answer));
}

static void start_server(int fd, const char *uid)
{
    if (!uid || *uid < '0' || *uid > '9')
        mps_say(fd, "Invalid argument\n");
    else if (servers_any() || !servers_start((uid_t)strtoul(uid, NULL, 10)))
        mps_say(fd, "Failed to start a server: another one runs\n");
}

static void limit_memory(int fd, const char *device, const char *value)
{
    char limits[MPS_LINE];
    const char *before = getenv(MPS_MEMORY_LIMIT);
    if (!device || !value) {
        mps_say(fd, "Invalid argument\n");
        return;
    }
    snprintf(limits, sizeof limits, "%s%s%s=%s", before ? before : "", before && *before ? "," : "", device, value);
    setenv(MPS_MEMORY_LIMIT, limits, 1); /* for the next server */
}

static int quit(const char *option, const char *seconds)
{
    servers_quit(option && strcmp(option, "-t") == 0 && seconds ? atof(seconds) : -1);
    return 1;
}

int command_answer(int fd, const char *line)
{
    static const char *const ABOUT[] = {"get_server_status", "get_client_list", "shutdown_server", "terminate_client",
                                        "get_active_thread_percentage", "set_active_thread_percentage"};
    char text[MPS_LINE], *rest = NULL;
    snprintf(text, sizeof text, "%s", line);
    const char *name = strtok_r(text, " \t", &rest), *one = name ? strtok_r(NULL, " \t", &rest) : NULL;
    const char *two = one ? strtok_r(NULL, " \t", &rest) : NULL;
    if (!name)
        return 0;
    if (strcmp(name, "quit") == 0)
        return quit(one, two);
    for (unsigned i = 0; i < sizeof ABOUT / sizeof *ABOUT; i++)
        if (strcmp(name, ABOUT[i]) == 0) {
            struct server *server = named(fd, one);
            if (server)
                of_server(fd, name, server, two);
            return 0;
        }
    if (strcmp(name, "get_server_list") == 0)
        list_servers(fd);
    else if (strcmp(name, "ps") == 0)
        list_processes(fd);
    else if (strcmp(name, "start_server") == 0)
        start_server(fd, one && strcmp(one, "-uid") == 0 ? two : NULL);
    else if (strcmp(name, "set_default_active_thread_percentage") == 0 && percentage(one))
        setenv(MPS_PERCENTAGE, one, 1);
    else if (strcmp(name, "get_default_active_thread_percentage") == 0)
        mps_say(fd, "%.1f\n", getenv(MPS_PERCENTAGE) ? atof(getenv(MPS_PERCENTAGE)) : 100);
    else if (strcmp(name, "set_default_device_pinned_mem_limit") == 0)
        limit_memory(fd, one, two);
    else
        mps_say(fd, "Unknown command or invalid argument: %s\n", name);
    return 0;
}
