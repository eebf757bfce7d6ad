"""Commands for the machine that QEMU emulates go through its shell and arrive as they are."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.containers.cluster_spec import ClusterError
from slurm_soda.containers.virtual_cluster import machine_command

ODD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@given(ODD, ODD)
def test_odd_words_arrive_unchanged(argument: str, value: str) -> None:
    line = machine_command("root", ("printf", "%s|%s", argument), "ctl", 9.0, {"ODD": value})
    script = line.replace("--chdir=/root", "--chdir=/")  # whoever runs this test may not enter root's home
    assert subprocess.run(("sh", "-c", script), capture_output=True, check=True).stdout == f"{argument}|".encode()
    assert f"ODD={value}" in shlex.split(line)


def test_a_node_is_entered_as_root_and_left_to_the_user() -> None:
    words = shlex.split(machine_command("alice", ("sbatch", "job"), "n2", None, {}))
    assert words[:2] == ["nsenter", "--uts=/run/nodes/n2.uts"]
    assert words.index("--") < words.index("--reuid=alice") < words.index("HOME=/home/alice") < words.index("sbatch")
    assert "timeout" not in words


@pytest.mark.parametrize(("user", "node"), [("mallory", "n1"), ("alice", "n3")])
def test_nobody_elses_name_and_no_other_node(user: str, node: str) -> None:
    with pytest.raises(ClusterError, match=r"mallory|n3"):
        machine_command(user, ("true",), node, None, {})
