/* The saved state of a training: one small file, replaced as a whole or not at all. */
#ifndef SODA_TRAIN_CHECKPOINT_H
#define SODA_TRAIN_CHECKPOINT_H

struct checkpoint {
    char model[32];
    unsigned batch;
    double iteration;
};

/* 0; 1 if there is none; -1 if it is damaged, unreadable or of another model or batch size. */
int checkpoint_load(const char *path, struct checkpoint *checkpoint);

/* Write beside the old file for pause_s seconds, sync and rename: a kill at any moment leaves the old or the new one.
 * 0, or -1 with errno. */
int checkpoint_save(const char *path, const struct checkpoint *checkpoint, double pause_s);

#endif
