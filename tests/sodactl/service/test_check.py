"""sodactl service check: what each device can do, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.sodactl.service.assessment import asked_gpu_type
from tests.sodactl.conftest import Bench
from tests.sodactl.service.conftest import CHAT, SlurmCommands, put_profile


def test_a_profiled_service_is_shown_with_its_figures(soda: Bench, chat: Path) -> None:
    put_profile(
        chat, {"device": "cpu"}, {"device": "gpu", "gpu_type": "a100", "batch": 64, "batch_ms": 20.0, "cores": 2}
    )
    document = soda("service", "check", str(chat), "--json").document
    cpu, gpu = document["devices"]
    assert (cpu["capacity_qps"], cpu["slowest_ms"], cpu["meets_target"]) == (
        pytest.approx(200 / 1.1),
        50 + 2 * 40 * 1.1,
        True,
    )
    assert (gpu["capacity_qps"], gpu["slowest_ms"]) == (pytest.approx(3200 / 1.1), 50 + 2 * 20 * 1.1)
    assert [(plan["device"], plan["cores"], plan["batch"], plan["gpus"]) for plan in document["arrays"]] == [
        ("cpu", 4, 8, 0),
        ("gpu", 2, 64, 1),
    ]
    assert (document["refused"], document["warnings"]) == ("", [])
    done = soda("service", "check", str(chat))
    assert done.err == ""
    assert [line.split() for line in done.out.splitlines()][-2:] == [
        ["cpu", "4", "8", "182", "138", "ms", "yes"],
        ["gpu", "a100", "2", "1", "64", "2,909", "94", "ms", "yes"],
    ]


def test_without_a_profile_it_says_what_instances_get(soda: Bench, chat: Path) -> None:
    done = soda("service", "check", str(chat))
    assert "cpu: not profiled, so its instances get 1 core and batches of 1" in done.err
    assert "`sodactl service profile` measures it" in done.err
    assert done.out.count("unknown") == 6


def test_a_target_that_no_device_meets_is_refused_with_the_figures(soda: Bench, chat: Path) -> None:
    put_profile(chat, {"device": "cpu", "batch": 0, "batch_ms": 300.0, "error_ratio": 0.0},
                {"device": "gpu", "gpu_type": "v100", "batch": 4, "batch_ms": 80.0, "error_ratio": 0.25})  # fmt: skip
    done = soda("service", "check", str(chat), status=1)
    assert "chat: no device answers within target_ms 200: " in done.err
    assert "cpu: 50 + 2 x 300 x (1 + 0) = 650 ms with one query alone" in done.err
    assert "gpu v100: 50 + 2 x 80 x (1 + 0.25) = 250 ms with a batch of 4" in done.err
    assert "raise target_ms" in done.err.splitlines()[-1]
    assert "gpu v100: 50 + 2" in soda("service", "check", str(chat), "--json", status=1).document["refused"]


def test_the_target_is_met_exactly_and_missed_by_a_hair(soda: Bench, chat: Path) -> None:
    put_profile(chat, {"device": "cpu", "batch_ms": 75.0, "error_ratio": 0.0},
                {"device": "gpu", "batch_ms": 75.01, "error_ratio": 0.0})  # fmt: skip
    cpu, gpu = soda("service", "check", str(chat), "--json").document["devices"]
    assert (cpu["meets_target"], gpu["meets_target"], gpu["capacity_qps"]) == (True, False, 0)


def test_a_profile_for_another_target_is_said_to_be(soda: Bench, chat: Path) -> None:
    put_profile(chat, {"device": "cpu"}, target_ms=300)
    (other, _) = soda("service", "check", str(chat), "--json").document["warnings"]
    assert "measured for target_ms 300 and window_ms 50, and the file says 200 and 50" in other


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("target_ms", "traget_ms"), "there is no key 'traget_ms'; known are name, "),
        (("target_ms", "traget_ms"), "did you mean target_ms?"),
        (("[replicas]\nleast", "[replicas]\nleats"), "[replicas]: there is no key 'leats'"),
        (("window_ms = 50", "window_ms = 500"), "window_ms is 500, and target_ms 200"),
        (("{port}", "8000"), "command does not name {port}"),
        (("{batch}", "{bach}"), "command has {bach}; filled in are {port}, "),
        (('name = "chat"', 'name = "Chat"'), "name is 'Chat'; allowed are up to 40 small letters"),
        (("least = 1", "least = 5"), "least is 5, and most 3"),
        (("[cpu]", "[cpus]"), "there is no key 'cpus'"),
        (("[gpu]", '[gpu]\ntypes = ["t4", "t4"]'), "[gpu]: types has 't4'; allowed are different names"),
        (("[gpu]", '[gpu]\ntypes = ["a b"]'), "types has 'a b'"),
        (("[cpu]", '[cpu]\ntypes = ["t4"]'), "[cpu]: there is no key 'types'"),
        (('"--partition=cpu"', '"--array=0-9"'), "[cpu]: sbatch has '--array=0-9', which a service sets itself"),
        (('"--partition=cpu"', '"--no-req"'), "'--no-req', which a service sets itself"),
        (('"--partition=cpu"', '"-a0-9"'), "'-a0-9', which a service sets itself"),
        (('"--partition=cpu"', '"--mem=4G", "job.sh"'), "'job.sh', which is no option"),
        (('"--partition=cpu"', '"--"'), "'--', which is no option"),
    ],
)
def test_a_wrong_file_is_one_line_that_says_what_is_allowed(
    soda: Bench, chat: Path, change: tuple[str, str], said: str
) -> None:
    assert change[0] in CHAT
    chat.write_text(CHAT.replace(*change))
    done = soda("service", "check", str(chat), status=1)
    assert done.out == ""
    assert said in done.err
    assert done.err.count("\n") == 1


def test_a_missing_file_a_folder_and_a_bad_profile(soda: Bench, chat: Path) -> None:
    assert "there is no such file; name a service file" in soda("service", "check", "nowhere.toml", status=1).err
    assert "is a directory" in soda("service", "check", str(chat.parent), status=2).err
    path = put_profile(chat, {"device": "tpu"})
    assert "device is 'tpu'; allowed is one of cpu, gpu" in soda("service", "check", str(chat), status=1).err
    path.write_text("{")
    said = soda("service", "check", str(chat), status=1).err
    assert "cannot be read as JSON" in said
    assert "`sodactl service profile" in said


def test_values_of_the_file_go_before_those_of_the_profile(soda: Bench, chat: Path) -> None:
    chat.write_text(CHAT.replace("[cpu]", "[cpu]\ncores = 2\nbatch = 16"))
    put_profile(chat, {"device": "cpu"}, {"device": "gpu"})
    document = soda("service", "check", str(chat), "--json").document
    assert (document["arrays"][0]["cores"], document["arrays"][0]["batch"]) == (2, 16)
    assert document["warnings"] == [
        "cpu: batch is 16, and up to 8 was measured to meet the target",
        "cpu: cores is 2, and 4 were needed for what was measured",
    ]


def test_of_several_gpu_types_what_suits_all_unless_one_is_asked_for(soda: Bench, chat: Path) -> None:
    rows = [
        {"device": "gpu", "gpu_type": "a100", "batch": 32, "cores": 2},
        {"device": "gpu", "gpu_type": "v100", "cores": 6},
    ]
    put_profile(chat, *rows)
    gpu = soda("service", "check", str(chat), "--json").document["arrays"][1]
    assert (gpu["batch"], gpu["cores"], gpu["gpu_type"]) == (8, 6, "")
    chat.write_text(CHAT.replace('"--partition", "gpu"', '"--gres=gpu:a100:1"'))
    gpu = soda("service", "check", str(chat), "--json").document["arrays"][1]
    assert (gpu["batch"], gpu["cores"], gpu["gpu_type"]) == (32, 2, "a100")


@pytest.mark.parametrize(
    ("arguments", "gpu_type"),
    [
        (["--gres=gpu:a100:2"], "a100"),
        (["--gres", "gpu:a100"], "a100"),
        (["--gres=shard:4,gpu:h100:1"], "h100"),
        (["--gres=gpu:2"], ""),
        (["--gres=gpu"], ""),
        (["--gres=shard:v100:1"], ""),
        (["--gpus=a100:1"], "a100"),
        (["--gpus-per-node", "tesla-t4:1"], "tesla-t4"),
        (["-G", "a100:1"], "a100"),
        (["-G1"], ""),
        (["--gpus=1", "--partition=a100"], ""),
        ([], ""),
    ],
)
def test_the_gpu_type_that_sbatch_is_asked_for(arguments: list[str], gpu_type: str) -> None:
    assert asked_gpu_type(arguments) == gpu_type


def test_it_asks_neither_slurm_nor_sodad(soda: Bench, slurm: SlurmCommands, chat: Path) -> None:
    soda.slurm.down = True
    soda("service", "check", str(chat))
    assert slurm.calls == []
