"""The configuration that a cluster gets, and the sizes that it may have."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.containers.cluster_spec import ClusterError, ClusterSpec
from slurm_soda.containers.slurm_config import gres_conf_text, slurm_config_files

CGROUPS = ("v1", "v2", "none")


def settings(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@given(
    spec=st.builds(
        ClusterSpec,
        name=st.just("x"),
        nodes=st.integers(1, 16),
        gpus=st.integers(0, 16),
        cpus=st.integers(1, 128),
        packed=st.booleans(),
    ),
    cgroup=st.sampled_from(CGROUPS),
)
def test_every_file_is_filled_in_and_the_memory_of_all_cpus_fits(spec: ClusterSpec, cgroup: str) -> None:
    files = slurm_config_files(spec, cgroup)  # type: ignore[arg-type]  # sampled from the three
    assert not [name for name, text in files.items() if "$" in text]
    conf = settings(files["slurm.conf"])
    assert int(conf["DefMemPerCPU"]) * spec.cpus <= spec.memory_mib
    assert ("cgroup" in conf["ProctrackType"]) is (cgroup != "none")
    assert files["gres.conf"].count("Name=sharedgpu") == spec.gpus


@pytest.mark.parametrize(
    ("spec", "nodes", "gres"),
    [
        (ClusterSpec("x"), "NodeName=n[1-2] CPUs=28 ", "File=/dev/nvidia[0-3]"),
        (ClusterSpec("x", nodes=1, gpus=1), "NodeName=n1 CPUs=28 ", "Name=gpu Type=a100 File=/dev/nvidia0\n"),
        (ClusterSpec("x", nodes=64, packed=True), "n[1-64] NodeHostname=sim Port=[17001-17064]", "nvidia[0-3]"),
        (ClusterSpec("x", gpus=0), "RealMemory=64000\n", "AutoDetect=off\n"),
    ],
)
def test_node_and_gpu_lines(spec: ClusterSpec, nodes: str, gres: str) -> None:
    assert nodes in slurm_config_files(spec, "v1")["slurm.conf"]
    assert gres in gres_conf_text(spec)


def test_only_nodes_of_their_own_run_the_hooks() -> None:
    one, packed = (slurm_config_files(ClusterSpec("x", packed=p), "none")["slurm.conf"] for p in (False, True))
    assert "\nProlog=/opt/slurm-soda/libexec/prolog\n" in one
    assert "\nProlog=" not in packed
    assert "\nEpilogSlurmctld=" in one
    assert "\nEpilogSlurmctld=" in packed


def test_a_bare_site_names_nothing_of_ours() -> None:
    files = slurm_config_files(ClusterSpec("x", systemd=True, bare=True), "v1")
    lines = [line for text in files.values() for line in text.splitlines() if not line.startswith("#")]
    assert not [
        line for line in lines if re.search("soda|sharedgpu|JobSubmit|log=", line.replace("ClusterName=soda", ""))
    ]
    assert "PartitionName=trial" in files["slurm.conf"]
    assert "soda-pools.conf" not in files


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ({"nodes": 0}, "nodes is 0; allowed is 1 to 16"),
        ({"nodes": 17}, "nodes is 17; allowed is 1 to 16 (up to 64 with packed)"),
        ({"nodes": 65, "packed": True}, "nodes is 65; allowed is 1 to 64"),
        ({"gpus": -1}, "gpus is -1; allowed is 0 to 16"),
        ({"cpus": 0}, "cpus is 0"),
        ({"memory_mib": 12}, "memory_mib is 12"),
    ],
)
def test_sizes_out_of_range_are_refused(size: dict[str, int], said: str) -> None:
    with pytest.raises(ClusterError, match=re.escape(said)):
        ClusterSpec("x", **size)  # type: ignore[arg-type]  # one of the values is a bool


@pytest.mark.parametrize("name", ["", "A", "a b", "a/b", "-a", "x" * 32, "a;rm", "ä"])
def test_names_that_are_no_names_are_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="is not allowed"):
        ClusterSpec(name)


def test_a_spec_survives_its_labels() -> None:
    spec = ClusterSpec("x", nodes=3, packed=True)
    assert ClusterSpec.from_labels(spec.labels("ctl")) == spec
    assert len({ClusterSpec(name).container(host) for name in ("x", "y") for host in ("ctl", "n1")}) == 4


def test_the_file_that_slurm_conf_includes_is_there_and_not_empty() -> None:
    files = slurm_config_files(ClusterSpec("x"), "none")
    assert "\ninclude /etc/slurm/soda-pools.conf\n" in files["slurm.conf"]
    assert files["soda-pools.conf"].startswith("#")
