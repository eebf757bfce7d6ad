"""What trainings do to each other on one GPU: ``python -m benchmarks.colocation --out DIR``.

Trains ResNet-18 and -50, VGG-11, a transformer, an LSTM and a recommendation network, two batch sizes each, alone and in all
pairs, on data made up on the GPU, and counts steps per second: with time slices and, where NVIDIA MPS can be had, with
MPS. Beside speeds it notes memory, GPU utilisation (NVML) and the occupancy of kernels (PyTorch's profiler) of each
training alone.

DIR gets throughputs.json and throughputs-mps.json (pair tables, for `sodactl simulate --pairs`), profiles.csv, and
README.md with machine, driver, date and all slowdowns. A run that was cut goes on where it stopped; --minutes ends it in
good time. On one data-centre GPU all takes some ten minutes a way of sharing.

Needs Python 3.11 and PyTorch and nothing else, so this folder can be copied to a GPU machine. Without a GPU:
`--device cpu` takes two tiny models, which shows that it works and nothing more.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import time
from pathlib import Path

from benchmarks.colocation.journal import Journal, JournalError
from benchmarks.colocation.kinds import ON_CPU, ON_GPU, Run, TrainingKind, name_of, runs
from benchmarks.colocation.measure import ColocationBench, Windows
from benchmarks.colocation.mps import Mps, MpsError
from benchmarks.colocation.tables import write
from benchmarks.colocation.utilisation import Utilisation, driver
from benchmarks.colocation.workers import WorkerError


def main(argv: list[str] | None = None) -> int:
    """Measure what is not measured yet, and write the tables of what is."""
    asked = _options().parse_args(argv)
    kinds = tuple(asked.kinds or (ON_CPU if asked.device == "cpu" else ON_GPU))
    everything, until = runs(kinds), time.monotonic() + 60 * asked.minutes
    ways = {"no": (False,), "yes": (True,), "both": (False, True)}[asked.mps if asked.device != "cpu" else "no"]
    asked.out.mkdir(parents=True, exist_ok=True)
    try:
        journal = Journal(asked.out / "journal.jsonl")
        whole = True
        for mps in ways:
            whole &= _measure(journal, everything, asked, mps, until)
    except MpsError as error:
        print(f"without MPS: {error}", file=sys.stderr)
        whole = asked.mps != "yes"
    except (JournalError, WorkerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    gpu = asked.gpu or str(journal.machine.get("gpu", "cpu")).lower().replace(" ", "-")
    for path in write(journal, everything, gpu, asked.out):
        print(path)
    if not whole:
        print("not everything is measured: run it again to go on", file=sys.stderr)
    return 0 if whole else 3


def _measure(journal: Journal, everything: list[Run], asked: argparse.Namespace, mps: bool, until: float) -> bool:
    missing = [run for run in everything if journal.get(mps, run) is None]
    if not missing:
        return True
    with ColocationBench(
        asked.python, asked.device, Windows(asked.seconds, asked.times), Mps() if mps else None
    ) as bench:
        journal.of(_machine(bench, asked))
        for number, run in enumerate(missing, start=1):
            if time.monotonic() > until:
                return False
            with Utilisation() as utilisation:
                found = bench.measure(run)
            if asked.device != "cpu" and len(run) == 1 and found["fits"] and utilisation.ratio is not None:
                found["utilisation_ratio"] = utilisation.ratio
            journal.add(mps, run, found)
            told = ", ".join(f"{speed:.4g}/s" for speed in found["steps_per_s"]) if found["fits"] else "does not fit"
            print(f"{'MPS ' if mps else ''}{number}/{len(missing)} {name_of(run)}: {told}", flush=True)
    return True


def _machine(bench: ColocationBench, asked: argparse.Namespace) -> dict[str, object]:
    date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    told = {"date": date, "host_cpu": platform.processor() or platform.machine(), "kernel": platform.release()}
    if asked.device != "cpu":
        told["driver"] = driver()
    return {**bench.machine, **told, "seconds": asked.seconds, "times": asked.times, "device": asked.device}


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.colocation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of results")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="default: cuda")
    parser.add_argument("--mps", choices=("no", "yes", "both"), default="both", help="default: both")
    parser.add_argument(
        "--kinds", type=_kind, nargs="+", metavar="MODEL/BATCH", help="default: all, two batch sizes each"
    )
    parser.add_argument("--seconds", type=_positive, default=2.0, metavar="S", help="length of a window; default: 2")
    parser.add_argument(
        "--times", type=int, choices=range(1, 101), default=3, metavar="N", help="windows a run; default: 3"
    )
    parser.add_argument("--minutes", type=_positive, default=1e9, metavar="M", help="stop in good time after so many")
    parser.add_argument("--gpu", default="", metavar="NAME", help="the GPU's name in the tables; default: its own")
    parser.add_argument("--python", default=sys.executable, help="a Python that has PyTorch; default: this one")
    return parser


def _kind(text: str) -> TrainingKind:
    known = sorted({kind.model for kind in (*ON_GPU, *ON_CPU)})
    try:
        kind = TrainingKind.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if kind.model not in known:
        raise argparse.ArgumentTypeError(f"there is no model {kind.model!r}; there are: {', '.join(known)}")
    return kind


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"it must be a number above 0, not {text!r}")
    return value


if __name__ == "__main__":
    raise SystemExit(main())
