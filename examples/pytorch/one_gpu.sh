#!/bin/bash
#SBATCH --gres=gpu:1 --cpus-per-task=8 --time=8:00:00 --requeue --open-mode=append
#SBATCH --soda-category=other --soda-model=mlp --soda-batch-size=64 --soda-iterations=90000
#SBATCH --soda-checkpoint=TERM
#SBATCH --soda-share=yes --soda-max-slowdown=1.3
exec python3 train.py
