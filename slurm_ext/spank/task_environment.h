/* What the prolog left for the tasks of a job on this node: variables to set and to remove (docs/design/0013).
 *
 * This file knows nothing of Slurm, so that the tests can run it alone.
 */
#ifndef SODA_TASK_ENVIRONMENT_H
#define SODA_TASK_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden) /* a plugin's names must not meet those of other plugins */

/* One variable of a task; value NULL: it is removed. */
typedef void soda_change(void *context, const char *name, const char *value);

/* Reads DIRECTORY/env.JOB, as root; what was read before is forgotten. A job that shares GPUs and whose file is not there, or
 * is not what a prolog of root's wrote, is to see no GPU. */
void soda_read_environment(const char *directory, uint32_t job);

/* Calls change for every variable, with the value for a job that is shown its own devices only (numbered), or for one that
 * is shown all of the node's. Without a record: never. */
void soda_change_environment(bool numbered, soda_change *change, void *context);

/* Whether /proc/PID/cgroup says that the kernel shows this process its job's devices only. With cgroup v1; v2 does not tell. */
bool soda_sees_own_devices(const char *cgroup_file);

#pragma GCC visibility pop

#endif
