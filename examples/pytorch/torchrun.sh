#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gpus-per-node=4 --cpus-per-task=32 --time=8:00:00 --requeue --open-mode=append
#SBATCH --soda-category=other --soda-model=mlp --soda-batch-size=64 --soda-iterations=90000
#SBATCH --soda-checkpoint=TERM
#SBATCH --soda-share=yes --soda-max-slowdown=1.3
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# GPUs are counted in the task: a job that joined others' GPUs has them under another name in Slurm's variables.
exec srun torchrun --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node=gpu \
    --rdzv-backend=c10d --rdzv-endpoint="$first:29500" --rdzv-id="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" train.py
