#!/bin/bash
# hold.sh ROLE SECONDS [ignore]: a job of benchmarks.walls. It takes a lock on each of its GPUs, which its processes hold for
# as long as one of them lives, and looks who holds the other one: a guest beside a job that is not its host is an overlap.
# ROLE: host, stranger, or guest:HOST,HOST…:GPU,GPU… It ends after SECONDS, or once there is a file end.JOB.
role=$1 until=$((SECONDS + $2)) home=/home/walls
[ "$3" != ignore ] || trap '' TERM
locks=/run/walls gpus=$SLURM_JOB_GPUS
case $role in guest:*) gpus=${role##*:} hosts=${role#*:} hosts=,${hosts%:*}, ;; esac
say() { echo "$EPOCHREALTIME $1 ${role%%:*} $SLURM_JOB_ID $SLURMD_NODENAME $gpus $2" >>$home/log; }

overlaps() { # of GPU $1
    if [ "${role%%:*}" = guest ]; then
        ! flock -n "$locks/$1.gpu" true || return 1
        read -r holder <"$locks/$1.gpu"
        case $hosts in *",$holder,"*) return 1 ;; esac
    else
        # Of a stranger, and of a host that comes back: whoever is there already came without being asked.
        ! flock -n "$locks/$1.guest" true
    fi
}

for gpu in ${gpus//,/ }; do
    [ "${role%%:*}" = guest ] && file=$locks/$gpu.guest || file=$locks/$gpu.gpu
    exec {fd}<>"$file"
    flock -n "$fd" || say overlap "two-of-a-kind-on-$gpu"
    echo "$SLURM_JOB_ID" >&"$fd"
done
say start "${CUDA_VISIBLE_DEVICES-unset}"
for gpu in ${gpus//,/ }; do
    overlaps "$gpu" && say overlap "$gpu"
done
while [ $SECONDS -lt $until ] && [ ! -e "$home/end.$SLURM_JOB_ID" ]; do
    sleep 0.1
done
say stop ended
