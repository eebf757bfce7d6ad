"""Where net_cls is found: the system's mount, or one of our own. Plain directories stand for mounts; none is made here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slurm_soda.agent.network.net_cls import NetClsGroups
from slurm_soda.agent.network.shaper import NetworkError

BOTH = "net_cls,net_prio"


@dataclass
class Machine:
    """What is mounted, and what mount(8) answers."""

    path: Path
    refusals: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def mounted(self, *mounts: tuple[str, str, str]) -> None:
        """Mounts of cgroup v1 by name, the mount's options, and its controllers."""
        lines = [
            f"{30 + number} 24 0:27 / {self.path / name} {options} shared:9 - cgroup cgroup rw,{controllers}\n"
            for number, (name, options, controllers) in enumerate(mounts)
        ]
        (self.path / "proc/self").mkdir(parents=True, exist_ok=True)
        (self.path / "proc/self/mountinfo").write_text("24 1 8:1 / / rw - ext4 /dev/root rw\n" + "".join(lines))

    def run(self, argv: tuple[str, ...], stdin: bytes, timeout_s: float) -> tuple[int, bytes, bytes]:
        options = argv[4]
        self.asked.append(options)
        refusal = self.refusals.get(options)
        return (32, b"", refusal.encode()) if refusal else (0, b"", b"")

    def classes(self) -> NetClsGroups:
        return NetClsGroups("n1", self.path / "own", self.run, self.path / "proc")

    def class_id(self, mount: str) -> str:
        return (self.path / mount / "slurm-soda-n1/cpu/net_cls.classid").read_text()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_systems_mount_is_used_also_when_there_is_one_of_ours(machine: Machine) -> None:
    machine.mounted(("cpu", "rw,nosuid", "cpu,cpuacct"), ("own", "rw", "net_cls"), ("system", "rw,nosuid", BOTH))
    machine.classes().make()
    assert machine.class_id("system") == f"{0x50DA0020}\n"
    assert machine.asked == []


def test_a_mount_of_ours_is_used_again(machine: Machine) -> None:
    machine.mounted(("cpu", "rw,nosuid", "cpu,cpuacct"), ("own", "rw", "net_cls"))
    machine.classes().make()
    assert machine.class_id("own") == f"{0x50DA0020}\n"
    assert machine.asked == []


def test_a_mount_that_cannot_be_written_is_passed_over(machine: Machine) -> None:
    machine.mounted(("system", "ro,nosuid", BOTH))
    machine.refusals["net_cls"] = "already mounted"
    machine.classes().make()
    assert machine.asked == ["net_cls", BOTH]
    assert machine.class_id("own") == f"{0x50DA0020}\n"


def test_where_it_cannot_be_mounted_the_first_reason_is_told(machine: Machine) -> None:
    machine.mounted()
    machine.refusals = {"net_cls": "mount: unknown\n controller", BOTH: "other"}
    with pytest.raises(NetworkError) as caught:
        machine.classes().make()
    assert str(caught.value) == (
        "network: net_cls cannot be mounted, so jobs cannot be told apart: mount: unknown controller"
    )


def test_processes_are_not_placed_once_the_mount_has_gone(machine: Machine) -> None:
    machine.mounted()
    with pytest.raises(NetworkError, match="not mounted any more"):
        machine.classes().place(0x20, [1])


@pytest.mark.parametrize("row", ["net_cls\t0\t16\t1\n", ""], ids=("unused", "absent"))
def test_where_the_kernel_has_no_hierarchy_there_is_nothing_to_remove(machine: Machine, row: str) -> None:
    """A node on which net_cls can never be mounted would keep the mark of a link that is shared out, and a fault."""
    machine.mounted()
    (machine.path / "proc/cgroups").write_text(f"#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t16\t1\n{row}")
    machine.refusals = {"net_cls": "permission denied", BOTH: "permission denied"}
    machine.classes().remove()
    assert machine.asked == []


@pytest.mark.parametrize("row", ["net_cls\t22\t3\t1\n", "net_cls\n", None], ids=("in use", "odd", "cannot be read"))
def test_groups_that_may_be_there_are_not_forgotten(machine: Machine, row: str | None) -> None:
    machine.mounted()
    if row is not None:
        (machine.path / "proc/cgroups").write_text(row)
    machine.refusals = {"net_cls": "permission denied", BOTH: "permission denied"}
    with pytest.raises(NetworkError, match="permission denied"):
        machine.classes().remove()
