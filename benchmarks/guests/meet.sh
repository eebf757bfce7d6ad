#!/bin/bash
# meet.sh SECONDS yes|no: a job that says who is on its GPUs. Whoever agreed holds a shared lock on each, whoever did not
# holds it alone: who gets no lock has met somebody without the consent of both. Locks end with the last process of a job.
until=$((SECONDS + $1)) home=/home/guests
say() { echo "$EPOCHREALTIME $1 $SLURM_JOB_ID $SLURMD_NODENAME $SLURM_JOB_GPUS $2" >>$home/log; }
[ "$2" = yes ] && how=-s || how=-x
for gpu in ${SLURM_JOB_GPUS//,/ }; do
    exec {lock}<>"/run/guests/$gpu"
    flock -n $how "$lock" || say met "$gpu"
done
say start "$2"
while [ $SECONDS -lt $until ]; do sleep 0.1; done
say stop "$2"
