/* Command line of soda-train. */
#ifndef SODA_TRAIN_OPTIONS_H
#define SODA_TRAIN_OPTIONS_H

#include <limits.h>

/* Exit statuses (beside 0 = all iterations done). */
enum {
    EXIT_USAGE = 64,    /* bad command line or unknown model */
    EXIT_CUDA = 70,     /* an error of CUDA: no memory left, a fault, MPS */
    EXIT_SAVING = 74,   /* the checkpoint could not be written */
    EXIT_STOPPED = 75,  /* stopped early, state saved: run the same command again to go on */
    EXIT_UNSAVED = 143, /* stopped early by TERM or INT without saving */
};

struct options {
    const char *model, *profiles, *pairs, *checkpoint_dir, *name;
    unsigned batch;
    double iterations, duration_s; /* one of them; 0 = not given */
    double time_scale, cpu_load, save_s, load_s, linger_s, report_s; /* save_s and load_s: negative = from the profile */
    double fault_iteration; /* 0: never */
    unsigned memory_mib, gpu_memory_mib; /* gpu_memory_mib 0: from the profile */
    int signal;
};

/* Parse, or print one line and exit with EXIT_USAGE; --help and --list-models exit with 0. */
void options_parse(int argc, char **argv, struct options *options);

#endif
