#define _GNU_SOURCE
#include "progress.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void progress_write(double iteration, double seconds, double of, double saved, unsigned batch)
{
    const char *directory = getenv("SODA_PROGRESS_DIR"), *job = getenv("SLURM_JOB_ID"), *restart = getenv("SLURM_RESTART_COUNT");
    char path[PATH_MAX], fresh[PATH_MAX + 8];
    if (!job || !*job)
        return;
    snprintf(path, sizeof path, "%s/%u/%.16s.%d", directory && *directory ? directory : "/run/slurm-soda-agent/progress",
             (unsigned)getuid(), job, restart ? atoi(restart) : 0);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "we");
    if (!file)
        return; /* no agent here: a training does not depend on it */
    fprintf(file, "iteration=%.3f seconds=%.3f of=%.0f", iteration, seconds, of);
    if (saved >= 0)
        fprintf(file, " saved=%.3f", saved);
    fprintf(file, " batch=%u\n", batch);
    if (fclose(file) == 0)
        rename(fresh, path);
}
