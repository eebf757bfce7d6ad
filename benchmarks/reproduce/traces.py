"""The traces that peers were measured on, and settings that recur."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.reproduce.simulation import DATA

FREE = "min_run_s=0"
"""Jobs may be preempted at once, as in the papers' simulators; a real cluster waits a minute."""
PAPER_1H = ("thresholds_gpu_s=3600", "within_queue=start", FREE)
"""Tiresias' setting in its simulations: two queues, one hour of GPU service (Section 5.4), by first start."""
PAPER_TESTBED = ("thresholds_gpu_s=3200", "within_queue=start", FREE)
"""Tiresias' setting on its testbed (Section 5.2)."""


@dataclass(frozen=True, slots=True)
class PeerTrace:
    """A trace on the cluster that peers ran it on."""

    name: str
    path: str
    """Below the folder of traces."""
    cluster: str
    options: str = ""

    @property
    def source(self) -> str:
        """Its part of a command."""
        return " ".join(filter(None, (f"--trace {DATA}/{self.path}", self.options, f"--cluster {self.cluster}")))

    @property
    def words(self) -> str:
        """Name and cluster."""
        return f"{self.name} on {self.cluster}"


SIXTY = PeerTrace("60_job", "tiresias/60_job.csv", "4x4")
W6_160 = PeerTrace("w6_160", "pollux/exclusive/w6_160.csv", "16x4")
W6_240 = PeerTrace("w6_240", "pollux/exclusive/w6_240.csv", "16x4")
W6_320 = PeerTrace("w6_320", "pollux/exclusive/w6_320.csv", "16x4")
W1_160 = PeerTrace("w1_160", "pollux/exclusive/w1_160.csv", "16x4")
SEQ5000 = PeerTrace("seq5000", "philly/seq5000.csv", "32x8")
VC = PeerTrace("vc_0e4a51", "philly/vc_0e4a51.csv", "16x4")
PHILLY_20000 = PeerTrace("philly, first 20,000 jobs", "philly/philly.csv", "32x8", "--jobs 20000")

TRACES = (SIXTY, W6_160, W6_240, W6_320, W1_160, SEQ5000, VC)
"""Those on which Tiresias' own simulator was run."""


def month(seed: int, jobs: int | None = None) -> str:
    """A generated month like Philly's, as part of a command."""
    return f"--workload philly-month --seed {seed}" + (f" --jobs {jobs}" if jobs else "")
