"""A store is one cluster's: job ids of two would meet in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from slurm_soda.daemon.cycle.store_cluster import OtherClusterError, check_cluster, claim_for_cluster, read_cluster_name
from slurm_soda.daemon.store.engine import Store
from slurm_soda.slurm_ext.command_runner import CompletedCommand
from tests.daemon.fake_slurm import FakeSlurm
from tests.daemon.harness import Daemon


def test_a_store_is_claimed_once_and_refused_to_another_cluster(store: Store) -> None:
    check_cluster(store, "one")
    claim_for_cluster(store, "one", 5.0)
    claim_for_cluster(store, "one", 6.0)
    check_cluster(store, "")
    for check in (lambda: check_cluster(store, "two"), lambda: claim_for_cluster(store, "two", 7.0)):
        with pytest.raises(OtherClusterError, match="is the store of cluster one, and this is cluster two; give each"):
            check()


@pytest.mark.parametrize(
    ("status", "said", "name"),
    [(0, b"ClusterName             = Alpha\n", "alpha"), (1, b"", ""), (0, b"SlurmUser = slurm(64030)\n", "")],
)
def test_the_name_is_slurms(status: int, said: bytes, name: str) -> None:
    def run(
        argv: Sequence[str],
        *,
        stdin: bytes,
        timeout_s: float,
        env: Mapping[str, str],
        most_bytes: int | None = None,
    ) -> CompletedCommand:
        assert (tuple(argv), stdin, "SLURM_CLUSTERS" in env) == (("scontrol", "show", "config"), b"", False)
        return CompletedCommand(tuple(argv), status, said, b"")

    assert read_cluster_name(run, 5.0) == name


def test_a_sodad_of_another_cluster_changes_nothing(slurm: FakeSlurm, daemon: Callable[..., Daemon]) -> None:
    slurm.submit(1, gpus=4, work_s=900.0)
    sodad = daemon()
    sodad.cycles._context = replace(sodad.cycles._context, cluster_name=lambda: "one")
    assert sodad.run().error == ""
    after = daemon()
    told = iter(["", "two", "two"])
    after.cycles._context = replace(after.cycles._context, cluster_name=lambda: next(told))
    assert after.run().error == "", "while Slurm does not tell its name"
    assert "is the store of cluster one, and this is cluster two" in after.run().error
    assert "is the store of cluster one" in after.run().error
