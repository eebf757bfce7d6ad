"""The releases of Slurm that a cluster can run, and the suite of Debian that has each."""

from __future__ import annotations

from dataclasses import dataclass

from slurm_soda.containers.cluster_spec import DEFAULT_SLURM, ClusterError


@dataclass(frozen=True, slots=True)
class SlurmRelease:
    """A release of Slurm, as a suite of Debian packages it."""

    version: str
    """The first two numbers, such as ``24.11``: Slurm's commands and files are the same within."""
    suite: str
    python: str
    """The suite's Python, for which wheels are fetched."""

    @property
    def registry_tag(self) -> str:
        """Tag of the image ``debian`` that a registry has."""
        return f"{self.suite}-slim"

    @property
    def base_image(self) -> str:
        """What that image is called here, wherever it came from."""
        return f"slurm-soda/base:{self.suite}"


SLURM_RELEASES = {
    release.version: release
    for release in (
        SlurmRelease(DEFAULT_SLURM, "trixie", "3.13"),
        SlurmRelease("26.05", "forky", "3.14"),
        SlurmRelease("22.05", "bookworm", "3.11"),
    )
}
"""By version, the default first."""


def find_release(version: str) -> SlurmRelease:
    """The release of that version.

    Raises:
        ClusterError: no suite of Debian that is known here has it.
    """
    try:
        return SLURM_RELEASES[version]
    except KeyError:
        raise ClusterError(f"slurm is {version!r}; clusters in containers run {' or '.join(SLURM_RELEASES)}") from None
