/* soda-train: an iterative training, emulated. It sleeps nearly all the time: see options.c for what it can do. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../gpu/state.h"
#include "checkpoint.h"
#include "mps_client.h"
#include "options.h"
#include "pairs.h"
#include "place.h"
#include "profile.h"
#include "progress.h"

#define PAGE_BYTES 4096
#define TICK_S 0.1
#define TELL_S 0.5 /* between two writings of the progress file */
#define STALL_S 1.0 /* a longer gap means that the process was stopped (suspended): it made no progress then */

struct training {
    struct options options;
    struct profile profile;
    struct pairs pairs;
    struct place place;
    struct mps_client mps;
    double iteration, iterations, iteration_s; /* iteration_s: real seconds at full speed */
    sigset_t signals;
    double saved; /* iteration of the newest checkpoint; negative: none */
    char checkpoint[PATH_MAX], end_marker[PATH_MAX]; /* empty without --checkpoint-dir */
    struct gpu_use uses[GPU_MAX];
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void say(const struct training *training, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (training->place.rank == 0) {
        fputs("soda-train: ", stdout);
        vprintf(format, arguments);
        putchar('\n');
        fflush(stdout);
    }
    va_end(arguments);
}

/* One process speaks for the job. */
static void tell(const struct training *training)
{
    if (training->place.rank == 0)
        progress_write(training->iteration, now_s(), training->iterations, training->saved, training->options.batch);
}

/* Wait for a signal; 0 when the time is over. */
static int wait_signal(const struct training *training, double seconds)
{
    struct timespec limit = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    int sig = sigtimedwait(&training->signals, NULL, &limit);
    return sig > 0 ? sig : 0;
}

/* Slurm's job id and restart count name the files; both are only digits. */
static void name_files(struct training *training)
{
    const struct options *options = &training->options;
    const char *job = options->name ? options->name : getenv("SLURM_JOB_ID");
    const char *restart = getenv("SLURM_RESTART_COUNT");
    if (!options->checkpoint_dir)
        return;
    if (!job || !*job || strchr(job, '/'))
        job = "soda-train";
    snprintf(training->checkpoint, sizeof training->checkpoint, "%s/%.64s.ckpt", options->checkpoint_dir, job);
    snprintf(training->end_marker, sizeof training->end_marker, "%s/%.64s.%d.end", options->checkpoint_dir, job,
             restart ? atoi(restart) : 0);
}

static void prepare(struct training *training, int argc, char **argv)
{
    char known[512];
    struct options *options = &training->options;
    options_parse(argc, argv, options);
    int found = profile_find(options->profiles, options->model, &training->profile, known, sizeof known);
    if (found == -1)
        fprintf(stderr, "soda-train: cannot read %s: %s; name the file with --profiles\n", options->profiles, strerror(errno));
    if (found == -2)
        fprintf(stderr, "soda-train: --model: '%s' is not known; known are %s\n", options->model, known);
    if (found)
        exit(EXIT_USAGE);
    if (!options->batch)
        options->batch = training->profile.batch;
    if (options->save_s < 0)
        options->save_s = training->profile.save_s;
    if (options->load_s < 0)
        options->load_s = training->profile.load_s;
    pairs_read(options->pairs, options->model, &training->pairs);
    training->saved = -1;
    place_read(&training->place);
    name_files(training);
    unsigned gpus = training->place.gpu_count * training->place.ranks;
    double nominal_s = profile_iteration_s(&training->profile, options->batch, gpus, training->place.nodes);
    training->iterations = options->iterations > 0 ? options->iterations : fmax(1, round(options->duration_s / nominal_s));
    training->iteration_s = nominal_s / options->time_scale;
}

/* Signals are waited for, never handled, so none can come at a bad moment. Slurm or a shell may have had them ignored. */
static void take_signals(struct training *training)
{
    const int wanted[] = {training->options.signal, SIGTERM, SIGINT};
    sigemptyset(&training->signals);
    for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        signal(wanted[i], SIG_DFL);
        sigaddset(&training->signals, wanted[i]);
    }
    sigprocmask(SIG_BLOCK, &training->signals, NULL);
}

/* What this process uses of its GPUs; at speed 0 it holds memory alone. */
static void fill_uses(const struct training *training, struct gpu_use uses[GPU_MAX], double core_ratio, double slowdown)
{
    const struct profile *profile = &training->profile;
    const struct options *options = &training->options;
    double speed = core_ratio / slowdown;
    memset(uses, 0, GPU_MAX * sizeof *uses);
    for (unsigned i = 0; i < training->place.gpu_count; i++)
        uses[i] = (struct gpu_use){
            .minor = training->place.gpu[i],
            .memory_mib = options->gpu_memory_mib
                              ? options->gpu_memory_mib
                              : (uint64_t)(profile->fixed_mib + profile->sample_kib * options->batch / 1024),
            .util_pct = (unsigned)lround(profile->util_pct * speed),
            .demand_pct = (unsigned)lround(profile->util_pct * core_ratio),
            .rx_kib_s = (unsigned)(profile->rx_mib_s * 1024 * speed),
            .tx_kib_s = (unsigned)(profile->rx_mib_s * 102 * speed),
        };
}

