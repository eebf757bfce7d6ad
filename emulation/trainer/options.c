#define _GNU_SOURCE
#include "options.h"

#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef PROFILES
#define PROFILES "/usr/local/share/soda-train/profiles.tsv"
#define PAIRS "/usr/local/share/soda-train/pairs.tsv"
#endif

static const char HELP[] =
    "Usage: soda-train --model NAME (--iterations N | --duration-s S) [OPTION]...\n"
    "Emulate an iterative training on this job's (emulated) GPUs.\n"
    "\n"
    "  --model NAME          model of the profile file, such as resnet50\n"
    "  --batch-size N        samples an iteration on each GPU (default: the model's)\n"
    "  --iterations N        iterations to do in all\n"
    "  --duration-s S        as many iterations as fit S seconds of dedicated resources\n"
    "  --time-scale X        run X times faster than nominal: 60 makes a minute of an hour (default 1)\n"
    "  --checkpoint-dir DIR  keep the state here, in a file named by the job id; go on from it if it is there\n"
    "  --name NAME           name of that file instead of the job id\n"
    "  --signal NAME|N       checkpoint signal: save, then exit with status 75 (default TERM)\n"
    "  --save-s S            nominal time of a save (default: the model's)\n"
    "  --load-s S            nominal time to start from a checkpoint (default: the model's)\n"
    "  --linger-s S          after a save, wait so many real seconds for the end of the job (default 0)\n"
    "  --cpu-load F          real CPU time to burn, in cores (default 0.01)\n"
    "  --memory-mib N        real memory to touch (default 8)\n"
    "  --report-s S          real seconds between progress lines (default 5; 0 = none)\n"
    "  --gpu-memory-mib N    memory on each GPU (default: by model and batch size)\n"
    "  --fault-at N          at iteration N a kernel accesses an illegal address\n"
    "  --pairs FILE          slowdowns of pairs on one GPU (default $SODA_TRAIN_PAIRS or the installed ones)\n"
    "  --profiles FILE       profile file (default $SODA_TRAIN_PROFILES or the installed one)\n"
    "\n"
    "Under srun, rank 0 keeps the checkpoint; the other ranks occupy their GPUs and end with it.\n"
    "Exit status: 0 done, 64 bad command line, 70 error of CUDA, 74 the save failed, 75 stopped and saved, 143 stopped and not saved.\n";

static void refuse(const char *flag, const char *value, const char *allowed)
{
    fprintf(stderr, "soda-train: --%s: '%s' is not allowed; give %s\n", flag, value, allowed);
    exit(EXIT_USAGE);
}

static double real(const char *flag, const char *text, double least, double most)
{
    char *end, allowed[96];
    double value = strtod(text, &end);
    if (*text && *end == '\0' && isfinite(value) && value >= least && value <= most)
        return value;
    snprintf(allowed, sizeof allowed, "a number from %g to %g", least, most);
    refuse(flag, text, allowed);
    return 0;
}

static int signal_number(const char *text)
{
    const char *name = strncmp(text, "SIG", 3) == 0 ? text + 3 : text;
    for (int sig = 1; sig < 32; sig++) {
        const char *abbreviation = sigabbrev_np(sig);
        char digits[8];
        snprintf(digits, sizeof digits, "%d", sig);
        if (sig != SIGKILL && sig != SIGSTOP && abbreviation &&
            (strcmp(name, abbreviation) == 0 || strcmp(text, digits) == 0))
            return sig;
    }
    refuse("signal", text, "a signal that can be caught, such as TERM or USR1");
    return 0;
}

enum { MODEL = 1, BATCH, ITERATIONS, DURATION, SCALE, DIR_, NAME, SIGNAL, SAVE, LOAD, LINGER, CPU, MEMORY, REPORT, PROFILES_, GPU_MEMORY, FAULT, PAIRS_, HELP_ };

static const struct option LONG[] = {
    {"model", 1, 0, MODEL},        {"batch-size", 1, 0, BATCH},    {"iterations", 1, 0, ITERATIONS},
    {"duration-s", 1, 0, DURATION}, {"time-scale", 1, 0, SCALE},    {"checkpoint-dir", 1, 0, DIR_},
    {"name", 1, 0, NAME},          {"signal", 1, 0, SIGNAL},       {"save-s", 1, 0, SAVE},
    {"load-s", 1, 0, LOAD},        {"linger-s", 1, 0, LINGER},     {"cpu-load", 1, 0, CPU},
    {"memory-mib", 1, 0, MEMORY},  {"report-s", 1, 0, REPORT},     {"profiles", 1, 0, PROFILES_},
    {"gpu-memory-mib", 1, 0, GPU_MEMORY}, {"fault-at", 1, 0, FAULT}, {"pairs", 1, 0, PAIRS_},
    {"help", 0, 0, HELP_},         {0, 0, 0, 0},
};

static void take(int option, const char *flag, struct options *o)
{
    switch (option) {
    case MODEL: o->model = optarg; break;
    case BATCH: o->batch = (unsigned)real(flag, optarg, 1, 1 << 20); break;
    case ITERATIONS: o->iterations = real(flag, optarg, 1, 1e12); break;
    case DURATION: o->duration_s = real(flag, optarg, 0.001, 1e9); break;
    case SCALE: o->time_scale = real(flag, optarg, 0.001, 1e6); break;
    case DIR_: o->checkpoint_dir = optarg; break;
    case NAME: o->name = optarg; break;
    case SIGNAL: o->signal = signal_number(optarg); break;
    case SAVE: o->save_s = real(flag, optarg, 0, 1e6); break;
    case LOAD: o->load_s = real(flag, optarg, 0, 1e6); break;
    case LINGER: o->linger_s = real(flag, optarg, 0, 86400); break;
    case CPU: o->cpu_load = real(flag, optarg, 0, 1); break;
    case MEMORY: o->memory_mib = (unsigned)real(flag, optarg, 0, 65536); break;
    case REPORT: o->report_s = real(flag, optarg, 0, 1e6); break;
    case GPU_MEMORY: o->gpu_memory_mib = (unsigned)real(flag, optarg, 1, 1 << 30); break;
    case FAULT: o->fault_iteration = real(flag, optarg, 1, 1e12); break;
    case PAIRS_: o->pairs = optarg; break;
    case PROFILES_: o->profiles = optarg; break;
    case HELP_: fputs(HELP, stdout); exit(0);
    default: exit(EXIT_USAGE); /* getopt has said why */
    }
}

void options_parse(int argc, char **argv, struct options *options)
{
    const char *installed = getenv("SODA_TRAIN_PROFILES"), *pairs = getenv("SODA_TRAIN_PAIRS");
    *options = (struct options){
        .profiles = installed && *installed ? installed : PROFILES,
        .pairs = pairs && *pairs ? pairs : PAIRS, .time_scale = 1, .cpu_load = 0.01, .save_s = -1,
        .load_s = -1, .report_s = 5, .memory_mib = 8, .signal = SIGTERM,
    };
    for (int option, at = 0; (option = getopt_long(argc, argv, "", LONG, &at)) != -1;)
        take(option, LONG[at].name, options);
    if (optind < argc)
        refuse("model", argv[optind], "options only; soda-train takes no other words");
    if (!options->model)
        refuse("model", "", "a model, such as resnet50");
    if ((options->iterations > 0) == (options->duration_s > 0))
        refuse("iterations", "", "either --iterations or --duration-s");
    if (options->name && (strchr(options->name, '/') || *options->name == '.' || !*options->name))
        refuse("name", options->name, "a plain file name");
}
