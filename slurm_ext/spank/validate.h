/* Rules of the --soda-... flags: what is allowed, and the canonical form of each value.
 *
 * The table of flags, flags.h, is written from slurm_ext/hints/flags.py; the rules are those of slurm_ext/hints/codec.py, and tests/hints
 * proves that both languages agree. This file knows nothing of Slurm, so that the tests can run it alone.
 */
#ifndef SODA_VALIDATE_H
#define SODA_VALIDATE_H

#include <stdbool.h>
#include <stddef.h>

#include "flags.h"

#pragma GCC visibility push(hidden) /* a plugin's names must not meet those of other plugins */

#define SODA_VALUE_MAX 80    /* bytes of the longest canonical value, its NUL included */
#define SODA_MESSAGE_MAX 512 /* bytes of the longest refusal, its NUL included */

enum soda_kind {
    SODA_CHOICE,
    SODA_NAME,
    SODA_COUNT,
    SODA_SWITCH,
    SODA_YESNO,
    SODA_FACTOR,
    SODA_SIZE,
    SODA_CHECKPOINT,
    SODA_SERVICE,
};

struct soda_flag {
    const char *option; /* on the command line, without the leading dashes */
    const char *env;    /* in the job's control environment */
    enum soda_kind kind;
    size_t max_digits;   /* of a SODA_COUNT */
    const char *metavar; /* NULL for a flag without a value */
    const char *allowed; /* what an error message says after "use" */
    const char *usage;   /* for sbatch --help */
};

extern const struct soda_flag soda_flags[SODA_FLAG_COUNT];

/* Writes the canonical form of a value. False, with out untouched, if the value is not allowed. */
bool soda_canonical(const struct soda_flag *flag, const char *text, char out[SODA_VALUE_MAX]);

/* Writes the one line that says why a value is refused: flag, value (safe for a terminal) and what is allowed. */
void soda_refusal(const struct soda_flag *flag, const char *text, char out[SODA_MESSAGE_MAX]);

#pragma GCC visibility pop

#endif
