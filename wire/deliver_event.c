/* soda-deliver-event: tells the agent that a run was opened or closed, for prolog and epilog, in a tenth of Python's time.
 *
 *   soda-deliver-event open|close [SOCKET …]
 *
 * Sends one JSON line: kind, time, host, and those variables of slurmd's environment that the event is made of, as they
 * are. The agent makes the event of them, by the very functions that prolog and epilog use otherwise (agent/job_events/hook_variables.py), so
 * nothing is read, cut or checked here. Status 0: the agent has it. Status 1 and not a word: anything else, from an
 * agent that is away to a variable that is too long; prolog and epilog then take Python's way, which handles and
 * reports it. The agent may have taken the event even so; it knows a second copy.
 *
 * Root runs this with variables that users chose: no allocation, one buffer with a bound, one time limit over all.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* As in wire/event_delivery.py; tests compare. */
#define AGENT_SOCKET "/run/slurm-soda-agent/agent.sock"
#ifndef TIMEOUT_MS /* tests that are not about it have more */
#define TIMEOUT_MS 300
#endif
enum { MAX_EVENT_BYTES = 32 << 10 };

/* As in wire/slurm_env.py, which takes fewer of them; a job with more than these is in no hurry. */
#define HINT_PREFIX "SPANK_SODA_"
enum { MAX_HINTS = 64 };

static const char *const of_both[] = {"SLURM_JOB_ID", "SLURM_JOB_START_TIME", "SLURM_JOB_RESTART_COUNT",
                                      "SLURM_JOB_UID", "SLURMD_NODENAME", NULL};
static const char *const of_open[] = {"SLURM_JOB_USER", "SLURM_JOB_PARTITION", "SLURM_JOB_GPUS",
                                      "SLURM_JOB_CPUS_PER_NODE", "SLURM_JOB_NODELIST", "SLURM_NODELIST",
                                      "SLURM_JOB_NUM_NODES", NULL};
static const char *const of_close[] = {"SLURM_JOB_EXIT_CODE2", NULL};

extern char **environ;

struct line {
    char text[MAX_EVENT_BYTES];
    size_t length;
    bool too_long;
};

static void put(struct line *line, const char *text, size_t length)
{
    if (length > sizeof line->text - line->length) {
        line->too_long = true;
        return;
    }
    memcpy(line->text + line->length, text, length);
    line->length += length;
}

/* A JSON string, all ASCII. A byte above 127 becomes the lone surrogate that stands for it in Python (PEP 383). */
static void put_string(struct line *line, const char *text, size_t length)
{
    put(line, "\"", 1);
    for (size_t i = 0; i < length && !line->too_long; i++) {
        unsigned char c = (unsigned char)text[i];
        char escape[8];
        if (c == '"' || c == '\\')
            put(line, (char[]){'\\', (char)c}, 2);
        else if (c >= 0x20 && c < 0x7f)
            put(line, text + i, 1);
        else
            put(line, escape, (size_t)snprintf(escape, sizeof escape, "\\u%02x%02x", c < 0x80 ? 0 : 0xdc, c));
    }
    put(line, "\"", 1);
}

/* The first variable of this name, as in Python, where a name comes twice. */
static const char *value_of(const char *name, size_t length)
{
    for (char **entry = environ; *entry != NULL; entry++)
        if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

static void put_variable(struct line *line, const char *name, size_t length, const char *value)
{
    if (line->text[line->length - 1] != '{')
        put(line, ",", 1);
    put_string(line, name, length);
    put(line, ":", 1);
    put_string(line, value, strlen(value));
}

static void put_variables(struct line *line, const char *const *names)
{
    for (; *names != NULL; names++) {
        const char *value = value_of(*names, strlen(*names));
        if (value != NULL)
            put_variable(line, *names, strlen(*names), value);
    }
}

static void put_hints(struct line *line)
{
    int count = 0;
    for (char **entry = environ; *entry != NULL && !line->too_long; entry++) {
        if (strncmp(*entry, HINT_PREFIX, strlen(HINT_PREFIX)) != 0)
            continue;
        if (++count > MAX_HINTS)
            line->too_long = true;
        const char *equals = strchr(*entry, '=');
        size_t length = equals == NULL ? 0 : (size_t)(equals - *entry);
        if (length > 0 && value_of(*entry, length) == equals + 1)
            put_variable(line, *entry, length, equals + 1);
    }
}

/* The agent would refuse what names no job, and say so to the controller. */
static bool names_a_job(void)
{
    const char *id = getenv("SLURM_JOB_ID");
    size_t length = id == NULL ? 0 : strnlen(id, 11);
    return length > 0 && length <= 10 && strspn(id, "0123456789") == length && strspn(id, "0") < length;
}

static bool make(struct line *line, const char *kind)
{
    bool open = strcmp(kind, "open") == 0;
    struct utsname host;
    struct timespec now;
    char start[64];
    if ((!open && strcmp(kind, "close") != 0) || !names_a_job() || uname(&host) != 0 ||
        clock_gettime(CLOCK_REALTIME, &now) != 0)
        return false;
    int length = snprintf(start, sizeof start, "{\"kind\":\"%s\",\"at_s\":%lld.%06ld,\"host\":", open ? "open" : "close",
                          (long long)now.tv_sec, now.tv_nsec / 1000);
    put(line, start, (size_t)length);
    put_string(line, host.nodename, strnlen(host.nodename, sizeof host.nodename));
    put(line, ",\"environ\":{", 12);
    put_variables(line, of_both);
    put_variables(line, open ? of_open : of_close);
    if (open)
        put_hints(line);
    put(line, "}}\n", 3);
    return !line->too_long;
}

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static bool ready(int fd, short events, long long deadline_ms)
{
    long long left_ms = deadline_ms - now_ms();
    struct pollfd one = {.fd = fd, .events = events};
    return left_ms > 0 && poll(&one, 1, (int)left_ms) == 1;
}

static int connected(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path, path, length);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* A unix socket takes a connection at once or refuses it: there is nothing to wait for. */
    return fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? fd : -1;
}

/* The kernel closes the socket at exit. */
static bool taken(const struct line *line, const char *path, long long deadline_ms)
{
    char answer[8];
    size_t sent = 0, heard = 0;
    int fd = connected(path);
    if (fd < 0)
        return false;
    while (sent < line->length) {
        if (!ready(fd, POLLOUT, deadline_ms))
            return false;
        ssize_t count = send(fd, line->text + sent, line->length - sent, MSG_NOSIGNAL);
        if (count < 0)
            return false;
        sent += (size_t)count;
    }
    do {
        if (!ready(fd, POLLIN, deadline_ms))
            return false;
        ssize_t count = recv(fd, answer + heard, sizeof answer - heard, 0);
        if (count <= 0)
            return false;
        heard += (size_t)count;
    } while (heard < 3);
    return heard == 3 && memcmp(answer, "ok\n", 3) == 0;
}

int main(int argc, char *argv[])
{
    static struct line line;
    long long deadline_ms = now_ms() + TIMEOUT_MS;
    return argc > 1 && make(&line, argv[1]) && taken(&line, argc > 2 ? argv[2] : AGENT_SOCKET, deadline_ms) ? 0 : 1;
}
