"""The table for nft as text, and what nft says back."""

from __future__ import annotations

import subprocess

import pytest

from slurm_soda.agent.network.nft_rules import TABLE, NftRules, PacketClassRules, nft_script
from slurm_soda.agent.network.shaper import NetworkError

GPU_ID, CPU_ID = 0x50DA0010, 0x50DA0020


def test_with_groups_of_net_cls() -> None:
    assert nft_script(
        PacketClassRules("eth0", by_net_cls=True, counts_received=True, cpu_receives=31_250_000)
    ).splitlines() == [
        f"table inet {TABLE} {{",
        "  chain output {",
        "    type filter hook output priority mangle; policy accept;",
        "    meta skuid 0 return",
        f'    oifname "eth0" meta cgroup {GPU_ID} meta priority set 50da:10 return',
        f'    oifname "eth0" meta cgroup {CPU_ID} meta priority set 50da:20 return',
        "  }",
        "  counter gpu_received {",
        "  }",
        "  chain cpu_jobs {",
        "    limit rate over 31250000 bytes/second burst 625000 bytes drop",
        "  }",
        "  chain input {",
        "    type filter hook input priority mangle; policy accept;",
        "    meta skuid 0 return",
        f'    iifname "eth0" meta cgroup {GPU_ID} counter name gpu_received',
        f'    iifname "eth0" meta cgroup {CPU_ID} goto cpu_jobs',
        "  }",
        "}",
    ]


def test_with_groups_of_the_unified_hierarchy() -> None:
    lines = nft_script(
        PacketClassRules("ib0", by_net_cls=False, gpu=("a.slice/job_1",), cpu=("a.slice/b/job_2",))
    ).splitlines()
    assert '    oifname "ib0" socket cgroupv2 level 2 "a.slice/job_1" meta priority set 50da:10 return' in lines
    assert '    oifname "ib0" socket cgroupv2 level 3 "a.slice/b/job_2" meta priority set 50da:20 return' in lines
    assert not any("input" in line for line in lines)


@pytest.mark.parametrize("path", ['a"; drop', "a\\b", "a\nb", "\u00e4"])
def test_a_path_that_nft_could_misread_is_refused(path: str) -> None:
    with pytest.raises(NetworkError, match="cannot be named to nft"):
        nft_script(PacketClassRules("eth0", by_net_cls=False, cpu=(path,)))


def test_nft_that_is_missing_hangs_or_refuses_is_one_line_with_the_remedy() -> None:
    def missing(*_: object) -> tuple[int, bytes, bytes]:
        raise FileNotFoundError

    def hangs(*_: object) -> tuple[int, bytes, bytes]:
        raise subprocess.TimeoutExpired("nft", 5.0)

    def refuses(*_: object) -> tuple[int, bytes, bytes]:
        return 1, b"", b"/dev/stdin:4:9-20: Error: No such file or directory\n  the line\n     ^^^^\n"

    said = []
    for run in (missing, hangs, refuses):
        with pytest.raises(NetworkError) as caught:
            NftRules(run).set(PacketClassRules("eth0", by_net_cls=True))
        said.append(str(caught.value))
    assert "install the package nftables" in said[0]
    assert "timed out" in said[1]
    assert said[2] == "network: nft refused: /dev/stdin:4:9-20: Error: No such file or directory"
    assert not NftRules(missing).is_set()
    assert [NftRules(run).gpu_received() for run in (missing, hangs, refuses)] == [None, None, None]
