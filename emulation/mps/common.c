#define _GNU_SOURCE
#include "mps.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

const char *mps_directory(void)
{
    const char *given = getenv("CUDA_MPS_PIPE_DIRECTORY");
    return given && *given ? given : "/tmp/nvidia-mps";
}

/* An address has room for 107 characters; through the directory's descriptor the name alone counts. */
static int through_directory(const char *name, int (*act)(int, const struct sockaddr *, socklen_t))
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int directory = open(mps_directory(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", directory, name);
    int done = fd < 0 ? -1 : act(fd, (struct sockaddr *)&address, sizeof address), why = errno;
    close(directory);
    if (done != 0 && fd >= 0)
        close(fd);
    errno = why;
    return done == 0 ? fd : -1;
}

int mps_connect(const char *name) { return through_directory(name, connect); }

int mps_listen(const char *name, mode_t mode)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", mps_directory(), name);
    unlink(path);
    int fd = through_directory(name, bind);
    if (fd >= 0 && chmod(path, mode) == 0 && listen(fd, 64) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

int mps_read_line(int fd, char line[MPS_LINE], int limit_ms)
{
    for (int at = 0; at < MPS_LINE - 1; at++) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, limit_ms) != 1 || read(fd, line + at, 1) != 1)
            return -1;
        if (line[at] == '\n') {
            line[at] = '\0';
            return at;
        }
    }
    return -1;
}

int mps_say(int fd, const char *format, ...)
{
    char text[MPS_LINE];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof text)
        length = sizeof text - 1;
    return send(fd, text, (size_t)length, MSG_NOSIGNAL) == length ? 0 : -1;
}

void mps_peer(int fd, pid_t *pid, uid_t *uid)
{
    struct ucred peer = {.pid = 0, .uid = (uid_t)-1};
    socklen_t size = sizeof peer;
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    *pid = peer.pid;
    *uid = peer.uid;
}

void mps_log(int fd, const char *who, const char *format, ...)
{
    char text[MPS_LINE], when[64];
    struct timeval now;
    struct tm parts;
    va_list arguments;
    gettimeofday(&now, NULL);
    localtime_r(&now.tv_sec, &parts);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &parts);
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    dprintf(fd, "[%s.%03ld %s %5d] %s\n", when, (long)now.tv_usec / 1000, who, (int)getpid(), text);
}
