"""The systemd units, side by side: a site of one machine runs both daemons, one as SlurmUser and one as root."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
from collections import defaultdict
from pathlib import Path, PurePosixPath

import pytest

from slurm_soda.agent.network.net_cls import OWN_MOUNT
from slurm_soda.agent.settings.agent_config import STATE_DIRECTORY
from slurm_soda.daemon.api.connection_limits import ConnectionLimits
from slurm_soda.daemon.cycle.epoch import LOCK_NAME
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.wire.event_delivery import AGENT_SOCKET

TOP = Path(__file__).parents[2]
SODAD = TOP / "daemon" / "sodad.service"
EXPIRY = TOP / "daemon" / "sodad-expiry.service"
TIMER = TOP / "daemon" / "sodad-expiry.timer"
AGENT = TOP / "agent" / "soda-agent.service"
SHUT_IN = {
    "NoNewPrivileges", "CapabilityBoundingSet", "AmbientCapabilities", "ProtectSystem", "ProtectHome", "PrivateTmp",
    "PrivateDevices", "PrivateMounts", "ProtectClock", "ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs",
    "ProtectKernelModules", "ProtectKernelTunables", "ProtectProc", "LockPersonality", "RestrictNamespaces",
    "RestrictRealtime", "RestrictSUIDSGID", "RemoveIPC", "RestrictAddressFamilies", "SystemCallArchitectures",
    "SystemCallFilter", "SystemCallErrorNumber",
}  # fmt: skip
PARENTS = {
    "RuntimeDirectory": "/run",
    "StateDirectory": "/var/lib",
    "CacheDirectory": "/var/cache",
    "LogsDirectory": "/var/log",
}


def entries(unit: Path) -> list[tuple[str, str]]:
    """Keys and values of a unit file, in order; a key may come more than once."""
    lines = (line.partition("=") for line in unit.read_text().splitlines() if not line.startswith(("#", "[")))
    return [(key, value) for key, equals, value in lines if equals]


def directories(unit: Path) -> list[PurePosixPath]:
    """What systemd makes for the unit, and gives to the unit's user at every start."""
    return [
        PurePosixPath(PARENTS[key], name) for key, value in entries(unit) if key in PARENTS for name in value.split()
    ]


def user(unit: Path) -> str:
    return dict(entries(unit)).get("User", "root")


def test_no_directory_belongs_to_units_of_different_users() -> None:
    owners: dict[PurePosixPath, set[str]] = defaultdict(set)
    for unit in (SODAD, EXPIRY, AGENT):
        for directory in directories(unit):
            owners[directory].add(user(unit))
    assert {directory: users for directory, users in owners.items() if len(users) > 1} == {}
    assert (user(SODAD), user(EXPIRY), user(AGENT)) == ("slurm", "slurm", "root")


@pytest.mark.parametrize("unit", [SODAD, AGENT], ids=lambda unit: unit.stem)
def test_what_outlives_a_restart_is_kept(unit: Path) -> None:
    """Slurm touches the wake file, and the network's groups stay mounted, while the daemon is down."""
    assert dict(entries(unit))["RuntimeDirectoryPreserve"] == "yes"


def test_sodads_memory_and_descriptors_are_bounded() -> None:
    unit = dict(entries(SODAD))
    assert unit["MemoryMax"] == "25%"
    assert int(unit["LimitNOFILE"]) >= 4 * ConnectionLimits().connections


def text_of(path: str) -> str:
    return (TOP / path).read_text()


def found(path: str, pattern: str) -> str:
    match = re.search(pattern, text_of(path))
    assert match, f"{path} has no {pattern}"
    return match[1]


def test_the_agents_paths_are_in_directories_of_the_agents_unit() -> None:
    in_c = found("wire/deliver_event.c", r'#define AGENT_SOCKET "(.*)"')
    assert in_c == AGENT_SOCKET
    parents = {PurePosixPath(AGENT_SOCKET).parent, PurePosixPath(OWN_MOUNT).parent, PurePosixPath(STATE_DIRECTORY)}
    assert parents == set(directories(AGENT))
    assert str(PurePosixPath(AGENT_SOCKET).parent) in text_of("containers/image/start-node").split()


def test_sodads_paths_are_in_directories_of_sodads_unit() -> None:
    wake_path = Settings().wake_path
    assert found("slurm_ext/lua/soda.lua", r'wake_path = "(.*)"') == wake_path
    assert found("epilog/epilogctld", r"\$\{1:-(.*)\}/wake") == str(PurePosixPath(wake_path).parent)
    assert {PurePosixPath(wake_path).parent, PurePosixPath(Settings().state_dir)} == set(directories(SODAD))
    assert str(PurePosixPath(wake_path).parent) in text_of("containers/image/start-controller").split()


