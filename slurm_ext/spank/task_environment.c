#define _GNU_SOURCE
#include "task_environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORD_MAX = 16384, NAME_MAX_BYTES = 64 };

static const char LETTERS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_";
static const char NAME_BYTES[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789";

/* What hides every GPU, from whatever library looks for them. */
static const char HIDDEN[] = "CUDA_VISIBLE_DEVICES=\nROCR_VISIBLE_DEVICES=\nGPU_DEVICE_ORDINAL=\nZE_AFFINITY_MASK=\nend\n";

static char record[RECORD_MAX]; /* lines, the last of which is "end"; empty: nothing to do */

static bool is_roots(int file, mode_t kind)
{
    struct stat found;
    return fstat(file, &found) == 0 && (found.st_mode & S_IFMT) == kind && found.st_uid == geteuid() &&
           (found.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Whole file into record; false if it is not root's own plain file, or too long, or unfinished. */
static bool read_record(int directory, const char *name)
{
    /* Not blocked by a FIFO, which is none of ours. */
    int file = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return false;
    size_t length = 0;
    ssize_t count = 0;
    if (is_roots(file, S_IFREG))
        while ((count = read(file, record + length, RECORD_MAX - 1 - length)) > 0 || (count < 0 && errno == EINTR))
            length += count > 0 ? (size_t)count : 0;
    close(file);
    record[length] = '\0';
    bool finished = length >= 4 && length < RECORD_MAX - 1 && strlen(record) == length &&
                    strcmp(record + length - 4, "end\n") == 0 && (length == 4 || record[length - 5] == '\n');
    return count == 0 && finished;
}

/* One line without its newline: [~]NAME=VALUE or -NAME. The name is copied, value points into the line, or is NULL. */
static bool parse_line(const char *line, char name[NAME_MAX_BYTES], const char **value)
{
    const char *begin = line + (*line == '~' || *line == '-');
    size_t length = strspn(begin, NAME_BYTES);
    if (length == 0 || length >= NAME_MAX_BYTES || strchr(LETTERS, *begin) == NULL)
        return false;
    memcpy(name, begin, length);
    name[length] = '\0';
    *value = begin[length] == '=' ? begin + length + 1 : NULL;
    if (*line == '-' ? begin[length] != '\0' : *value == NULL)
        return false;
    for (const char *c = *value == NULL ? "" : *value; *c != '\0'; c++)
        if (*c < 0x20 || *c > 0x7e)
            return false;
    return true;
}

/* Makes the lines of record texts of their own; false if one of them is none of ours. */
static bool split_record(void)
{
    char name[NAME_MAX_BYTES];
    const char *value;
    for (char *line = record; *line != '\0';) {
        char *end = strchr(line, '\n');
        *end = '\0';
        bool last = end[1] == '\0';
        if (last ? strcmp(line, "end") != 0 : !parse_line(line, name, &value))
            return false;
        line = end + 1;
    }
    return true;
}

void soda_read_environment(const char *directory, uint32_t job)
{
    record[0] = '\0';
    int opened = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (opened < 0)
        return; /* nothing is shared on this node */
    char name[32], guest[32];
    struct stat found;
    snprintf(name, sizeof(name), "env.%u", job);
    snprintf(guest, sizeof(guest), "guest.%u", job);
    bool ours = is_roots(opened, S_IFDIR);
    bool shares = fstatat(opened, name, &found, AT_SYMLINK_NOFOLLOW) == 0 ||
                  fstatat(opened, guest, &found, AT_SYMLINK_NOFOLLOW) == 0;
    if (!ours || !shares) {
        record[0] = '\0';
    } else if (!read_record(opened, name) || !split_record()) {
        memcpy(record, HIDDEN, sizeof(HIDDEN));
        split_record();
    }
    close(opened);
}

void soda_change_environment(bool numbered, soda_change *change, void *context)
{
    char name[NAME_MAX_BYTES];
    const char *value;
    for (const char *line = record; *line != '\0' && strcmp(line, "end") != 0; line += strlen(line) + 1)
        if ((*line != '~' || numbered) && parse_line(line, name, &value))
            change(context, name, value);
}

bool soda_sees_own_devices(const char *cgroup_file)
{
    char line[4096];
    bool found = false;
    FILE *file = fopen(cgroup_file, "re");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL)
        found = strstr(line, ":devices:/") != NULL && strstr(line, "/slurm") != NULL && strstr(line, "/job_") != NULL;
    if (file != NULL)
        fclose(file);
    return found;
}
