/* Written by `make flags` from slurm_ext/hints/flags.py: do not edit. */
#define SODA_FLAG_COUNT 13
#define SODA_MODEL_MAX_BYTES 64
#define SODA_SERVICE_MAX_BYTES 40
#define SODA_GPU_MEMORY_MAX_MIB 9999999
#define SODA_GRACE_MAX_S 3600
#define SODA_CATEGORIES "cv", "nlp", "speech", "other"
#define SODA_SIGNALS "HUP", "INT", "QUIT", "ABRT", "ALRM", "TERM", "USR1", "USR2", "XCPU"
/* Option, environment variable, kind, digits of a count, value in sbatch --help, what is allowed, text of sbatch --help. */
#define SODA_FLAGS \
    {"soda-category", "SODA_CATEGORY", SODA_CHOICE, 0, "cv|nlp|speech|other", "cv, nlp, speech or other", "kind of deep-learning job"}, \
    {"soda-model", "SODA_MODEL", SODA_NAME, 0, "NAME", "1 to 64 letters, digits and . _ + - /, beginning with a letter or digit", "model that is trained, such as resnet50; equal names share what was learned from earlier runs"}, \
    {"soda-batch-size", "SODA_BATCH_SIZE", SODA_COUNT, 7, "N", "a whole number from 1 to 9999999", "training samples per iteration and GPU"}, \
    {"soda-iterations", "SODA_ITERATIONS", SODA_COUNT, 12, "N", "a whole number from 1 to 999999999999", "iterations until the job is done"}, \
    {"soda-pipelined", "SODA_PIPELINED", SODA_SWITCH, 0, NULL, "yes", "input is prepared while the GPU computes"}, \
    {"soda-large-weights", "SODA_LARGE_WEIGHTS", SODA_SWITCH, 0, NULL, "yes", "model with large weights, which cost memory bandwidth"}, \
    {"soda-heavy-preprocessing", "SODA_HEAVY_PREPROCESSING", SODA_SWITCH, 0, NULL, "yes", "input preparation needs much CPU"}, \
    {"soda-share", "SODA_SHARE", SODA_YESNO, 0, "yes|no", "yes or no", "whether the job's GPUs may be shared with another job (the site decides when not given)"}, \
    {"soda-max-slowdown", "SODA_MAX_SLOWDOWN", SODA_FACTOR, 0, "X", "a factor from 1 to 99.999 with at most three decimals, such as 1.2", "largest accepted run time when sharing, as a multiple of the run time alone"}, \
    {"soda-gpu-memory", "SODA_GPU_MEMORY", SODA_SIZE, 0, "SIZE", "a size from 1M to 9999999M with M, G or T, such as 800M or 12G", "memory needed on each GPU, in MiB unless G or T follows"}, \
    {"soda-accumulates", "SODA_ACCUMULATES", SODA_SWITCH, 0, NULL, "yes", "the program honours SODA_SUB_BATCH and SODA_ACCUMULATION_STEPS, so that it can share with less memory"}, \
    {"soda-checkpoint", "SODA_CHECKPOINT", SODA_CHECKPOINT, 0, "SIGNAL[@GRACE]", "SIGNAL or SIGNAL@GRACE with SIGNAL one of HUP, INT, QUIT, ABRT, ALRM, TERM, USR1, USR2 or XCPU and GRACE from 1 to 3600 seconds, such as USR1@90 or USR1@2m", "the job saves its state on SIGNAL and may be requeued GRACE seconds (s, or m for minutes) later"}, \
    {"soda-service", "SODA_SERVICE", SODA_SERVICE, 0, "NAME", "1 to 40 small letters, digits and hyphens, beginning with a letter or digit", "each run is an instance of this inference service (sodactl service start gives it)"},
