/* task_environment_main DIRECTORY JOB 0|1: what soda_change_environment would change, one line each; "-" in front: removed. */
#include <stdio.h>
#include <stdlib.h>

#include "task_environment.h"

static void show(void *context, const char *name, const char *value)
{
    (void)context;
    if (value == NULL)
        printf("-%s\n", name);
    else
        printf("%s=%s\n", name, value);
}

int main(int argc, char *argv[])
{
    if (argc != 4)
        return 2;
    soda_read_environment(argv[1], (uint32_t)strtoul(argv[2], NULL, 10));
    soda_change_environment(argv[3][0] == '1', show, NULL);
    return 0;
}