@pytest.mark.parametrize("unit", [SODAD, AGENT], ids=lambda unit: unit.stem)
def test_each_writes_only_to_its_own_directories(unit: Path) -> None:
    other = directories(AGENT if unit == SODAD else SODAD)
    written = [PurePosixPath(path) for key, value in entries(unit) if key == "ReadWritePaths" for path in value.split()]
    assert not [path for path in written for foreign in other if foreign.is_relative_to(path)]


def test_lifts_end_however_sodad_ends() -> None:
    sodad = dict(entries(SODAD))
    assert sodad["ExecStopPost"] == dict(entries(EXPIRY))["ExecStart"]
    assert TIMER.name in sodad["Wants"].split()


@pytest.mark.parametrize(("age_s", "looks"), [(0, False), (8, False), (11, True), (-60, True), (None, True)])
def test_the_store_is_opened_only_for_an_old_heartbeat(tmp_path: Path, age_s: int | None, looks: bool) -> None:
    # systemd takes $$ for $.
    argv = shlex.split(dict(entries(EXPIRY))["ExecCondition"].replace("$$", "$"))
    there, lock = str(PurePosixPath(Settings().state_dir, LOCK_NAME)), tmp_path / LOCK_NAME
    assert there in argv[2]
    if age_s is not None:
        lock.touch()
        os.utime(lock, (time.time() - age_s,) * 2)
    done = subprocess.run([*argv[:2], argv[2].replace(there, str(lock))], check=False)
    assert (done.returncode == 0) is looks


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
@pytest.mark.parametrize("unit", [SODAD, EXPIRY, AGENT], ids=lambda unit: unit.stem)
def test_systemd_understands_the_units(unit: Path, tmp_path: Path) -> None:
    there = tmp_path / unit.name
    # The programs are not installed here, and what a unit starts must exist.
    there.write_text(re.sub(r"=/opt/slurm-soda/(bin|libexec)/\S+", "=/bin/true", unit.read_text()))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(there)], capture_output=True, text=True, check=False
    )
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
@pytest.mark.parametrize(
    ("unit", "below"), [(SODAD, 3.0), (EXPIRY, 3.0), (AGENT, 5.0)], ids=lambda value: str(value)[-20:]
)
def test_the_units_are_shut_in(unit: Path, below: float) -> None:
    argv = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze judges only units that are loaded")
    level = re.search(rf"Overall exposure level for {re.escape(unit.name)}: ([0-9.]+)", done.stdout)
    assert level, done.stdout + done.stderr
    assert float(level[1]) < below


def test_sodad_and_its_expiry_are_shut_in_alike() -> None:
    """The expiry does what ExecStopPost of sodad does."""
    shut_in = [[entry for entry in entries(unit) if entry[0] in SHUT_IN] for unit in (SODAD, EXPIRY)]
    assert shut_in[0] == shut_in[1]
    assert {key for key, _ in shut_in[0]} == SHUT_IN


@pytest.mark.parametrize("unit", [SODAD, EXPIRY], ids=["sodad", "expiry"])
def test_commands_that_end_with_sodad_can_begin(unit: Path) -> None:
    """They are begun by setpriv, which calls capset even where there is nothing to set, and fails if it may not."""
    filters = [value for key, value in entries(unit) if key == "SystemCallFilter"]
    assert filters[0] == "@system-service"
    assert filters.index("capset") > filters.index("~@privileged @resources")


def test_nothing_lets_the_agent_write_where_it_must_not_or_lose_what_it_needs() -> None:
    unit = dict(entries(AGENT))
    # Each of these would take something away that the agent works with.
    assert (
        not {"User", "PrivateDevices", "ProtectControlGroups", "ProtectKernelTunables", "PrivateNetwork"} & unit.keys()
    )
    assert unit["CapabilityBoundingSet"].split() == [
        "CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SYS_NICE", "CAP_SYS_PTRACE", "CAP_CHOWN", "CAP_SETUID", "CAP_SETGID",
        "CAP_KILL", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH",
    ]  # fmt: skip
    assert unit["SystemCallErrorNumber"] == "EPERM"


def test_a_crowd_of_processes_leaves_the_agent_its_share() -> None:
    unit = dict(entries(AGENT))
    assert int(unit["CPUWeight"]) >= 100  # a group of its own, which counts as much as all jobs together
    assert int(unit["OOMScoreAdjust"]) < 0
