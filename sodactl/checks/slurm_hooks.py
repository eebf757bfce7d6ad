"""Checks of slurm-soda's own parts inside Slurm: plugin, lua module, prolog and epilog."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from slurm_soda.slurm_ext.errors import NOT_FOUND
from slurm_soda.slurm_ext.read.site_guards import beginning, files_of, lua_code, our_scripts
from slurm_soda.slurm_ext.read.slurm_config import SlurmConfig, list_config_values, runs_slurmctld
from slurm_soda.sodactl.checks.check_result import CheckResult, CommandProbe, failure_text

SPANK_PLUGIN = "soda_spank.so"
LUA_MODULE = "soda.lua"
LUA_PARTS = ("soda_hints.lua", "soda_routes.lua", "soda_guests.lua")
"""What soda.lua loads from its own folder."""
_UNPROTECTED = re.compile(r"^(?!.*\b(?:pcall|with_soda)\b).*\bsoda\.(?:submit|modify)\s*\(", re.M)
"""A call of ours outside pcall: from Slurm 26.05 on an error in it costs the submission."""
_MOST_INCLUDED = 3
"""How deep files of a plugin stack are followed that include others."""
_INCLUDED = re.compile(r"""["'](/[^"']*/)soda\.lua["']""")
_SETTING = re.compile(r"^[ \t]*(JobSubmitPlugins|SlurmctldHost)[ \t]*=[ \t]*(\S+)", re.I | re.M)
_SHOWN_KEYS = {"jobsubmitplugins": "JobSubmitPlugins", "slurmctldhost": "SlurmctldHost"}
"""As slurmctld shows them; in slurm.conf they may be in small letters."""
HOOK_PROGRAM = "soda-deliver-event"
HOOK_PYTHON = "lib/slurm-soda/current/bin/python"
"""In the prefix: the Python that a hook takes where the program does not serve."""
_HEADINGS = {
    "prolog": b"# slurm-soda's prolog:",
    "epilog": b"# slurm-soda's epilog:",
    "epilogctld": b"# slurm-soda's EpilogSlurmctld:",
}
"""By hook the beginning of its first comment."""
INSTALL_DIR = "/opt/slurm-soda"


def check_flags(probe: CommandProbe) -> CheckResult:
    """Our flags are known to sbatch, so the SPANK plugin is loaded here."""
    done = probe.run("sbatch", "--help")
    if done.status == NOT_FOUND:
        return CheckResult("sbatch flags", "skip", failure_text(done), "look where users submit")
    text = done.stdout.decode("utf-8", "surrogateescape") if done.status == 0 else ""
    count = sum(line.strip().startswith("--soda-") for line in text.splitlines())
    if count:
        return CheckResult("sbatch flags", "ok", f"sbatch lists {count} --soda flags")
    remedy = f"put `optional {INSTALL_DIR}/lib/{SPANK_PLUGIN}` into plugstack.conf, built for this release of Slurm"
    return CheckResult("sbatch flags", "fail", "sbatch lists no --soda flag", remedy)


def check_plugin_stack(config: SlurmConfig) -> CheckResult:
    """plugstack.conf names the plugin, and as optional."""
    named = list_config_values(config, "PlugStackConfig")
    path = Path(named[0]) if named else _slurm_conf(config).with_name("plugstack.conf")
    try:
        lines = _plugin_stack(path)
    except OSError as error:
        return CheckResult("plugstack.conf", "skip", f"{path}: {error.strerror}", "look on a machine that has it")
    ours = [words for words in lines if len(words) > 1 and words[1].endswith(SPANK_PLUGIN)]
    if not ours:
        return CheckResult(
            "plugstack.conf",
            "warn",
            f"{path} and what it includes do not name {SPANK_PLUGIN}",
            f"put `optional {INSTALL_DIR}/lib/{SPANK_PLUGIN}` into it",
        )
    if ours[0][0] != "optional":
        remedy = "say `optional`: a plugin of another release would stop slurmd and sbatch"
        return CheckResult("plugstack.conf", "fail", f"{SPANK_PLUGIN} is {ours[0][0]}", remedy)
    if not _is_there(Path(ours[0][1])):
        return CheckResult(
            "plugstack.conf", "fail", f"{ours[0][1]} does not exist", "install slurm-soda's plugin on every node"
        )
    return CheckResult("plugstack.conf", "ok", f"optional {ours[0][1]}")


def _plugin_stack(path: Path, depth: int = _MOST_INCLUDED) -> list[list[str]]:
    """Words of the lines of a plugstack.conf and of the files that it includes.

    Raises:
        OSError: it cannot be read; an included file that cannot has no lines.
    """
    lines = [line.split() for line in path.read_text("utf-8", "surrogateescape").splitlines()]
    for words in [words for words in lines if words[:1] == ["include"] and len(words) > 1 and depth]:
        pattern = path.parent / words[1]
        for included in sorted(pattern.parent.glob(pattern.name)):
            with suppress(OSError):
                lines += _plugin_stack(included, depth - 1)
    return lines


def check_job_submit(config: SlurmConfig, host: str) -> CheckResult:
    """The site's job_submit.lua is run and includes our module: hints travel through it. ``host`` is where this runs."""
    plugins = config.get("JobSubmitPlugins", "(null)")
    if "lua" not in plugins.split(","):
        return CheckResult(
            "job_submit", "fail", f"JobSubmitPlugins={plugins}", "set JobSubmitPlugins=lua: hints travel through it"
        )
    path = job_submit_path(config)
    try:
        text = path.read_text("utf-8", "surrogateescape")
    except OSError as error:
        missing = isinstance(error, FileNotFoundError) and runs_slurmctld(config, host)
        elsewhere = CheckResult("job_submit", "skip", f"{path}: {error.strerror}", "look on the machine of slurmctld")
        return _script_missing(path) if missing else elsewhere
    code = lua_code(text)
    if LUA_MODULE not in code:
        return CheckResult(
            "job_submit",
            "fail",
            f"{path} does not include {LUA_MODULE}",
            f"add pcall(dofile, '{INSTALL_DIR}/lib/{LUA_MODULE}')",
        )
    included = _INCLUDED.search(code)
    folder = Path(included[1]) if included else None
    absent = [name for name in (LUA_MODULE, *LUA_PARTS) if folder and not _is_there(folder / name, 1)]
    if absent:
        return CheckResult(
            "job_submit",
            "fail",
            f"{folder} has no {', '.join(absent)}: jobs are taken without hints",
            f"install slurm-soda on the controller again, then touch {path}",
        )
    if found := _UNPROTECTED.search(code):
        return CheckResult(
            "job_submit",
            "warn",
            f"{path} calls {LUA_MODULE} outside pcall: {found[0].strip()}",
            "call it as docs/site-lua.md does: from Slurm 26.05 on a module that will not do costs every submission",
        )
    return CheckResult("job_submit", "ok", f"{path} includes {LUA_MODULE}")


