#!/bin/bash
#SBATCH --gres=gpu:1 --cpus-per-task=2 --time=1:00:00 --requeue --open-mode=append
#SBATCH --soda-model=example --soda-batch-size=64 --soda-iterations=1000
#SBATCH --soda-checkpoint=TERM
#SBATCH --soda-share=yes --soda-max-slowdown=1.5
exec python3 train.py "$@"
