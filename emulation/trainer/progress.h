/* The progress file of a job, as docs/progress.md describes it. */
#ifndef SODA_TRAIN_PROGRESS_H
#define SODA_TRAIN_PROGRESS_H

/* Replace it, if this is a job and there is a directory for it; saved: negative without a checkpoint. */
void progress_write(double iteration, double seconds, double of, double saved, unsigned batch);

#endif
