"""A PyTorch loop, alone or under torchrun: all processes stop after the same iteration, the first one saves."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from slurm_soda_progress import STOPPED, Progress
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ITERATIONS, BATCH = 90_000, 64
CHECKPOINT = "job-%s.pt" % os.environ.get("SLURM_JOB_ID", "0")
ASK_EVERY, SAVE_EVERY = 10, 1000


def save(model: nn.Module, optimizer: torch.optim.Optimizer, iteration: int) -> None:
    """Replace the checkpoint whole: a kill in the middle leaves the one before."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iteration": iteration}
    torch.save(state, CHECKPOINT + ".new")
    os.replace(CHECKPOINT + ".new", CHECKPOINT)


def main() -> int:
    parallel = "RANK" in os.environ  # torchrun
    progress = Progress(total=ITERATIONS, batch=BATCH, signals=("TERM",))  # before NCCL starts threads
    if parallel:
        dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 10)).to(device)
    optimizer, start = torch.optim.SGD(model.parameters(), lr=0.01), 0
    if os.path.exists(CHECKPOINT):
        state = torch.load(CHECKPOINT, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["iteration"]
        progress.resumed(start)
    trained = DistributedDataParallel(model, device_ids=[device.index]) if parallel else model
    first = not parallel or dist.get_rank() == 0

    for iteration in range(start + 1, ITERATIONS + 1):
        inputs = torch.randn(BATCH, 1024, device=device)  # your data, from this iteration on
        labels = torch.randint(10, (BATCH,), device=device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(trained(inputs), labels).backward()
        optimizer.step()
        progress.step(iteration)
        stop = iteration % ASK_EVERY == 0 and progress.any_should_stop()
        if stop or iteration % SAVE_EVERY == 0:
            if first:
                save(model, optimizer, iteration)
                progress.saved()
            if parallel:
                dist.barrier()
        if stop:
            return STOPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
