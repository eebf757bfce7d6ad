/* How much one model slows down beside another on one GPU, from pairs.tsv. */
#ifndef SODA_TRAIN_PAIRS_H
#define SODA_TRAIN_PAIRS_H

#define PAIRS_MAX 128

/* Rows of one model. */
struct pairs {
    unsigned count;
    struct {
        char beside[32];
        double mps, slices;
    } row[PAIRS_MAX];
};

/* Read a model's rows; none where the file is missing. */
void pairs_read(const char *path, const char *model, struct pairs *pairs);

/* xi, 1 and up: time of an iteration beside the other one, against alone. 0 where the table does not say. */
double pairs_slowdown(const struct pairs *pairs, const char *beside, int under_mps);

#endif
