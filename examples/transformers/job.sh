#!/bin/bash
#SBATCH --gres=gpu:2 --cpus-per-task=16 --time=8:00:00 --requeue --open-mode=append
#SBATCH --soda-category=nlp --soda-model=distilbert-base-uncased --soda-batch-size=16 --soda-iterations=20000
#SBATCH --soda-checkpoint=TERM
#SBATCH --soda-share=yes --soda-max-slowdown=1.3
exec torchrun --standalone --nproc-per-node=gpu train.py
