#include "profile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int profile_find(const char *path, const char *model, struct profile *profile, char *known, unsigned known_size)
{
    char line[512];
    FILE *file = fopen(path, "re");
    if (!file)
        return -1;
    known[0] = '\0';
    int found = 0;
    while (!found && fgets(line, sizeof line, file)) {
        struct profile p = {0};
        if (line[0] == '#' ||
            sscanf(line, "%31s %15s %u %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf", p.model, p.category,
                   &p.batch, &p.fixed_ms, &p.sample_us, &p.sync_ms, &p.util_pct, &p.fixed_mib, &p.sample_kib,
                   &p.cores_best, &p.one_core_ratio, &p.interference_pct, &p.rx_mib_s, &p.save_s, &p.load_s,
                   &p.serial_share, &p.bend) < 15)
            continue;
        if (strcmp(p.model, model) == 0) {
            *profile = p;
            found = 1;
        }
        size_t used = strlen(known);
        snprintf(known + used, known_size - used, "%s%s", used ? ", " : "", p.model);
    }
    fclose(file);
    return found ? 0 : -2;
}

double profile_iteration_s(const struct profile *profile, unsigned batch, unsigned gpus, unsigned nodes)
{
    double sync_ms = gpus > 1 ? profile->sync_ms * log2(gpus) * (nodes > 1 ? 2 : 1) : 0;
    return (profile->fixed_ms + profile->sample_us * batch / 1000 + sync_ms) / 1000;
}

/* Amdahl's speed-up by cores. */
static double sped_up(double cores, double serial_share)
{
    return cores / (1 + serial_share * (cores - 1));
}

double profile_core_ratio(const struct profile *profile, double cores_per_gpu)
{
    if (cores_per_gpu >= profile->cores_best)
        return 1;
    if (profile->bend > 0) {
        double share = sped_up(cores_per_gpu, profile->serial_share) / sped_up(profile->cores_best, profile->serial_share);
        return 1 - pow(1 - share, profile->bend);
    }
    if (cores_per_gpu <= 1)
        return profile->one_core_ratio * cores_per_gpu;
    return profile->one_core_ratio + (1 - profile->one_core_ratio) * (cores_per_gpu - 1) / (profile->cores_best - 1);
}

double profile_sharing_slowdown(const struct profile *profile, unsigned others, double others_pct)
{
    double wanted = (profile->util_pct + others_pct) / 100;
    return (wanted > 1 ? wanted : 1) * (1 + profile->interference_pct / 100 * others);
}
