#include "validate.h"

#include <stdio.h>
#include <string.h>

#define ARRAY_LENGTH(a) (sizeof(a) / sizeof((a)[0]))
#define DIGITS "0123456789"
#define SMALL "abcdefghijklmnopqrstuvwxyz"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

enum { SHOWN_BYTES = 40 };

const struct soda_flag soda_flags[SODA_FLAG_COUNT] = {SODA_FLAGS};

/* ctype.h and strcasecmp depend on the user's locale; these do not. */
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

static bool same_word(const char *text, size_t length, const char *word)
{
    if (strlen(word) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (lower(text[i]) != lower(word[i]))
            return false;
    return true;
}

static const char *one_of(const char *text, size_t length, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (same_word(text, length, words[i]))
            return words[i];
    return NULL;
}

/* Decimal digits without sign or leading zero. */
static bool is_count(const char *text, size_t length, size_t max_digits)
{
    return length > 0 && length <= max_digits && text[0] != '0' && strspn(text, DIGITS) >= length;
}

/* Value of a count that is known to have at most 7 digits. */
static long count_value(const char *text, size_t length)
{
    long value = 0;
    for (size_t i = 0; i < length; i++)
        value = value * 10 + (text[i] - '0');
    return value;
}

/* A count times its factor; 0 if it is none or too large. */
static long scaled(const char *text, size_t length, long factor, long largest)
{
    size_t max_digits = 1;
    for (long rest = largest; rest >= 10; rest /= 10)
        max_digits++;
    if (!is_count(text, length, max_digits))
        return 0;
    long value = count_value(text, length);
    return value > largest / factor ? 0 : value * factor;
}

static bool model(const char *text, char *out)
{
    size_t length = strnlen(text, SODA_MODEL_MAX_BYTES + 1);
    if (length == 0 || length > SODA_MODEL_MAX_BYTES || strspn(text, LETTERS DIGITS) == 0 ||
        strspn(text, LETTERS DIGITS "._+-/") != length)
        return false;
    snprintf(out, SODA_VALUE_MAX, "%s", text);
    return true;
}

static bool service(const char *text, char *out)
{
    size_t length = strnlen(text, SODA_SERVICE_MAX_BYTES + 1);
    if (length == 0 || length > SODA_SERVICE_MAX_BYTES || strspn(text, SMALL DIGITS) == 0 ||
        strspn(text, SMALL DIGITS "-") != length)
        return false;
    snprintf(out, SODA_VALUE_MAX, "%s", text);
    return true;
}

static bool factor(const char *text, char *out)
{
    size_t whole = strcspn(text, ".");
    if (!is_count(text, whole, 2))
        return false;
    size_t length = strnlen(text, SODA_VALUE_MAX);
    if (text[whole] == '.') {
        size_t decimals = strspn(text + whole + 1, DIGITS);
        if (decimals == 0 || decimals > 3 || text[whole + 1 + decimals] != '\0')
            return false;
        while (text[length - 1] == '0')
            length--;
        if (text[length - 1] == '.')
            length--;
    }
    snprintf(out, SODA_VALUE_MAX, "%.*s", (int)length, text);
    return true;
}

static bool size(const char *text, char *out)
{
    size_t length = strnlen(text, SODA_VALUE_MAX);
    long unit = 1;
    if (length > 0) {
        char last = lower(text[length - 1]);
        unit = last == 'g' ? 1024 : last == 't' ? 1024L * 1024 : 1;
        if (last == 'm' || last == 'g' || last == 't')
            length--;
    }
    long mib = scaled(text, length, unit, SODA_GPU_MEMORY_MAX_MIB);
    if (mib == 0)
        return false;
    snprintf(out, SODA_VALUE_MAX, "%ldM", mib);
    return true;
}

static bool checkpoint(const char *text, char *out)
{
    static const char *const signals[] = {SODA_SIGNALS};
    size_t length = strcspn(text, "@");
    size_t skip = length > 3 && same_word(text, 3, "SIG") ? 3 : 0;
    const char *name = one_of(text + skip, length - skip, signals, ARRAY_LENGTH(signals));
    if (name == NULL)
        return false;
    if (text[length] == '\0') {
        snprintf(out, SODA_VALUE_MAX, "%s", name);
        return true;
    }
    const char *grace = text + length + 1;
    size_t digits = strnlen(grace, SODA_VALUE_MAX);
    bool minutes = digits > 0 && grace[digits - 1] == 'm';
    if (digits > 0 && (minutes || grace[digits - 1] == 's'))
        digits--;
    long grace_s = scaled(grace, digits, minutes ? 60 : 1, SODA_GRACE_MAX_S);
    if (grace_s == 0)
        return false;
    snprintf(out, SODA_VALUE_MAX, "%s@%ld", name, grace_s);
    return true;
}

static bool word(const char *text, const char *const *words, size_t count, char *out)
{
    const char *found = one_of(text, strlen(text), words, count);
    if (found != NULL)
        snprintf(out, SODA_VALUE_MAX, "%s", found);
    return found != NULL;
}

bool soda_canonical(const struct soda_flag *flag, const char *text, char out[SODA_VALUE_MAX])
{
    static const char *const categories[] = {SODA_CATEGORIES};
    static const char *const answers[] = {"yes", "no"};
    switch (flag->kind) {
    case SODA_CHOICE:
        return word(text, categories, ARRAY_LENGTH(categories), out);
    case SODA_NAME:
        return model(text, out);
    case SODA_COUNT:
        if (!is_count(text, strlen(text), flag->max_digits))
            return false;
        snprintf(out, SODA_VALUE_MAX, "%s", text);
        return true;
    case SODA_SWITCH:
        return word(text, answers, 1, out);
    case SODA_YESNO:
        return word(text, answers, ARRAY_LENGTH(answers), out);
    case SODA_FACTOR:
        return factor(text, out);
    case SODA_SIZE:
        return size(text, out);
    case SODA_CHECKPOINT:
        return checkpoint(text, out);
    case SODA_SERVICE:
        return service(text, out);
    }
    return false;
}

void soda_refusal(const struct soda_flag *flag, const char *text, char out[SODA_MESSAGE_MAX])
{
    char shown[SHOWN_BYTES + 1];
    size_t length = strnlen(text, SHOWN_BYTES + 1);
    size_t kept = length > SHOWN_BYTES ? SHOWN_BYTES : length;
    for (size_t i = 0; i < kept; i++)
        shown[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
    shown[kept] = '\0';
    snprintf(out, SODA_MESSAGE_MAX, "--%s: \"%s\"%s is not allowed; use %s", flag->option, shown,
             length > kept ? "..." : "", flag->allowed);
}