def check_start(host: str) -> Iterator[CheckResult]:
    """What keeps slurmctld from starting, by slurm.conf itself: for while it does not answer."""
    path = _slurm_conf({})
    with suppress(OSError):
        pairs = _SETTING.findall(path.read_text("utf-8", "surrogateescape"))
        # SlurmctldHost may stand there several times.
        config = {f"{_SHOWN_KEYS[key.lower()]}[{at}]": value for at, (key, value) in enumerate(pairs)}
        plugins = ",".join(list_config_values(config, "JobSubmitPlugins")).split(",")
        script = path.with_name("job_submit.lua")
        if "lua" in plugins and runs_slurmctld(config, host) and not _is_there(script):
            yield _script_missing(script)


def _script_missing(path: Path) -> CheckResult:
    remedy = f"slurmctld will not start: copy slurm_ext/lua/job_submit.lua of slurm-soda to {path}"
    return CheckResult("job_submit", "fail", f"{path}: No such file or directory, and JobSubmitPlugins=lua", remedy)


def job_submit_path(config: SlurmConfig) -> Path:
    """Where slurmctld reads the site's script."""
    return _slurm_conf(config).with_name("job_submit.lua")


def _slurm_conf(config: SlurmConfig) -> Path:
    return Path(config.get("SLURM_CONF") or os.environ.get("SLURM_CONF") or "/etc/slurm/slurm.conf")


def _is_there(path: Path, least_bytes: int = 0) -> bool:
    """The file is there, with so much in it; what we have no right to see counts as there."""
    try:
        return path.stat().st_size >= least_bytes
    except PermissionError:
        return True
    except OSError:
        return False


HOOK_SCRIPTS = (
    ("Prolog", "prolog", "usage of jobs is found later and less exactly"),
    ("Epilog", "epilog", "usage of jobs is found later and less exactly"),
    ("EpilogSlurmctld", "epilogctld", "sodad notices the end of a job only when it next looks"),
)
"""Key of slurm.conf, our script, and what is lost without it."""


def check_hook_scripts(config: SlurmConfig) -> Iterator[CheckResult]:
    """Prolog and epilog run ours, which find what they need; the epilog of slurmctld wakes sodad."""
    for key, script, loss in HOOK_SCRIPTS:
        paths = list_config_values(config, key)
        found = f"{key}={', '.join(paths) or '(null)'}"
        files = [file for path in paths for file in files_of(Path(path))]
        # By its text, whatever its name: the file itself, a link to it, or a copy.
        ours = [file for file in files if _HEADINGS[script] in beginning(file)]
        remedy = f"run {INSTALL_DIR}/libexec/{script} from it; without it {loss}"
        if script != "epilogctld" and (lost := [file for file in ours if not _way_to_the_agent(file)]):
            yield CheckResult(
                script,
                "fail",
                f"{found}; {lost[0]} finds neither {HOOK_PROGRAM} nor Python's way: jobs leave no record",
                f"call or link {INSTALL_DIR}/libexec/{script}, do not copy it; else make install on this machine again",
            )
        elif our_scripts(config, key):
            slow = script != "epilogctld" and any(_way_to_the_agent(file) == "Python" for file in ours)
            yield CheckResult(script, "ok", found + (_SLOW_NOTE if slow else ""))
        else:
            yield CheckResult(script, "warn", found, remedy)


_SLOW_NOTE = f"; takes Python's way, some 20 ms a job more: {HOOK_PROGRAM} is not beside it (make install)"


def _way_to_the_agent(hook: Path) -> str:
    """How our prolog or epilog reaches the agent: it looks beside itself; a link, beside the file that it leads to."""
    try:
        folder = hook.resolve().parent
    except OSError:
        return "unknown"
    if _is_there(folder / HOOK_PROGRAM):
        return "program"
    return "Python" if _is_there(folder.parent / HOOK_PYTHON) else ""
