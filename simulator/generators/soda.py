"""SODA's month: CPU, training and inference jobs of the cluster that the paper watched.

Sections are the paper's; what it does not print is said to be our choice. Where such a choice is calibrated, it is to what
the paper says of its baseline, KELP-FIFO, never to what CODA or SODA gain over it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slurm_soda.policies.snapshot import IntColumn
from slurm_soda.simulator.generators.distributions import (
    DAY_S,
    LogNormalMixture,
    draw_arrivals,
    draw_choices,
    names_of_codes,
    split_by_shares,
    weekly_rates,
    zipf_shares,
)
from slurm_soda.simulator.traces.parsing.workload_assembly import assemble_workload
from slurm_soda.simulator.workload import Workload

DAYS = 30
CPU_JOBS, TRAINING_JOBS, INFERENCE_JOBS = 75_000, 25_000, 5_000
"""Section VI-A."""
NODE_CPUS = 28
"""Two sockets of 14 cores (Section III-A)."""
TRAINING_RUN_S = LogNormalMixture(((1.0, 5_634.0, 0.93),))
"""The log-normal distribution with 68.5 % above one hour and 39.6 % above two (Section VI-H)."""
TRAINING_SHAPES = ((1, 1), (1, 2), (1, 4), (2, 4), (4, 4))
"""Nodes, and GPUs on each (the form aNbG of Section IV-B)."""
SHAPE_SHARES = (0.39, 0.20, 0.275, 0.115, 0.02)
"""Our choice: 1, 2 and 4 GPUs are the common requests (Section III-B). Calibrated to how long GPU jobs wait under KELP-FIFO
(57.5 % for more than a minute, 33.2 % for more than an hour, Section VI-C): with the run times and the inference jobs they
ask for 78 % of the 400 GPUs on average. That is the active rate of Section III-A (seldom above 80 %), not the 90.2 % of
Section VI-B: with so many jobs of 4 and 8 GPUs on nodes of 5, a strict FIFO cannot have both figures at once."""
FEW, SOME, MANY = 0.761, 0.086, 0.153
"""Shares of GPU jobs that ask for 1 or 2 CPU cores for each GPU, for 3 to 10, and for more (Section III-B; that it is for
each GPU: Section VI-D)."""
ONE_OF_FEW = 0.6
"""Our choice: share of 1 core where 1 or 2 are asked for."""
MANY_MOST = 20
"""Most cores for each GPU: SODA takes up to 20 away (Section VI-D)."""
SERVICES = 12
"""Services with DNN models; one job of each always resides (Sections III-B and IV-E)."""
INFERENCE_RUN_S = LogNormalMixture(((1.0, 5.0 * 3600.0, 0.5),))
INFERENCE_CPUS = 2
"""Our choices: a job that the day's load calls for stays for some hours, on one GPU."""
CPU_RUN_S = LogNormalMixture(((1.0, 810.0, 1.5),))
CPU_CORES = (1, 2, 4, 8, 16, 28)
CORE_SHARES = (0.25, 0.20, 0.25, 0.15, 0.10, 0.05)
"""Our choices, calibrated to KELP-FIFO: with them half of the cluster's 2 240 cores are in use on average (52.8 %, Section
VI-F)."""
HEAVY_SHARE = 0.005
"""CPU jobs with a high demand for memory or network bandwidth (Section VI-G); their model is called so."""
CPU_RATES = weekly_rates(15.0, 0.8, (1.0, 1.0, 3.0, 1.0, 1.0, 0.5, 0.5))
"""Diurnal, with a burst on Wednesday that takes all cores (Sections III-A and III-B); the sizes are our choice, calibrated
to KELP-FIFO, under which 90.5 % of the CPU jobs start within 10 s (Section VI-C)."""
TRAINING_RATES = weekly_rates(15.0, 0.25, (1.0, 1.0, 1.0, 1.0, 1.0, 0.8, 0.8))
"""Our choice: use of GPUs is steadier than that of cores (Section III-A)."""
INFERENCE_RATES = weekly_rates(11.0, 0.9, (1.0,) * 7)
"""Few queries at night (Section IV-E); the sizes are our choice."""
CATEGORIES = ("speech", "nlp", "cv", "other")
MODELS = (("wavenet", "deepspeech"), ("bat", "transformer"), ("alexnet", "vgg16", "inception3", "resnet50"), ("other",))
"""Table I, by category."""
USERS = 20
"""Our choice: four companies and one institution (Section III-A) with four users each."""
MAIN_CATEGORY = (0, 1, 0, 2, 1)
"""Of the users of each tenant: speech, NLP and CV companies (Section III-A); the institution's is our choice. Most GPU
jobs are NLP and speech (Section VI-A)."""
MAIN_SHARE = 0.85
"""Our choice: a user submits similar jobs (Section V-B)."""
_LONGEST_S = 7 * DAY_S


def draw_month(rng: np.random.Generator, jobs: int, load_ratio: float, name: str) -> Workload:
    """So many jobs at the month's rate and mix: fewer jobs make a shorter time, not a lower load.

    Second 0 is Monday, 0:00. CPU jobs are labelled c1, c2, ..., training jobs t, inference jobs i.
    """
    kinds = (CPU_JOBS, TRAINING_JOBS, INFERENCE_JOBS)
    horizon_s = DAYS * DAY_S * jobs / sum(kinds) / load_ratio
    cpu, training, inference = split_by_shares(jobs, kinds)
    parts = (
        _cpu_jobs(rng, cpu, horizon_s),
        _training_jobs(rng, training, horizon_s),
        _inference_jobs(rng, inference, horizon_s),
    )
    columns: dict[str, Any] = {}
    for key, first in parts[0].items():
        if isinstance(first, np.ndarray):
            columns[key] = np.concatenate([part[key] for part in parts])
        else:
            columns[key] = [text for part in parts for text in part[key]]
    workload, _ = assemble_workload(name, **columns)
    return workload


