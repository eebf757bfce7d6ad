"""Of which cluster a store is: job ids are one cluster's own, and several clusters may have one database server."""

from __future__ import annotations

from slurm_soda.daemon.store import queries
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.store_errors import StoreUnusableError
from slurm_soda.daemon.store.tables.scheduling import AdminSetting
from slurm_soda.slurm_ext.command_runner import CommandRunner
from slurm_soda.slurm_ext.read.slurm_config import ask_config, config_of

SETTING = "cluster"
"""Key among what admins set; sodad writes it, once."""
_MOST_CHARACTERS = 255


class OtherClusterError(StoreUnusableError):
    """The store is that of another cluster."""


def read_cluster_name(runner: CommandRunner, timeout_s: float) -> str:
    """ClusterName of slurm.conf, in small letters as slurmdbd has it; empty while slurmctld does not tell."""
    return config_of(ask_config(runner, timeout_s)).get("ClusterName", "").lower()[:_MOST_CHARACTERS]


def check_cluster(store: Store, name: str) -> None:
    """Whether a store is of this cluster, as far as it says of which.

    Raises:
        OtherClusterError: it is of another one.
    """
    with store.read() as session:
        known = session.get(AdminSetting, SETTING)
    if known is not None and name and known.value != name:
        raise OtherClusterError(
            f"{store.url} is the store of cluster {known.value}, and this is cluster {name}",
            "give each cluster a database of its own in store.url; if this cluster was renamed: DELETE FROM admin_setting"
            " WHERE key = 'cluster'",
        )


def claim_for_cluster(store: Store, name: str, now_s: float) -> None:
    """A store that says of no cluster is of this one from now on.

    Raises:
        OtherClusterError: it is of another one.
    """
    check_cluster(store, name)
    with store.write() as session:
        if session.get(AdminSetting, SETTING) is None:
            queries.put_admin_setting(session, SETTING, name, now_s=now_s, by="sodad")
