"""Steps that fail midway: what is taken back, and what is said where nobody can know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from slurm_soda.slurm_ext.command_runner import CompletedCommand
from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.pools.partition_transaction import IncompleteRollbackError
from slurm_soda.slurm_ext.pools.pools_record import read_record
from slurm_soda.slurm_ext.pools.routes_file import ROUTES_NAME
from tests.slurm_ext.pool_site import A100, NAMES, Site

Words = tuple[str, ...]
Answer = tuple[int | None, str, str]
TIMED_OUT = "slurm_update error: Socket timed out on send/recv operation"


class Failing:
    """A scontrol whose change number ``at`` fails as ``answer`` says, and perhaps all after it."""

    def __init__(self, site: Site, at: int, answer: Answer, *, does_it: bool = False, then_down: bool = False) -> None:
        self.site, self.at, self.answer, self.does_it, self.then_down = site, at, answer, does_it, then_down
        self.original: Callable[[Words], tuple[int, str, str]] = site.scontrol._change
        self.seen = 0
        site.scontrol._change = self._change  # type: ignore[method-assign,assignment]

    def _change(self, words: Words) -> Answer:
        self.seen += 1
        if self.seen - 1 == self.at:
            if self.does_it:
                self.original(words)
            return self.answer
        if self.seen > self.at and self.then_down:
            return 1, "", "Unable to contact slurm controller (connect failure)"
        return self.original(words)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Arrays with 8 cores for CPU jobs; five partitions are changed for another number."""
    site = Site(tmp_path)
    site.arranger.apply(site.wanted())
    return site


def phase(site: Site) -> tuple[str, int]:
    found = read_record(site.folder)
    assert found is not None
    return found.phase, found.shares[A100].cpu_cores


@pytest.mark.parametrize("does_it", [False, True])
@pytest.mark.parametrize(
    ("status", "stderr"), [(None, ""), (1, TIMED_OUT), (1, "Zero Bytes were transmitted or received")]
)
@pytest.mark.parametrize("at", [0, 4])
def test_without_an_answer_nobody_says_that_nothing_changed(
    site: Site, at: int, status: int | None, stderr: str, does_it: bool
) -> None:
    Failing(site, at, (status, "", stderr), does_it=does_it)
    before = {name: dict(of) for name, of in site.scontrol.partitions.items()}
    with pytest.raises(IncompleteRollbackError, match=r"was changed is not known.*pools apply.*pools revert"):
        site.arranger.apply(site.wanted(10))
    assert phase(site) == ("applying", 10)
    assert site.scontrol.partitions == before  # as far as one can see now
    assert site.arranger.apply(site.wanted(10)).leaving == ()
    assert phase(site) == ("applied", 10)
    assert site.scontrol.partitions["gpu_large"]["MaxCPUsPerNode"] == "18"


@pytest.mark.parametrize("at", [0, 2])
def test_what_cannot_be_taken_back_is_said(site: Site, at: int) -> None:
    Failing(site, at, (None, "", ""), does_it=True, then_down=True)
    with pytest.raises(IncompleteRollbackError, match=r"not all is known to be as before.*Unable to contact"):
        site.arranger.apply(site.wanted(10))
    assert phase(site) == ("applying", 10)
    # Whichever of both limits is in force, no job is routed to what cannot hold it.
    assert "name=gpu_cpu base=gpu kind=cpu borrowing=0 nodes=2 cores=8 " in (site.folder / ROUTES_NAME).read_text()
    assert "cores=20" not in (site.folder / ROUTES_NAME).read_text()


def test_a_first_step_that_is_refused_needs_no_way_back(site: Site) -> None:
    Failing(site, 0, (1, "", "Invalid partition name"), then_down=True)
    with pytest.raises(SlurmError, match="nothing is changed"):
        site.arranger.apply(site.wanted(10))
    assert phase(site) == ("applied", 8)


def test_half_a_step_is_taken_back(tmp_path: Path) -> None:
    """OverSubscribe is said apart, after the partition was made."""
    site = Site(tmp_path)
    site.scontrol.partitions["gpu"]["OverSubscribe"] = "FORCE:2"
    before = dict(site.scontrol.partitions)
    Failing(site, 1, (1, "", "Invalid OverSubscribe"))
    with pytest.raises(SlurmError, match="nothing is changed"):
        site.arranger.apply(site.wanted())
    assert site.scontrol.partitions == before
    Failing(site, 1, (1, "", "Invalid OverSubscribe"), then_down=True)
    with pytest.raises(IncompleteRollbackError, match="Unable to contact"):
        site.arranger.apply(site.wanted())
    assert site.names == {"gpu_cpu"}
    assert site.include == NAMES


def test_a_deletion_without_an_answer_is_tried_again(site: Site) -> None:
    class Deaf:
        """What Slurm was asked to delete it deletes, and does not say so."""

        def __call__(
            self,
            argv: Sequence[str],
            *,
            stdin: bytes,
            timeout_s: float,
            env: Mapping[str, str],
            most_bytes: int | None = None,
        ) -> CompletedCommand:
            said = site.scontrol(argv, stdin=stdin, timeout_s=timeout_s, env=env)
            return CompletedCommand(tuple(argv), None, b"", b"") if argv[1] == "delete" else said

    object.__setattr__(site.port, "runner", Deaf())
    done = site.arranger.revert()
    assert set(done.leaving) == NAMES
    assert all("did not answer in time" in problem for problem in done.problems)
    object.__setattr__(site.port, "runner", site.scontrol)
    assert site.arranger.revert().leaving == ()
    assert read_record(site.folder) is None
