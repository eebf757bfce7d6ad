#include "pairs.h"

#include <stdio.h>
#include <string.h>

void pairs_read(const char *path, const char *model, struct pairs *pairs)
{
    char line[256], own[32];
    FILE *file = fopen(path, "re");
    pairs->count = 0;
    while (file && pairs->count < PAIRS_MAX && fgets(line, sizeof line, file)) {
        typeof(pairs->row[0]) row;
        if (line[0] == '#' || sscanf(line, "%31s %31s %lf %lf", own, row.beside, &row.mps, &row.slices) != 4)
            continue;
        if (strcmp(own, model) == 0 && row.mps >= 1 && row.slices >= 1)
            pairs->row[pairs->count++] = row;
    }
    if (file)
        fclose(file);
}

double pairs_slowdown(const struct pairs *pairs, const char *beside, int under_mps)
{
    for (unsigned i = 0; i < pairs->count; i++)
        if (strcmp(pairs->row[i].beside, beside) == 0)
            return under_mps ? pairs->row[i].mps : pairs->row[i].slices;
    return 0;
}
