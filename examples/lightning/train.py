"""lightning.Trainer: the callback tells each step; asked for a checkpoint by USR1, all processes save and stop."""

from __future__ import annotations

import os
import sys

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.environments import SLURMEnvironment
from slurm_soda_progress import STOPPED, Progress, lightning_callback
from torch import nn

FOLDER = "job-%s" % os.environ.get("SLURM_JOB_ID", "0")
CHECKPOINT = os.path.join(FOLDER, "last.ckpt")


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 10))

    def training_step(self, batch: tuple, _: int) -> torch.Tensor:
        inputs, labels = batch
        return nn.functional.cross_entropy(self.layers(inputs), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> int:
    progress = Progress(batch=64, signals=("USR1",))
    data = torch.utils.data.TensorDataset(torch.randn(64_000, 1024), torch.randint(10, (64_000,)))
    trainer = lightning.Trainer(
        max_steps=90_000,
        devices="auto",
        num_nodes=int(os.environ.get("SLURM_JOB_NUM_NODES", "1")),
        # Lightning's own requeueing would requeue the job a second time.
        plugins=[SLURMEnvironment(auto_requeue=False)] if "SLURM_JOB_ID" in os.environ else [],
        callbacks=[
            ModelCheckpoint(FOLDER, save_last=True, every_n_train_steps=1000),
            lightning_callback(progress, CHECKPOINT),
        ],
    )
    loader = torch.utils.data.DataLoader(data, batch_size=64)
    trainer.fit(Classifier(), loader, ckpt_path=CHECKPOINT if os.path.exists(CHECKPOINT) else None)
    return STOPPED if trainer.global_step < 90_000 else 0


if __name__ == "__main__":
    sys.exit(main())
