/* SPANK plugin: the --soda-... flags of sbatch, salloc and srun.
 *
 * Values are checked where the user types them. Good ones travel in the job's control environment (SODA_CATEGORY=cv):
 * job_submit.lua sees them there, Prolog and Epilog as SPANK_SODA_CATEGORY. On nodes it gives the tasks of a job that shares
 * GPUs the environment that the prolog left for them. Load it as `optional` in plugstack.conf: if it cannot be loaded, all
 * jobs run as without it. Nothing that fails here fails a job.
 *
 * Only spank.h is used. Slurm loads a plugin only into the version that it was compiled for.
 */
#define _GNU_SOURCE
#include <slurm/spank.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "task_environment.h"
#include "validate.h"

#define PLUGIN_NAME "soda"
#define SHARES "/run/slurm-soda-node/shares"

SPANK_PLUGIN(soda, 1)

/* Canonical values by flag; empty: not given. */
static char given[SODA_FLAG_COUNT][SODA_VALUE_MAX];

/* Ends the command as Slurm itself does after a bad option.
 *
 * Were the callback to return an error, Slurm would print a second line that repeats the value byte for byte, escape
 * sequences included, and would then call exit() just so: nothing has been asked of slurmctld yet.
 */
static _Noreturn void refuse(const struct soda_flag *flag, const char *text)
{
    char message[SODA_MESSAGE_MAX];
    soda_refusal(flag, text, message);
    slurm_error("%s", message);

    const char *wanted = getenv("SLURM_EXIT_ERROR");
    int status = wanted == NULL ? 0 : atoi(wanted);
    exit(status != 0 ? status : EXIT_FAILURE);
}

static int on_option(int index, const char *text, int remote)
{
    if (remote)
        return 0;
    const struct soda_flag *flag = &soda_flags[index];
    if (flag->kind == SODA_SWITCH) /* Slurm passes NULL, or "" from the environment */
        text = "yes";
    else if (text == NULL)
        text = "";
    if (!soda_canonical(flag, text, given[index]))
        refuse(flag, text);
    return 0;
}

/* Forgets the flags of the job around us, which Slurm hands on through the environment: an sbatch or salloc typed inside a
 * job would take them for its own, and a step has no use for them.
 */
static void forget_outer_job(void)
{
    if (getenv("SLURM_JOB_ID") == NULL)
        return;
    for (size_t i = 0; i < SODA_FLAG_COUNT; i++) {
        char name[128] = "SLURM_SPANK__SLURM_SPANK_OPTION_" PLUGIN_NAME "_";
        size_t at = strlen(name);
        for (const char *c = soda_flags[i].option; *c != '\0' && at + 1 < sizeof(name); c++)
            name[at++] = *c == '-' ? '_' : *c;
        name[at] = '\0';
        unsetenv(name);
    }
}

int slurm_spank_init(spank_t spank, int argc, char *argv[])
{
    (void)argc;
    (void)argv;
    spank_context_t context = spank_context();
    if (context == S_CTX_ALLOCATOR || context == S_CTX_LOCAL)
        forget_outer_job();
    else if (context != S_CTX_REMOTE)
        return 0;
    /* Also in slurmstepd: it warns in the job's output about options that nobody there knows. */
    for (int i = 0; i < SODA_FLAG_COUNT; i++) {
        const struct soda_flag *flag = &soda_flags[i];
        struct spank_option option = {
            .name = (char *)flag->option, /* copied, never written to */
            .arginfo = (char *)flag->metavar,
            .usage = (char *)flag->usage,
            .has_arg = flag->metavar != NULL,
            .val = i,
            .cb = on_option,
        };
        spank_err_t rc = spank_option_register(spank, &option);
        if (rc != ESPANK_SUCCESS)
            slurm_verbose("slurm-soda: --%s is not available: %s", flag->option, spank_strerror(rc));
    }
    return 0;
}

int slurm_spank_init_post_opt(spank_t spank, int argc, char *argv[])
{
    (void)argc;
    (void)argv;
    spank_context_t context = spank_context();
    uint32_t job;
    /* Still as root, which the tasks are not. */
    if (context == S_CTX_REMOTE && spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS)
        soda_read_environment(SHARES, job);
    if (context != S_CTX_ALLOCATOR && context != S_CTX_LOCAL)
        return 0;
    if (context == S_CTX_LOCAL && getenv("SLURM_JOB_ID") != NULL)
        return 0; /* a step: its job already has what it was submitted with */
    for (size_t i = 0; i < SODA_FLAG_COUNT; i++) {
        if (given[i][0] == '\0')
            continue;
        spank_err_t rc = spank_job_control_setenv(spank, soda_flags[i].env, given[i], 1);
        if (rc != ESPANK_SUCCESS)
            slurm_verbose("slurm-soda: --%s is not passed on: %s", soda_flags[i].option, spank_strerror(rc));
    }
    return 0;
}

static void change_variable(void *context, const char *name, const char *value)
{
    if (value == NULL)
        spank_unsetenv(context, name);
    else
        spank_setenv(context, name, value, 1);
}

/* Whether Slurm numbers a job's devices from 0, as it does where it constrains devices: its own answer where it has that
 * function, else what the kernel tells. */
static bool numbers_devices(void)
{
    bool (*ask)(void) = NULL;
    *(void **)&ask = dlsym(RTLD_DEFAULT, "gres_use_local_device_index");
    return ask != NULL ? ask() : soda_sees_own_devices("/proc/self/cgroup");
}

int slurm_spank_task_init(spank_t spank, int argc, char *argv[])
{
    (void)argc;
    (void)argv;
    soda_change_environment(numbers_devices(), change_variable, spank);
    return 0;
}
