"""A made-up model whose tables follow simple laws, so that every time can be worked out by hand."""

from __future__ import annotations

from pathlib import Path

BATCHES = (8, 16, 32)
"""Local batches that were measured."""
PLACEMENTS = ("1", "2", "3", "4", "11", "12", "13", "22", "44", "24", "34")
SIZES = ((4, 4), (4, 8), (4, 16), (8, 8), (8, 32))
"""(nodes, GPUs) beyond the placements."""


def sync_s(nodes: int, gpus: int) -> float:
    """Synchronisation: nothing on one GPU, linear in nodes and in GPUs."""
    return 0.0 if gpus == 1 else 0.25 * nodes + 0.125 * gpus


def step_s(nodes: int, gpus: int, batch: float) -> float:
    """Computation is linear in the local batch."""
    return 0.5 + 0.0625 * batch + sync_s(nodes, gpus)


def write_model(directory: Path, name: str = "toy") -> Path:
    """Write the tables of one model; returns its directory."""
    folder = directory / name
    folder.mkdir(parents=True)
    lines = ["placement,local_bsz,step_time,sync_time"]
    for placement in PLACEMENTS:
        nodes, gpus = len(placement), sum(map(int, placement))
        lines += [f"{placement},{b},{step_s(nodes, gpus, b)},{sync_s(nodes, gpus)}" for b in BATCHES]
    (folder / "placements.csv").write_text("\n".join(lines) + "\n")
    lines = ["num_nodes,num_replicas,local_bsz,step_time,sync_time"]
    for nodes, gpus in SIZES:
        lines += [f"{nodes},{gpus},{b},{step_s(nodes, gpus, b)},{sync_s(nodes, gpus)}" for b in BATCHES]
    (folder / "scalability.csv").write_text("\n".join(lines) + "\n")
    # Two epochs; with the variance four times the squared norm, a step of twice the batch makes 5/3 of the progress.
    for batch, rows in {16: ((60, 60), (120, 120)), 32: ((60, 36), (120, 72)), 128: ((61, 18), (121, 36))}.items():
        lines = ["progress,iteration,metric,grad_sqr,grad_var"]
        lines += [f"{progress},{iteration},0.5,1,4" for progress, iteration in rows]
        (folder / f"validation-{batch}.csv").write_text("\n".join(lines) + "\n")
    return folder