/* Tell the emulated driver. Written only when it changes. */
static void occupy(struct training *training, double core_ratio, double slowdown)
{
    struct gpu_use uses[GPU_MAX];
    fill_uses(training, uses, core_ratio, slowdown);
    if (training->place.gpu_count == 0 || memcmp(uses, training->uses, sizeof uses) == 0)
        return;
    if (gpu_state_write(uses, training->place.gpu_count) == 0)
        memcpy(training->uses, uses, sizeof uses);
}

/* Take the GPUs: through MPS where it is there. 0, or CUDA's error number. */
static int take_gpus(struct training *training)
{
    unsigned count = training->place.gpu_count;
    gpu_state_make_dir();
    gpu_state_clear();
    int error = mps_join(&training->mps, &training->place);
    if (error || count == 0)
        return error;
    gpu_state_identify(training->profile.model, training->mps.server);
    fill_uses(training, training->uses, 0, 1);
    for (unsigned i = 0; i < count; i++)
        if (training->mps.limit_mib[i] && training->uses[i].memory_mib > training->mps.limit_mib[i])
            return CUDA_OUT_OF_MEMORY;
    if (gpu_state_claim(training->uses, count) == -2)
        return errno == ENOMEM ? CUDA_OUT_OF_MEMORY : CUDA_DEVICES_UNAVAILABLE;
    return 0;
}

/* Slowdown on one GPU. Who only holds memory (its demand is 0) slows nobody. */
static double slowdown_on(const struct training *training, unsigned minor, const struct gpu_holder *holders, unsigned all)
{
    unsigned unknown = 0;
    double unknown_pct = 0, added = 0;
    for (unsigned i = 0; i < all; i++) {
        if (holders[i].use.minor != minor || holders[i].pid == getpid() || holders[i].use.demand_pct == 0)
            continue;
        int under_mps = training->mps.server && holders[i].server == training->mps.server;
        double xi = pairs_slowdown(&training->pairs, holders[i].model, under_mps);
        if (xi > 0) {
            added += xi - 1;
        } else {
            unknown++;
            unknown_pct += holders[i].use.demand_pct;
        }
    }
    return profile_sharing_slowdown(&training->profile, unknown, unknown_pct) + added;
}

/* Slowdown by other processes on the GPU that is shared worst: a synchronous training waits for its slowest GPU. MPS may
 * give it a part of each GPU only. */
static double sharing(const struct training *training)
{
    static struct gpu_holder holders[GPU_HOLDERS_MAX];
    unsigned all = gpu_state_read(holders, GPU_HOLDERS_MAX);
    double worst = training->mps.server ? fmax(1, training->profile.util_pct / training->mps.percentage) : 1;
    for (unsigned i = 0; i < training->place.gpu_count; i++)
        worst = fmax(worst, slowdown_on(training, training->place.gpu[i], holders, all));
    return worst;
}

static void burn(double seconds)
{
    for (double end = now_s() + seconds; now_s() < end;)
        ;
}

/* Rank 0 saves; the others have had the same signal. Returns the exit status. */
static int stop(struct training *training, int sig)
{
    const struct options *options = &training->options;
    struct checkpoint checkpoint = {.batch = options->batch, .iteration = training->iteration};
    if (sig != options->signal || !*training->checkpoint) {
        say(training, "stopped at iteration %.0f, not saved", training->iteration);
        return EXIT_UNSAVED;
    }
    occupy(training, 0, 1);
    if (training->place.rank) { /* stay while rank 0 saves: srun may kill a step when its first task ends */
        wait_signal(training, options->save_s / options->time_scale + TICK_S);
    } else {
        snprintf(checkpoint.model, sizeof checkpoint.model, "%s", training->profile.model);
        if (checkpoint_save(training->checkpoint, &checkpoint, options->save_s / options->time_scale) != 0) {
            fprintf(stderr, "soda-train: cannot write %s: %s\n", training->checkpoint, strerror(errno));
            return EXIT_SAVING;
        }
        training->saved = training->iteration;
        tell(training);
        say(training, "saved at iteration %.0f of %.0f", training->iteration, training->iterations);
    }
    if (options->linger_s > 0)
        wait_signal(training, options->linger_s);
    return EXIT_STOPPED;
}

