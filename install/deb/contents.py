"""What each Debian package is: its text, what it needs, and which third-party packages of Python are in it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution

PREFIX = "opt/slurm-soda"
"""As `make install` has it, below the root: documents, Slurm's configuration and `sodactl doctor` name these paths."""
STORE = f"{PREFIX}/lib/slurm-soda"
ENVIRONMENT = f"{STORE}/packaged"
"""The virtual environment; ``current`` beside it leads to it, as to those of `make install`."""

ONLY_SIMULATOR = ("matplotlib",)
"""Of the base requirements: only charts of simulations need it. A test compares it with what other commands import."""


@dataclass(frozen=True, slots=True)
class DebianPackage:
    """One package; relations are in the words of Debian's control files."""

    role: str
    """``slurm-soda-ROLE`` is its name."""
    summary: str
    text: str
    depends: tuple[str, ...] = ()
    recommends: tuple[str, ...] = ()
    suggests: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    """Packages that make way for this one."""
    conffiles: tuple[str, ...] = ()
    """Files of the administrator's: an upgrade keeps what he changed, a removal keeps them, a purge removes them."""

    @property
    def name(self) -> str:
        """Name of the package."""
        return f"slurm-soda-{self.role}"


_SAME = "slurm-soda-{} (= {{version}})"
COMMON = _SAME.format("common")
LOGIN = _SAME.format("login")

PACKAGES = (
    DebianPackage(
        "common",
        "what all parts of slurm-soda need",
        "The virtual environment at /opt/slurm-soda and the modules that controller, login nodes and compute nodes share.",
        depends=("{python}",),
    ),
    DebianPackage(
        "agent",
        "slurm-soda on a compute node",
        "soda-agent records what each job really used and limits what hurts others; prolog and epilog for Slurm.\n"
        "Nothing runs and Slurm runs nothing of it before soda-agent is enabled and slurm.conf names the scripts.",
        depends=(COMMON, "{python}", "{libraries}"),
        recommends=("munge", "iproute2"),
        suggests=("nftables",),
        conffiles=("etc/slurm-soda/agent.toml", "etc/slurm-soda/sharing.conf"),
    ),
    DebianPackage(
        "login",
        "sodactl, the command of slurm-soda",
        "Why a job waits, what it used, what is going on; control and checks for administrators.",
        depends=(COMMON, "{python}", "{libraries}"),
        recommends=("munge",),
        suggests=("slurm-soda-simulator", "slurm-soda-spank"),
    ),
    DebianPackage(
        "simulator",
        "schedulers of slurm-soda on a virtual cluster",
        "sodactl simulate, compare and whatif with their charts as pictures. Needs no Slurm.",
        depends=(LOGIN, "{python}", "{libraries}"),
    ),
    DebianPackage(
        "controller",
        "sodad, the daemon of slurm-soda beside slurmctld",
        "Orders and preempts the jobs of a Slurm cluster through Slurm's own commands, and explains each change.\n"
        "It does not run before it is enabled, and then only observes until an administrator says otherwise.",
        depends=(LOGIN, "{python}", "{libraries}"),
        recommends=("munge",),
        suggests=("slurm-soda-postgresql", "slurm-soda-simulator"),
        conffiles=("etc/slurm-soda/soda.toml",),
    ),
    DebianPackage(
        "postgresql",
        "PostgreSQL for the store of slurm-soda",
        "The driver for a store that several controllers share.",
        depends=(LOGIN, "{python}", "{libraries}"),
    ),
)
"""In the order in which they may be installed; the plugin, which has its Slurm in its name, comes besides."""


def spank_package(slurm: str) -> DebianPackage:
    """The plugin for one release of Slurm, such as ``24.11``; on a machine it takes the place of another one."""
    return DebianPackage(
        f"spank-slurm{slurm}",
        f"the --soda flags of sbatch, srun and salloc for Slurm {slurm}",
        f"A SPANK plugin that Slurm {slurm} alone loads, for login and compute nodes. plugstack.conf has to name it, as\n"
        "optional: a Slurm of another release then does without.",
        depends=("{libraries}",),
        provides=("slurm-soda-spank",),
        replaces=("slurm-soda-spank",),
    )


def normalised(name: str) -> str:
    """Name of a distribution as requirements compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed_by(roots: Iterable[str], found: Mapping[str, Distribution]) -> set[str]:
    """Normalised names of the distributions that these requirements bring, of those that are there.

    Markers are not evaluated: what is meant for other machines is not there. Requirements of extras are left out.
    """
    names: set[str] = set()
    ahead = [normalised(name) for name in roots]
    while ahead:
        name = ahead.pop()
        if name in names or name not in found:
            continue
        names.add(name)
        own = [line for line in found[name].requires or () if not re.search(r"\bextra ?==", line)]
        ahead += [normalised(re.split(r"[ \[(<>=!~;]", line, maxsplit=1)[0]) for line in own]
    return names


def requirement_names(lines: Iterable[str]) -> list[str]:
    """Names alone of requirements such as ``psycopg[binary]>=3.3``, those of the extra that they ask for too."""
    names = []
    for line in lines:
        name, _, extras = line.partition("[")
        names.append(normalised(re.split(r"[ <>=!~;]", name, maxsplit=1)[0]))
        names += [f"{names[-1]}-{normalised(extra)}" for extra in re.findall(r"\w+", extras.partition("]")[0])]
    return names


def divide(
    base: Collection[str], extras: Mapping[str, Collection[str]], found: Mapping[str, Distribution]
) -> dict[str, str]:
    """Role of each distribution that is there. What agent and login both need is common; else the first that needs it.

    Args:
        base: requirements of the project itself.
        extras: those of its extras, by name.
        found: what is installed, by normalised name.

    Raises:
        SystemExit: nobody needs one of them.
    """
    simulator = set(requirement_names(base))
    agent = needed_by(requirement_names(extras["agent"]), found)
    login = needed_by(simulator - set(ONLY_SIMULATOR), found)
    parts = (
        ("common", agent & login),
        ("agent", agent),
        ("login", login),
        ("simulator", needed_by(ONLY_SIMULATOR, found)),
        ("controller", needed_by(requirement_names(extras["controller"]), found)),
        ("postgresql", needed_by(requirement_names(extras["postgresql"]), found)),
    )
    role_of: dict[str, str] = {}
    for role, names in parts:
        for name in names:
            role_of.setdefault(name, role)
    if strangers := found.keys() - role_of.keys():
        raise SystemExit(f"no package needs {', '.join(sorted(strangers))}: contents.py must say whose it is")
    return role_of
