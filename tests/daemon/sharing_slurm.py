"""The small Slurm with a second GRES over its GPUs, and with the walls that its nodes' hooks are."""

from __future__ import annotations

import re
from dataclasses import replace

from slurm_soda.slurm_ext.client import JobUpdate, SlurmNode
from slurm_soda.slurm_ext.hints.flags import Hints
from slurm_soda.slurm_ext.sharing.guest_record import is_guest_record, parse_guest_record
from tests.daemon.fake_slurm import FakeJob, FakeSlurm

CONSENTS = Hints(share=True)
_SHARED = re.compile(r"gres/sharedgpu:g(\d+):1")
_FIELDS = {"TresPerNode": "other_gres", "ReqNodeList": "req_node_names", "Extra": "extra"}


class SharingSlurm(FakeSlurm):
    """Hands out single GPUs; a guest starts where its hosts run, and goes when one of them ends."""

    refuse_gres = 0
    """So many updates are refused for their GRES; what they say of nodes is applied all the same."""
    drained = False
    held = False
    """No guest starts, for a reason that Slurm does not tell."""
    only_guests: frozenset[int] = frozenset()
    """Jobs that start as guests alone: others are always before them."""

    def submit(self, job_id: int, *, gpus: int = 1, work_s: float = 100.0, **more: object) -> FakeJob:
        more = {"hints": CONSENTS, "checkpoint": None, "memory_per_cpu_mib": 1000} | more
        return super().submit(job_id, gpus=gpus, work_s=work_s, other_gres=f"gres/gpu:{gpus}", **more)

    def requests(self) -> dict[int, tuple[str, str, str]]:
        """What jobs ask for: GRES, nodes, Extra."""
        return {job.job_id: (job.other_gres, job.req_node_names, job.extra) for job in self.all.values()}

    def tick(self) -> None:
        super().tick()
        for job in self.all.values():
            if job.state == "RUNNING" and job.guest and not self._is_safe(job):
                self.requeue(job.job_id)
        self._place()

    def _is_safe(self, guest: FakeJob) -> bool:
        if not is_guest_record(guest.extra):
            return False
        hosts = [self.all[host] for host in parse_guest_record(guest.extra).hosts if host in self.all]
        places = {at for host in hosts if host.state == "RUNNING" for at in host.devices}
        return places.issuperset(guest.devices)

    def _schedule(self) -> None:
        for job in self.all.values():
            if job.state != "PENDING":
                continue
            job.guest = "sharedgpu" in job.other_gres
            job.devices = tuple(map(int, _SHARED.findall(job.other_gres)))
            seats = {at for other in self._holding() if other.guest for at in other.devices}
            vain = self.held or not seats.isdisjoint(job.devices) if job.guest else job.job_id in self.only_guests
            job.never_starts = self.drained or vain
        super()._schedule()
        self._place()

    def _place(self) -> None:
        taken = {at for job in self._holding() if not job.guest for at in job.devices}
        for job in self._holding():
            if not job.guest and not job.devices:
                job.devices = tuple(at for at in range(self.gpus) if at not in taken)[: job.gpus]
                taken.update(job.devices)

    def _update(self, update: JobUpdate) -> str:
        fields = dict(update.fields)
        if not _FIELDS.keys() & fields.keys():
            return super()._update(update)
        self.updates += 1
        job = self.all[update.job_id]
        if job.state != "PENDING":
            return "Job is no longer pending execution"
        if self.refuse_gres and "TresPerNode" in fields:
            self.refuse_gres -= 1
            job.req_node_names = fields.get("ReqNodeList", job.req_node_names)
            return "Invalid generic resource (gres) specification"
        for name, value in fields.items():
            setattr(job, _FIELDS[name], value)
        job.guest = "sharedgpu" in job.other_gres
        job.devices = tuple(map(int, _SHARED.findall(job.other_gres)))
        return ""

    def nodes(self) -> list[SlurmNode]:
        usable, state = not self.drained, "MIXED+DRAIN" if self.drained else "MIXED"
        return [replace(node, usable=usable, state=state) for node in super().nodes()]
