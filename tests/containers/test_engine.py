"""Finding, installing and starting the engine, on machines that a table describes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import docker
import pytest

from slurm_soda.containers.cluster_spec import ClusterError
from slurm_soda.containers.docker_engine import DockerMachine, connect_docker

CLIENT = cast("docker.DockerClient", object())


@dataclass
class Told:
    """What the machine was told to do; the engine answers once it was told ``answers_after``."""

    answers_after: str | None
    refusal: OSError = field(default_factory=lambda: ConnectionError("refused"))
    commands: list[str] = field(default_factory=list)

    def connect(self) -> docker.DockerClient:
        if self.answers_after is None or not any(self.answers_after in command for command in self.commands):
            raise self.refusal
        return CLIENT

    def run(self, argv: Sequence[str]) -> None:
        self.commands.append(" ".join(argv))


def machine(root: Path, told: Told, *, system: str = "debian", uid: int = 0, **more: Any) -> DockerMachine:
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/os-release").write_text(f'NAME="x"\nID={system}\n')
    for path in more.pop("has", ()):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    environment = more.pop("environment", {})
    return DockerMachine(environment, root, uid, told.run, told.run, told.connect, lambda _: None, **more)


def test_an_engine_that_answers_is_used_and_nothing_is_done(tmp_path: Path) -> None:
    told = Told("")
    told.commands.append("")
    said: list[str] = []
    assert connect_docker(said.append, machine(tmp_path, told)) is CLIENT
    assert (said, told.commands) == ([], [""])


@pytest.mark.parametrize(
    ("has", "answers_after", "commands"),
    [
        ((), "dockerd", ["update", "install --no-install-recommends docker.io iptables", "dockerd"]),
        ((), "install", ["update", "install --no-install-recommends docker.io iptables"]),
        (("run/systemd/system",), "start docker", ["update", "docker.io iptables", "systemctl start docker"]),
        (("usr/bin/dockerd",), "dockerd", ["dockerd"]),
        (("usr/sbin/dockerd", "run/systemd/system"), "start docker", ["systemctl start docker"]),
    ],
)
def test_root_on_debian_gets_an_engine_and_is_told_so(
    tmp_path: Path, has: tuple[str, ...], answers_after: str, commands: list[str]
) -> None:
    told, said = Told(answers_after), []  # type: tuple[Told, list[str]]
    assert connect_docker(said.append, machine(tmp_path, told, has=has)) is CLIENT
    assert len(told.commands) == len(commands)
    assert all(command.endswith(end) for command, end in zip(told.commands, commands, strict=True)), told.commands
    assert said


@pytest.mark.parametrize(
    ("options", "refusal", "remedy"),
    [
        ({"uid": 1000}, ConnectionError(), "sudo apt-get install docker.io"),
        ({"uid": 1000, "has": ("usr/bin/dockerd",)}, ConnectionError(), "sudo systemctl start docker"),
        ({"system": "fedora"}, ConnectionError(), "https://docs.docker.com/engine/install/"),
        ({"uid": 1000}, PermissionError(), "sudo usermod -aG docker"),
        ({"environment": {"DOCKER_HOST": "tcp://far:1"}}, ConnectionError("no route"), "DOCKER_HOST=tcp://far:1"),
    ],
)
def test_where_nothing_may_be_installed_one_line_names_the_remedy(
    tmp_path: Path, options: dict[str, Any], refusal: OSError, remedy: str
) -> None:
    told = Told(None, refusal)
    with pytest.raises(ClusterError) as error:
        connect_docker(lambda _: None, machine(tmp_path, told, **options))
    assert remedy in str(error.value)
    assert "\n" not in str(error.value)
    assert told.commands == []


def test_an_engine_that_never_answers_is_given_up(tmp_path: Path) -> None:
    told = Told(None)
    with pytest.raises(ClusterError, match="did not answer within 60 s"):
        connect_docker(lambda _: None, machine(tmp_path, told, has=("usr/bin/dockerd",)))


@pytest.mark.parametrize(
    ("release", "debian"),
    [
        ("ID=debian\n", True),
        ("ID=ubuntu\nID_LIKE=debian\n", True),
        ('ID=linuxmint\nID_LIKE="ubuntu debian"\n', True),
        ("ID=fedora\n", False),
        ("garbage\n", False),
    ],
)
def test_debian_and_its_relatives_are_known(tmp_path: Path, release: str, debian: bool) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(release)
    assert DockerMachine(root=tmp_path).is_debian() is debian


def test_two_commands_at_once_install_and_start_the_engine_once(tmp_path: Path) -> None:
    """apt-get does not wait for another one: it fails."""
    told, met = Told("dockerd"), threading.Event()

    def slowly(argv: Sequence[str]) -> None:
        met.wait(0.2)  # long enough for the other one to come by
        told.run(argv)

    both = [replace(machine(tmp_path, told), run=slowly) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda one: connect_docker(lambda _: None, one), both))
    assert found == [CLIENT, CLIENT]
    assert len(told.commands) == 3
