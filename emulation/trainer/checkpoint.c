#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static unsigned checksum(const char *text)
{
    unsigned hash = 2166136261u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

static int compose(const struct checkpoint *checkpoint, char *text, size_t size)
{
    int used = snprintf(text, size, "soda-train 1 %s %u %.3f", checkpoint->model, checkpoint->batch, checkpoint->iteration);
    return used + snprintf(text + used, size - (size_t)used, " %08x\n", checksum(text));
}

int checkpoint_load(const char *path, struct checkpoint *checkpoint)
{
    struct checkpoint found = {0};
    char text[256] = "", expected[256];
    FILE *file = fopen(path, "re");
    if (!file)
        return errno == ENOENT ? 1 : -1;
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[got] = '\0';
    if (sscanf(text, "soda-train 1 %31s %u %lf", found.model, &found.batch, &found.iteration) != 3)
        return -1;
    compose(&found, expected, sizeof expected);
    if (strcmp(text, expected) != 0 || strcmp(found.model, checkpoint->model) != 0 || found.batch != checkpoint->batch)
        return -1;
    *checkpoint = found;
    return 0;
}

static void pause_for(double seconds)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

int checkpoint_save(const char *path, const struct checkpoint *checkpoint, double pause_s)
{
    char text[256], fresh[PATH_MAX];
    int length = compose(checkpoint, text, sizeof text);
    snprintf(fresh, sizeof fresh, "%s.new", path); /* one name for all runs: a killed save leaves no litter */
    unlink(fresh);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    int half = length / 2; /* a kill during the pause finds a file that is really cut short */
    int good = write(fd, text, (size_t)half) == half;
    pause_for(pause_s);
    good = good && write(fd, text + half, (size_t)(length - half)) == length - half && fsync(fd) == 0;
    int saved_errno = errno;
    close(fd);
    if (good && rename(fresh, path) == 0)
        return 0;
    if (good)
        saved_errno = errno;
    unlink(fresh);
    errno = saved_errno;
    return -1;
}
