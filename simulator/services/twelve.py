"""SODA's twelve services (paper 004, Sections III-B, IV-E and VI-E), and what the paper does not tell of them.

Nothing here was fitted to what SODA or CODA reach; :data:`GPUS_HELD` follows from the baselines and their ABACUS variants.
"""

from __future__ import annotations

import math

from slurm_soda.policies.services.service import Device, DeviceProfile, Service
from slurm_soda.simulator.generators.soda import INFERENCE_CPUS, MODELS, SERVICES
from slurm_soda.simulator.services.load import LoadCurve, draw_week
from slurm_soda.simulator.services.service_set import ServiceSet

TARGET_MS = 200.0
"""Section IV-E."""
WINDOW_MS = 50.0
"""Our choice, and slurm-soda's default: with the paper's window of half the target a query could wait for a batch before its
own, and be late."""
PROFILED_CORES = 16
"""Cores that GPU jobs leave of a node (Section IV-E)."""
QUERY_MS = {
    "resnet50": 95.96 / 2, "alexnet": 8.4, "inception3": 66.7, "vgg16": 181.0,
    "transformer": 17.7, "bat": 141.0, "wavenet": 400.0, "deepspeech": 400.0,
}  # fmt: skip
"""Time of one query on 16 cores. Of resnet50 it is printed (two take 95.96 ms, Section VI-E). The other networks for images
follow from it by their operations (0.72, 5.7 and 15.5 billion multiplications to its 4.1), and each of them is where
the largest batch of Table III puts it (a power of two within 200 ms). Of the others only Table III is known: the
geometric middle of what it allows, and for the two that cannot serve on cores twice the target."""
BANDWIDTH_GB_S = {
    "alexnet": 25.7, "resnet50": 26.9, "inception3": 27.0, "vgg16": 40.3, "bat": 29.5, "transformer": 26.3,
}  # fmt: skip
"""Table IV."""
NODE_BANDWIDTH_GB_S = 0.75 * 70.0
"""Of 70 GB/s in theory (Section IV-E), up to the threshold of contention (Section V-E)."""
GPU_SPEED = 23.0
"""How many times as fast as 16 cores a GPU answers: resnet50 (8.2 billion operations) at 35 % of a 1080Ti's 11.3 TFLOPS
takes 2.07 ms. The part is our choice, a usual one for such networks."""
MOST_BATCH = 64
"""Our choice: largest batch on a GPU, which has 11 GB."""
HEADROOM = 0.8
"""An instance is started beyond this part of the capacity (Section V-D)."""
GPUS_HELD = 32
"""GPUs that the services hold by day and by night where nobody places them. ABACUS puts three to four services on one GPU
(Section V-D). With the same work, GPU utilisation rises as active GPUs fall: from 45.5 % to 48.4 % of 360.8 active GPUs
under KELP-FIFO (Sections VI-B and VI-E), which are 21.6 fewer, and from 59.8 % to 64.5 % of 321.2 under CODA, 23.4 fewer.
With 3.5 services on a GPU that is 5 of 7 of what they held: 30 and 33."""
_OWNER = "services"


def soda_twelve(seed: int) -> ServiceSet:
    """The services with a week of load.

    Models are those that SODA's month gives its services, in turn. The k-th service has 1 / k of the first one's peak, in
    GPU instances, so that sized for their peaks all of them hold :data:`GPUS_HELD`.
    """
    models = [model for category in MODELS[:3] for model in category]
    served = [models[number % len(models)] for number in range(SERVICES)]
    sizes = peak_instances()
    peaks_qps = [size * HEADROOM * _gpu(model).capacity_qps for size, model in zip(sizes, served, strict=True)]
    services = tuple(
        _service(number, model, math.ceil(size)) for number, (model, size) in enumerate(zip(served, sizes, strict=True))
    )
    load: LoadCurve = draw_week(peaks_qps, seed)
    return ServiceSet("soda-twelve", services, load, NODE_BANDWIDTH_GB_S)


def peak_instances() -> list[float]:
    """GPU instances that each service needs at its peak: the largest of these sizes that hold :data:`GPUS_HELD` together."""
    first = GPUS_HELD * 4.0
    while sum(math.ceil(first / rank) for rank in range(1, SERVICES + 1)) > GPUS_HELD:
        first -= 0.01
    return [first / rank for rank in range(1, SERVICES + 1)]


def _service(number: int, model: str, size: int) -> Service:
    return Service(
        owner=_OWNER,
        name=f"{model}-{number + 1}",
        target_ms=TARGET_MS,
        window_ms=WINDOW_MS,
        least=1,
        most=max(size + 2, 8),
        cpu=_cpu(model),
        gpu=(_gpu(model),),
    )


def _batch_of(query_ms: float) -> int:
    """The most queries of which two batches and the window are within the target."""
    return int((TARGET_MS - WINDOW_MS) / 2.0 / query_ms)


def _cpu(model: str) -> DeviceProfile | None:
    """With the fewest cores that reach the batch of all 16, as time is in inverse proportion to cores."""
    query_ms = QUERY_MS[model]
    batch = _batch_of(query_ms)
    if not batch:
        return None
    cores = math.ceil(PROFILED_CORES * batch * query_ms * 2.0 / (TARGET_MS - WINDOW_MS))
    batch_ms = batch * query_ms * PROFILED_CORES / cores
    return DeviceProfile(Device.CPU, batch, batch_ms, cores=cores, bandwidth_gb_s=BANDWIDTH_GB_S[model])


def _gpu(model: str) -> DeviceProfile:
    query_ms = QUERY_MS[model] / GPU_SPEED
    batch = min(_batch_of(query_ms), MOST_BATCH)
    return DeviceProfile(Device.GPU, batch, batch * query_ms, cores=INFERENCE_CPUS)
