"""Guests on one chosen GPU of a node while others are free: what they were given, by their own environment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.slurm_ext.sharing.guest_record import GuestRecord

NODE, GPU = "n1", 2
_SAYS = """#!/bin/bash
list=/sys/fs/cgroup/devices/slurm_*/uid_*/job_$SLURM_JOB_ID/devices.list
mine=$(sed -n 's/^c 195:\\([0-9]\\) .*/\\1/p' $list | tr '\\n' ' ')
echo "held=$SLURM_JOB_GPUS cuda=$CUDA_VISIBLE_DEVICES devices=$mine" >/home/alice/exact.$SLURM_JOB_ID
"""
EXPECTED = f"held={GPU} cuda=0 devices={GPU}"


@dataclass
class ExactGpu:
    """One host on the GPU; guests come and go there, one after another."""

    cluster: ContainerCluster

    def run(self, repeats: int) -> Iterator[str]:
        """What each guest found; :data:`EXPECTED` if it was right."""
        others = [self._submit("sleep 3600", "--gres=gpu:1", f"--nodelist={NODE}") for _ in range(GPU)]
        self._wait(others[-1], "RUNNING")
        host = self._submit("sleep 3600", "--gres=gpu:1", f"--nodelist={NODE}")
        self._wait(host, "RUNNING")
        self._root("scancel", *map(str, others))
        try:
            for _ in range(repeats):
                yield self._guest(host)
        finally:
            self._root("scancel", str(host))

    def _guest(self, host: int) -> str:
        job = self._submit(_SAYS, "--hold", "--gres=gpu:1")
        record = GuestRecord((host,), (GPU,), undo={"TresPerNode": "gres/gpu:1", "ReqNodeList": ""})
        fields = (f"TresPerNode=gres/sharedgpu:g{GPU}:1", f"ReqNodeList={NODE}", f"Extra={record.encode()}")
        self._root("scontrol", "update", f"jobid={job}", *fields)
        self._root("scontrol", "release", str(job))
        self._wait(job, "COMPLETED")
        return self._root("cat", f"/home/alice/exact.{job}").strip()

    def _submit(self, script: str, *options: str) -> int:
        argv = ("sbatch", "--parsable", "--requeue", "--mem=1", "--output=/dev/null", *options)
        text = script if script.startswith("#!") else f"#!/bin/bash\n{script}\n"
        return int(self.cluster.exec("alice", argv, input=text).check().stdout)

    def _wait(self, job: int, state: str) -> None:
        argv = ("squeue", "--noheader", "--states=all", "--format=%T", f"--jobs={job}")
        self.cluster.wait_until(lambda: self._root(*argv).strip() == state, f"job {job} is {state}")

    def _root(self, *argv: str) -> str:
        return self.cluster.exec("root", argv).check().stdout