def _cpu_jobs(rng: np.random.Generator, count: int, horizon_s: float) -> dict[str, Any]:
    nothing = np.zeros(count, dtype=np.int64)
    return {
        "label": _labels("c", count),
        "submit_s": draw_arrivals(rng, count, CPU_RATES, horizon_s),
        "run_s": CPU_RUN_S.draw(rng, count, 1.0, DAY_S),
        "gpus": nothing,
        "nodes": nothing + 1,
        "gpus_per_node": nothing,
        "cpus": np.array(CPU_CORES, dtype=np.int64)[draw_choices(rng, count, CORE_SHARES)],
        "preemptible": np.ones(count, dtype=np.bool_),
        "user": _users(draw_choices(rng, count, zipf_shares(USERS))),
        "category": [""] * count,
        "model": names_of_codes((rng.random(count) < HEAVY_SHARE).astype(np.int64), ("", "heavy-bandwidth")),
    }


def _training_jobs(rng: np.random.Generator, count: int, horizon_s: float) -> dict[str, Any]:
    user = draw_choices(rng, count, zipf_shares(USERS))
    shape = np.array(TRAINING_SHAPES, dtype=np.int64)[draw_choices(rng, count, SHAPE_SHARES)]
    nodes, per_node = shape[:, 0], shape[:, 1]
    category = _categories(rng, user)
    return {
        "label": _labels("t", count),
        "submit_s": draw_arrivals(rng, count, TRAINING_RATES, horizon_s),
        "run_s": TRAINING_RUN_S.draw(rng, count, 60.0, _LONGEST_S),
        "gpus": nodes * per_node,
        "nodes": nodes,
        "gpus_per_node": per_node,
        "cpus": nodes * per_node * _cores_per_gpu(rng, per_node),
        "preemptible": np.ones(count, dtype=np.bool_),
        "user": _users(user),
        "category": names_of_codes(category, CATEGORIES),
        "model": _models(rng, category),
    }


def _inference_jobs(rng: np.random.Generator, count: int, horizon_s: float) -> dict[str, Any]:
    ones = np.ones(count, dtype=np.int64)
    service = np.arange(count, dtype=np.int64) % SERVICES
    submit_s = draw_arrivals(rng, count, INFERENCE_RATES, horizon_s)
    run_s = INFERENCE_RUN_S.draw(rng, count, 60.0, _LONGEST_S)
    submit_s[:SERVICES] = 0.0
    run_s[:SERVICES] = max(np.ceil(horizon_s), 60.0)
    models = [model for category in MODELS[:3] for model in category]
    return {
        "label": _labels("i", count),
        "submit_s": submit_s,
        "run_s": run_s,
        "gpus": ones,
        "nodes": ones,
        "gpus_per_node": ones,
        "cpus": ones * INFERENCE_CPUS,
        "preemptible": np.zeros(count, dtype=np.bool_),
        "user": _users(service),
        "category": ["inference"] * count,
        "model": names_of_codes(service % len(models), models),
    }


def _cores_per_gpu(rng: np.random.Generator, per_node: IntColumn) -> IntColumn:
    """Cores for each GPU. More than 10 fit beside at most two GPUs of a node, so only such jobs ask for so many; the
    shares hold over all jobs.
    """
    count = len(per_node)
    narrow = per_node <= 2
    narrow_share = sum(share for (_, gpus), share in zip(TRAINING_SHAPES, SHAPE_SHARES, strict=True) if gpus <= 2)
    many = np.where(narrow, MANY / narrow_share, 0.0)
    at = rng.random(count)
    most = np.minimum(NODE_CPUS // per_node, MANY_MOST)
    few = np.where(rng.random(count) < ONE_OF_FEW, 1, 2)
    cores = np.where(at < 1.0 - SOME - many, few, _between(rng, 3, np.minimum(most, 10)))
    return np.where(at >= 1.0 - many, _between(rng, 11, np.maximum(most, 11)), cores)


def _between(rng: np.random.Generator, low: int, high: IntColumn) -> IntColumn:
    return low + np.floor(rng.random(len(high)) * (high - low + 1)).astype(np.int64)


def _categories(rng: np.random.Generator, user: IntColumn) -> IntColumn:
    own = np.array(MAIN_CATEGORY, dtype=np.int64)[user % len(MAIN_CATEGORY)]
    other = draw_choices(rng, len(user), (1.0,) * len(CATEGORIES))
    return np.where(rng.random(len(user)) < MAIN_SHARE, own, other)


def _models(rng: np.random.Generator, category: IntColumn) -> list[str]:
    pick = rng.random(len(category)).tolist()
    return [MODELS[code][int(at * len(MODELS[code]))] for code, at in zip(category.tolist(), pick, strict=True)]


def _labels(letter: str, count: int) -> list[str]:
    return [f"{letter}{number}" for number in range(1, count + 1)]


def _users(codes: IntColumn) -> list[str]:
    return names_of_codes(codes, [f"user{number:02d}" for number in range(1, USERS + 1)])
