"""transformers.Trainer: the callback tells each step; asked for a checkpoint, the Trainer saves and stops."""

from __future__ import annotations

import os
import sys

from datasets import load_dataset
from slurm_soda_progress import STOPPED, Progress, transformers_callback
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint

MODEL = "distilbert-base-uncased"
OUTPUT = "job-%s" % os.environ.get("SLURM_JOB_ID", "0")


def main() -> int:
    progress = Progress(signals=("TERM",))
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    data = load_dataset("imdb", split="train").map(lambda rows: tokenizer(rows["text"], truncation=True), batched=True)
    trainer = Trainer(
        model=AutoModelForSequenceClassification.from_pretrained(MODEL, num_labels=2),
        args=TrainingArguments(
            output_dir=OUTPUT, max_steps=20_000, per_device_train_batch_size=16, save_steps=1000, save_total_limit=2
        ),
        train_dataset=data,
        data_collator=DataCollatorWithPadding(tokenizer),
        callbacks=[transformers_callback(progress)],
    )
    trainer.train(resume_from_checkpoint=get_last_checkpoint(OUTPUT) if os.path.isdir(OUTPUT) else None)
    return STOPPED if progress.should_stop() else 0


if __name__ == "__main__":
    sys.exit(main())