/* Go on from the checkpoint, if there is one. Returns a signal that came meanwhile, or 0. */
static int resume(struct training *training)
{
    struct checkpoint checkpoint = {.batch = training->options.batch};
    if (!*training->checkpoint)
        return 0;
    snprintf(checkpoint.model, sizeof checkpoint.model, "%s", training->profile.model);
    int result = checkpoint_load(training->checkpoint, &checkpoint);
    if (result < 0)
        fprintf(stderr, "soda-train: %s is no checkpoint of this training; starting from the beginning\n", training->checkpoint);
    if (result != 0)
        return 0;
    training->iteration = training->saved = checkpoint.iteration;
    say(training, "resuming at iteration %.0f of %.0f", training->iteration, training->iterations);
    return wait_signal(training, training->options.load_s / training->options.time_scale);
}

/* CUDA's error number once a kernel of this training has faulted, or MPS has told of another's. */
static int failed(const struct training *training)
{
    const struct options *options = &training->options;
    int error = mps_error(&training->mps);
    if (error || options->fault_iteration <= 0 || training->iteration < options->fault_iteration)
        return error;
    mps_fault(&training->mps);
    return CUDA_ILLEGAL_ADDRESS;
}

/* A training has no way to go on after an error of CUDA. */
static void end_with(int error)
{
    fprintf(stderr, "soda-train: CUDA error %d: %s\n", error, cuda_error_text(error));
    gpu_state_clear();
    exit(EXIT_CUDA);
}

/* Iterate until the end or a signal. Returns that signal, or 0. */
static int iterate(struct training *training)
{
    const struct options *options = &training->options;
    double last_s = now_s(), reported_s = last_s, told_s = last_s;
    tell(training);
    while (training->iteration < training->iterations) {
        unsigned gpus = training->place.gpu_count ? training->place.gpu_count : 1;
        double core_ratio = profile_core_ratio(&training->profile, (double)place_cores() / gpus);
        double slowdown = sharing(training), iteration_s = training->iteration_s * slowdown / core_ratio;
        occupy(training, core_ratio, slowdown);
        double left_s = (training->iterations - training->iteration) * iteration_s;
        burn(fmin(left_s, TICK_S) * options->cpu_load);
        int sig = wait_signal(training, fmax(0, fmin(left_s, last_s + TICK_S - now_s())));
        double time_s = now_s(), gone_s = time_s - last_s;
        training->iteration += fmin(gone_s, STALL_S) / iteration_s;
        last_s = time_s;
        int error = failed(training);
        if (error)
            end_with(error);
        if (time_s - told_s >= TELL_S) {
            told_s = time_s;
            tell(training);
        }
        if (options->report_s > 0 && time_s - reported_s >= options->report_s) {
            reported_s = time_s;
            say(training, "iteration %.0f of %.0f (%.1f %%), %.1f samples/s", training->iteration, training->iterations,
                100 * training->iteration / training->iterations,
                options->batch * gpus * training->place.ranks / (iteration_s * options->time_scale));
        }
        if (sig)
            return sig;
        if (training->place.rank && *training->end_marker && access(training->end_marker, F_OK) == 0)
            break;
    }
    return 0;
}

/* All done: the checkpoint goes, and a marker tells the other ranks. */
static void finish(struct training *training)
{
    tell(training);
    say(training, "finished %.0f iterations", training->iterations);
    if (training->place.rank || !*training->checkpoint)
        return;
    if (training->place.ranks > 1) {
        FILE *marker = fopen(training->end_marker, "we");
        if (marker)
            fclose(marker);
    }
    unlink(training->checkpoint);
}

int main(int argc, char **argv)
{
    static struct training training;
    prepare(&training, argc, argv);
    take_signals(&training);
    /* volatile: newer compilers leave out an allocation that is only written to */
    size_t bytes = training.options.memory_mib * 1048576ul;
    volatile char *memory = malloc(bytes + 1);
    for (size_t at = 0; memory && at < bytes; at += PAGE_BYTES)
        memory[at] = 1;
    int error = take_gpus(&training);
    if (error)
        end_with(error);
    say(&training, "%s, batch size %u, %u GPUs%s, %u cores, %.0f iterations", training.profile.model,
        training.options.batch, training.place.gpu_count * training.place.ranks, training.mps.server ? " by MPS" : "",
        place_cores(), training.iterations);
    int sig = resume(&training);
    if (!sig)
        sig = iterate(&training);
    int status = sig ? stop(&training, sig) : 0;
    if (!sig)
        finish(&training);
    gpu_state_clear();
    free((void *)memory);
    return status;
}
