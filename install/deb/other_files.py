"""Files that are no Python: hooks, units, configuration, documents, manual pages, completion, and Slurm's plugin."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from install.deb.contents import ENVIRONMENT, PREFIX, DebianPackage
from install.deb.python_files import COMMANDS, Files, link, write

HERE = Path(__file__).parent
_UNITS = {
    "daemon/sodad.service": "controller",
    "daemon/sodad-expiry.service": "controller",
    "daemon/sodad-expiry.timer": "controller",
    "agent/soda-agent.service": "agent",
}
_BOOT_FILES = {
    "slurm-soda-agent.tmpfiles": ("usr/lib/tmpfiles.d/slurm-soda-agent.conf", "agent"),
    "slurm-soda-controller.tmpfiles": ("usr/lib/tmpfiles.d/slurm-soda-controller.conf", "controller"),
    "slurm-soda-controller.sysusers": ("usr/lib/sysusers.d/slurm-soda-controller.conf", "controller"),
}
_COMPLETION = {
    "bash": "usr/share/bash-completion/completions/sodactl",
    "zsh": "usr/share/zsh/vendor-completions/_sodactl",
    "fish": "usr/share/fish/vendor_completions.d/sodactl.fish",
}
_PLUGIN_DROP_IN = f"{PREFIX}/share/slurm-soda/plugstack.conf.d/slurm-soda.conf"
_VERSION_PROGRAM = "#include <slurm/slurm.h>\nsoda SLURM_VERSION_NUMBER\n"
_DOCUMENTS = ("README.md", "docs/*.md", "docs/policies/*.md", "docs/design/*.md")


@dataclass(frozen=True, slots=True)
class OtherFiles:
    """Lays them out below ``root``, and says which role each is for."""

    top: Path
    root: Path
    work: Path
    environ: Mapping[str, str]

    def of_hooks(self) -> Files:
        """What Slurm runs and loads, with the paths of `make install`; what Prometheus and Grafana take; and what asks
        whether Slurm still names any of it.
        """
        files: Files = {}
        for variable, folder, role, mode in (
            ("NODE_HOOKS", "libexec", "agent", 0o755),
            ("CONTROLLER_HOOKS", "libexec", "controller", 0o755),
            ("LUA", "lib", "controller", 0o644),
            ("SHARED", "share/slurm-soda", "controller", 0o644),
        ):
            for source in self.environ[variable].split():
                self._copy(files, self.top / source, f"{PREFIX}/{folder}/{Path(source).name}", role, mode)
        for watching in sorted((self.top / "install" / "monitoring").iterdir()):
            self._copy(files, watching, f"{PREFIX}/share/slurm-soda/{watching.name}", "controller")
        for script in ("named_by_slurm.sh", "in_force.sh", "limits_left.sh"):
            self._copy(files, self.top / "install" / script, f"{ENVIRONMENT}/{script}", "common", 0o755)
        program = self._compile("wire", "soda-deliver-event", "BUILD=.")
        self._copy(files, program, f"{PREFIX}/libexec/soda-deliver-event", "agent", 0o755)
        return files

    def of_units(self) -> Files:
        """Units, what is made at boot, and links to commands in everybody's PATH."""
        files: Files = {}
        for source, role in _UNITS.items():
            self._copy(files, self.top / source, f"usr/lib/systemd/system/{Path(source).name}", role)
        for name, (target, role) in _BOOT_FILES.items():
            self._copy(files, HERE / "files" / name, target, role)
        for command, role in COMMANDS.items():
            place = f"usr/bin/{command}" if command != "sodad" else f"usr/sbin/{command}"
            link(self.root / place, f"/{PREFIX}/bin/{command}")
            files[place] = role
        self._copy(files, self.top / "install/sharing.conf", "etc/slurm-soda/sharing.conf", "agent")
        return files

    def of_documents(self, packages: Path, source: Path) -> Files:
        """Manual pages, completion and sample configurations, which our modules write; and the documents."""
        files: Files = {}
        made = self.work / "made"
        made.mkdir()
        path = f"{packages}:{source / 'src'}:{self.top}"
        self._run(path, "-m", "slurm_soda.sodactl.command_line.manual_pages", str(made / "man"))
        for page in sorted((made / "man").iterdir()):
            role = {"sodad.8": "controller", "soda-agent.8": "agent"}.get(page.name, "login")
            self._pack(files, page, f"usr/share/man/man{page.suffix[1:]}/{page.name}.gz", role)
        for shell, target in _COMPLETION.items():
            call = f"from slurm_soda.sodactl.main import main; main(['completion', '{shell}'])"
            write(self.root / target, self._run(path, "-c", call))
            files[target] = "login"
        self._run(path, "-m", "install.deb.samples", str(self.top), str(made))
        self._copy(files, made / "soda.toml", "etc/slurm-soda/soda.toml", "controller")
        self._copy(files, made / "agent.toml", "etc/slurm-soda/agent.toml", "agent")
        for pattern in _DOCUMENTS:
            for document in sorted(self.top.glob(pattern)):
                target = f"usr/share/doc/slurm-soda-login/{document.relative_to(self.top)}"
                self._copy(files, document, target, "login")
        self._pack(files, self.top / "CHANGELOG.md", "usr/share/doc/slurm-soda-common/changelog.gz", "common")
        return files

    def spank(self, files: Files) -> str | None:
        """The plugin into ``files``; gives the release of the Slurm whose headers are here, ``None`` without any."""
        flags = self.environ.get("SLURM_CFLAGS", "").split()
        argv = ["/usr/bin/cc", *flags, "-E", "-P", "-x", "c", "-"]
        done = subprocess.run(argv, input=_VERSION_PROGRAM, capture_output=True, text=True, check=False)
        found = re.search(r"^soda (0x[0-9a-fA-F]+)", done.stdout, re.M)
        if done.returncode != 0 or found is None:
            sys.stderr.write(
                "no slurm-soda-spank: the headers of your Slurm are missing; install libslurm-dev, or give "
                "SLURM_CFLAGS=-I/opt/slurm/include\n"
            )
            return None
        number = int(found[1], 16)
        plugin = self._compile("slurm_ext/spank", "soda_spank.so", f"SLURM_CFLAGS={' '.join(flags)}")
        self._copy(files, plugin, f"{PREFIX}/lib/soda_spank.so", "spank")
        self._copy(files, HERE / "files/plugstack.conf", _PLUGIN_DROP_IN, "spank")
        return f"{number >> 16 & 0xFF:02}.{number >> 8 & 0xFF:02}"

    def copyright_of(self, package: DebianPackage) -> list[str]:
        """The file with the licence that every package has; its path."""
        target = f"usr/share/doc/{package.name}/copyright"
        self._copy({}, HERE / "files/copyright", target, package.role)
        return [target]

    def _compile(self, folder: str, made: str, *words: str) -> Path:
        """A program from a copy of its folder, without what depends on where that is."""
        copy = self.work / Path(folder).name
        shutil.copytree(self.top / folder, copy, ignore=shutil.ignore_patterns("*.so", "*.o", "build", "__pycache__"))
        # Its Makefile names a script beside it for `make install`, which is not made here.
        flags = f"CFLAGS=-O2 -ffile-prefix-map={copy}=."
        subprocess.run(["/usr/bin/make", "-s", "-C", copy, *words, flags, made], check=True, stdout=sys.stderr)
        subprocess.run(["/usr/bin/strip", "--strip-unneeded", copy / made], check=True)
        return copy / made

    def _run(self, path: str, *words: str) -> str:
        environ = {"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"}
        argv = [sys.executable, *words]
        done = subprocess.run(argv, cwd=self.top, env=environ, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    def _copy(self, files: Files, source: Path, target: str, role: str, mode: int = 0o644) -> None:
        place = self.root / target
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
        place.chmod(mode)
        files[target] = role

    def _pack(self, files: Files, source: Path, target: str, role: str) -> None:
        place = self.root / target
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(gzip.compress(source.read_bytes(), mtime=0))
        files[target] = role
