"""``sodactl doctor`` where slurmdbd has several clusters."""

from __future__ import annotations

from tests.sodactl.checks.conftest import CONFIG, RecordedSlurm, finding
from tests.sodactl.conftest import Bench


def test_a_federated_view_is_no_view_of_this_cluster(soda: Bench, recorded: RecordedSlurm) -> None:
    assert not [one for one in soda("doctor", "--json").document["findings"] if one["check"] == "federation"]
    text = recorded.replies[CONFIG].stdout.decode()
    recorded.say(*CONFIG, stdout=text + "FederationParameters    = fed_display\n")
    state, found, remedy = finding(soda("doctor", "--json", status=1), "federation")
    assert (state, found.split(":")[0]) == ("fail", "FederationParameters=fed_display")
    assert remedy.startswith("take fed_display out of slurm.conf")


def test_a_user_of_another_cluster_alone_has_no_association_here(soda: Bench, recorded: RecordedSlurm) -> None:
    recorded.say("sacctmgr", "-n", "-P", "show", "assoc", "cluster=soda", "format=user", stdout="root\nalice\n")
    assert finding(soda("doctor", "--json"), "associations")[:2] == ("warn", "none for bob")
