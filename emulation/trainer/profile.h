/* How fast a model trains, from profiles.tsv (see there for the columns). */
#ifndef SODA_TRAIN_PROFILE_H
#define SODA_TRAIN_PROFILE_H

struct profile {
    char model[32], category[16];
    unsigned batch;
    double fixed_ms, sample_us, sync_ms;
    double util_pct, fixed_mib, sample_kib;
    double cores_best, one_core_ratio, interference_pct, rx_mib_s;
    double save_s, load_s;
    double serial_share, bend; /* bend 0: the curve is linear from one_core_ratio on */
};

/* Find a model. 0; -1 if the file cannot be read; -2 if it has no such model (`known` then lists the names). */
int profile_find(const char *path, const char *model, struct profile *profile, char *known, unsigned known_size);

/* Nominal seconds of one iteration on dedicated resources with cores enough; batch is that of one GPU. */
double profile_iteration_s(const struct profile *profile, unsigned batch, unsigned gpus, unsigned nodes);

/* Speed with this many cores for each GPU, against full speed: 0 to 1. */
double profile_core_ratio(const struct profile *profile, double cores_per_gpu);

/* Slowdown, 1 and up, on a GPU with other jobs whose demands sum up to others_pct. */
double profile_sharing_slowdown(const struct profile *profile, unsigned others, double others_pct);

#endif
