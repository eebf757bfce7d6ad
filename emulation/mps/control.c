/* nvidia-cuda-mps-control: the daemon (-d, -f), or without options commands from standard input to one that runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon.h"

#define TICK_MS 50
#define REQUEST_MS 500

struct waiting {
    int fd;
    uid_t uid;
};
static struct waiting waiting[64];
static unsigned waiting_count;

static int in_directory(const char *name, int flags, mode_t mode)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", mps_directory(), name);
    int fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd >= 0 && flags & O_CREAT)
        fchmod(fd, mode);
    return fd;
}

/* A client that may not be served now waits until the server of the other user is gone. Returns whether it is done. */
static int serve(int fd, uid_t uid)
{
    if (geteuid() != 0 && uid != geteuid()) {
        mps_log(daemon_log, "Control", "User did not send valid credentials");
        mps_say(fd, "ERROR %d\n", CUDA_MPS_CONNECTION_FAILED);
        return 1;
    }
    if (daemon_quitting) {
        mps_say(fd, "ERROR %d\n", CUDA_MPS_CONNECTION_FAILED);
        return 1;
    }
    struct server *server = servers_of(uid);
    if (!server)
        server = servers_start(uid);
    if (!server && servers_any()) {
        servers_stop_when_idle();
        return 0;
    }
    if (server && server->stopping)
        return 0;
    if (server)
        mps_say(fd, "SERVER %d %s\n", (int)server->pid, server->socket);
    else
        mps_say(fd, "ERROR %d\n", CUDA_MPS_CONNECTION_FAILED);
    return 1;
}

static void meet_client(int fd)
{
    char line[MPS_LINE];
    pid_t pid;
    uid_t uid;
    mps_peer(fd, &pid, &uid);
    if (mps_read_line(fd, line, REQUEST_MS) > 0 && strcmp(line, "CLIENT") == 0) {
        mps_log(daemon_log, "Control", "NEW CLIENT %d from user %u", (int)pid, (unsigned)uid);
        if (!serve(fd, uid) && waiting_count < sizeof waiting / sizeof *waiting) {
            mps_log(daemon_log, "Control", "Client %d waits: the server is another user's", (int)pid);
            waiting[waiting_count++] = (struct waiting){fd, uid};
            return;
        }
    }
    close(fd);
}

static void meet_command(int fd)
{
    char line[MPS_LINE];
    pid_t pid;
    uid_t uid;
    mps_peer(fd, &pid, &uid);
    if (mps_read_line(fd, line, REQUEST_MS) >= 0 && (uid == 0 || uid == geteuid())) {
        mps_log(daemon_log, "Control", "Command: %s", line);
        if (command_answer(fd, line))
            return; /* `quit` is answered by the end of the daemon */
    }
    close(fd);
}

static void serve_waiting(void)
{
    for (unsigned i = 0; i < waiting_count;)
        if (serve(waiting[i].fd, waiting[i].uid)) {
            close(waiting[i].fd);
            waiting[i] = waiting[--waiting_count];
        } else {
            i++;
        }
}

static void run(int clients, int commands)
{
    for (;;) {
        struct pollfd polled[2] = {{.fd = clients, .events = POLLIN}, {.fd = commands, .events = POLLIN}};
        poll(polled, 2, TICK_MS);
        servers_reap();
        for (int i = 0; i < 2; i++) {
            int fd = polled[i].revents ? accept4(polled[i].fd, NULL, NULL, SOCK_CLOEXEC) : -1;
            if (fd >= 0)
                (i ? meet_command : meet_client)(fd);
        }
        serve_waiting();
        if (daemon_quitting && (!servers_any() || servers_late()))
            return;
    }
}

static void remove_files(void)
{
    static const char *const names[] = {"control_privileged", "nvidia-cuda-mps-control.pid", "control_lock"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) { /* as the real one, it leaves `control` behind */
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", mps_directory(), names[i]);
        unlink(path);
    }
}

static int fail(const char *what)
{
    fprintf(stderr, "nvidia-cuda-mps-control: %s in %s: %s\n", what, mps_directory(), strerror(errno));
    return 1;
}

static int start_daemon(int detach)
{
    const char *logs = getenv("CUDA_MPS_LOG_DIRECTORY");
    char path[PATH_MAX], text[32];
    mkdir(mps_directory(), 0755);
    snprintf(path, sizeof path, "%s", logs && *logs ? logs : "/var/log/nvidia-mps");
    mkdir(path, 0755);
    strncat(path, "/control.log", sizeof path - strlen(path) - 1);
    daemon_log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
    int lock = in_directory("control_lock", O_RDWR | O_CREAT, 0600);
    if (daemon_log < 0 || lock < 0)
        return fail("cannot open the log or the lock");
    if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        fputs("An instance of this daemon is already running\n", stderr);
        return 1;
    }
    int clients = mps_listen("control", 0666), commands = mps_listen("control_privileged", 0700);
    if (clients < 0 || commands < 0)
        return fail("cannot listen");
    pid_t child = detach ? fork() : 0;
    if (child)
        return child < 0; /* the child holds the lock on: it is the same open file */
    if (detach) {
        setsid();
        int null = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++)
            dup2(null, fd);
        if (null > 2)
            close(null);
    }
    int file = in_directory("nvidia-cuda-mps-control.pid", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int length = snprintf(text, sizeof text, "%d\n", (int)getpid());
    if (file < 0 || write(file, text, (size_t)length) != length)
        return fail("cannot write the process id");
    close(file);
    signal(SIGPIPE, SIG_IGN);
    mps_log(daemon_log, "Control", "Starting control daemon using socket %s/control", mps_directory());
    run(clients, commands);
    servers_kill();
    mps_log(daemon_log, "Control", "Exiting");
    remove_files();
    return 0;
}

static int send_commands(void)
{
    char line[MPS_LINE], answer[4096];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        if (!*line)
            continue;
        int fd = mps_connect("control_privileged");
        if (fd < 0 || mps_say(fd, "%s\n", line) != 0) {
            puts("Cannot find MPS control daemon process");
            return 1;
        }
        for (ssize_t got; (got = read(fd, answer, sizeof answer)) > 0;)
            fwrite(answer, 1, (size_t)got, stdout);
        fflush(stdout);
        close(fd);
    }
    return 0;
}

int main(int argc, char **argv)
{
    int daemon_wanted = 0, detach = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-d") == 0 || strcmp(argv[i], "-f") == 0)
            daemon_wanted = 1, detach = argv[i][1] == 'd';
        else if (strcmp(argv[i], "-multiuser-server") == 0)
            daemon_multiuser = 1;
        else {
            fprintf(stderr, "usage: nvidia-cuda-mps-control [-d | -f] [-multiuser-server]\n");
            return 1;
        }
    }
    return daemon_wanted ? start_daemon(detach) : send_commands();
}
