/* Test driver: reads `option NUL value NUL` pairs and answers each with `=canonical NUL` or `!refusal NUL`. An empty
 * option asks for the table: all texts of a flag, then those of the next, each closed by NUL. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "validate.h"

static void print_table(void)
{
    for (int i = 0; i < SODA_FLAG_COUNT; i++) {
        const struct soda_flag *flag = &soda_flags[i];
        const char *texts[] = {flag->option, flag->env, flag->metavar ? flag->metavar : "", flag->allowed, flag->usage};
        for (int t = 0; t < 5; t++)
            printf("%s%c", texts[t], '\0');
    }
}

static const struct soda_flag *find(const char *option)
{
    for (int i = 0; i < SODA_FLAG_COUNT; i++)
        if (strcmp(soda_flags[i].option, option) == 0)
            return &soda_flags[i];
    return NULL;
}

int main(void)
{
    char *option = NULL, *value = NULL;
    size_t option_room = 0, value_room = 0;
    while (getdelim(&option, &option_room, '\0', stdin) > 0 && getdelim(&value, &value_room, '\0', stdin) > 0) {
        char canonical[SODA_VALUE_MAX], message[SODA_MESSAGE_MAX];
        if (option[0] == '\0') {
            print_table();
        } else if (soda_canonical(find(option), value, canonical)) {
            printf("=%s%c", canonical, '\0');
        } else {
            soda_refusal(find(option), value, message);
            printf("!%s%c", message, '\0');
        }
        fflush(stdout);
    }
    free(option);
    free(value);
    return 0;
}
