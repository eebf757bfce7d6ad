"""A service as its owner's files have it: the service file, the profile, and what each instance says of itself."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from slurm_soda.services.router.service_folder import PROFILE, ServiceFolder
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.json_fields import decode_json
from slurm_soda.wire.services.instance_file import INSTANCES, InstanceFile
from slurm_soda.wire.services.instance_file import LONGEST_FILE as LONGEST_INSTANCE
from slurm_soda.wire.services.service_file import LONGEST_FILE, ServiceFile, read_service_file
from slurm_soda.wire.services.service_profile import ServiceProfile

__all__ = ["PROFILE", "ServiceOnDisk", "read_instances", "read_profile", "read_service"]

LONGEST_PROFILE = 64 * 1024
MOST_INSTANCE_FILES = 2000


@dataclass(frozen=True, slots=True)
class ServiceOnDisk:
    """A service file that was read, and where its service's own files are."""

    path: Path
    """Absolute path of the service file."""
    service: ServiceFile
    folder: Path
    """Absolute path of the folder of services that nodes and router share."""

    @property
    def directory(self) -> Path:
        """Of this service alone: instances, profile, logs."""
        return self.folder / self.service.name


def read_service(path: Path) -> ServiceOnDisk:
    """The service that the file ``path`` describes.

    Raises:
        SodaError: it cannot be read or says something that is not allowed; names the file, the key and what is.
    """
    whole = Path(os.path.abspath(path))  # noqa: PTH100 - a link to the file stays one: its folder is what the owner typed
    text = _read(whole, LONGEST_FILE, "a service file (docs/services.md)")
    service = read_service_file(text.decode("utf-8", "replace"), str(path))
    return ServiceOnDisk(whole, service, ServiceFolder(whole, service).path.parent)


def read_profile(found: ServiceOnDisk) -> ServiceProfile | None:
    """What was measured of it; None if nothing was.

    Raises:
        SodaError: the file is there, and is no profile.
    """
    path = found.directory / PROFILE
    if not path.exists():
        return None
    what = f"profile {path}"
    try:
        return ServiceProfile.from_dict(
            decode_json(_read(path, LONGEST_PROFILE, "a profile"), LONGEST_PROFILE, what), what
        )
    except RecordError as error:
        raise SodaError(f"{error}; `sodactl service profile {found.path}` writes it anew") from error


def read_instances(directory: Path) -> tuple[list[InstanceFile], list[str]]:
    """What the instances in a service's directory say, by host and job, and what could not be read.

    Files of anybody but the directory's owner are left out.
    """
    place = directory / INSTANCES
    try:
        owner = directory.stat().st_uid
        paths = sorted(path for path in place.iterdir() if path.suffix == ".json" and not path.name.startswith("."))
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"{place} cannot be read: {error.strerror}"]
    found, problems = [], []
    for path in paths[:MOST_INSTANCE_FILES]:
        try:
            found.append(_read_instance(path, owner))
        except FileNotFoundError:
            continue  # it ended just now
        except SodaError as error:
            problems.append(str(error))
    if len(paths) > MOST_INSTANCE_FILES:
        problems.append(f"{place} has {len(paths)} files; the first {MOST_INSTANCE_FILES} are read")
    return found, problems


def _read_instance(path: Path, owner: int) -> InstanceFile:
    what = f"instance file {path}"
    seen = path.lstat()
    if not stat.S_ISREG(seen.st_mode) or seen.st_uid != owner:
        raise SodaError(f"{what} is not a plain file of the service's owner (uid {owner}); it is left out")
    return InstanceFile.from_dict(decode_json(_read(path, LONGEST_INSTANCE, "one"), LONGEST_INSTANCE, what), what)


def _read(path: Path, longest: int, kind: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(longest + 1)
    except FileNotFoundError as error:
        raise SodaError(f"{path}: there is no such file; name {kind}") from error
    except OSError as error:
        raise SodaError(f"{path} cannot be read: {error.strerror}; name {kind}") from error
    if len(content) > longest:
        raise SodaError(f"{path} has more than {longest} bytes; name {kind}")
    return content
