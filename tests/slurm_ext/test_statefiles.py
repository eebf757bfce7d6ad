"""Files of the state directory, and what its owner must not make root write."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from slurm_soda.slurm_ext.errors import SlurmError
from slurm_soda.slurm_ext.pools.partition_settings import include_text
from slurm_soda.slurm_ext.pools.pools_record import POOLS_RECORD_NAME, read_record
from slurm_soda.slurm_ext.pools.state_files import write_state_file
from tests.slurm_ext.pool_site import Site

THEIRS = 64_030
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="files of two users need root")


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "f"
    write_state_file(file, "one")
    write_state_file(file, "two")
    assert (file.read_text(), file.stat().st_mode & 0o777, list(tmp_path.iterdir())) == ("two", 0o644, [file])
    with pytest.raises(SlurmError, match="cannot be written"):
        write_state_file(tmp_path / "missing" / "f", "x")


@pytest.mark.parametrize("kind", ["link", "dangling", "directory", "pipe"])
def test_only_a_regular_file_is_written(tmp_path: Path, kind: str) -> None:
    file, other = tmp_path / "f", tmp_path / "other"
    other.write_text("precious")
    if kind in ("link", "dangling"):
        file.symlink_to(other if kind == "link" else tmp_path / "nowhere")
    elif kind == "directory":
        file.mkdir()
    else:
        os.mkfifo(file)
    with pytest.raises(SlurmError, match=r"is (a link|no regular file) and is not written"):
        write_state_file(file, "x", beside=tmp_path)
    assert (other.read_text(), (tmp_path / "nowhere").exists()) == ("precious", False)


class Two:
    """A state directory of SlurmUser's, and a directory of root's with an include file of SlurmUser's."""

    def __init__(self, folder: Path) -> None:
        self.state, self.conf = folder / "state", folder / "conf"
        for place in (self.state, self.conf):
            place.mkdir()
        os.chown(self.state, THEIRS, THEIRS)
        self.include = self.conf / "soda-pools.conf"
        self.include.write_text("# none\n")
        os.chown(self.include, THEIRS, 7)

    def write(self, file: Path) -> None:
        write_state_file(file, "new", beside=self.state)


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


@as_root
def test_root_writes_slurm_users_file_for_it(two: Two) -> None:
    two.write(two.include)
    found = two.include.stat()
    assert (two.include.read_text(), found.st_uid, found.st_gid, found.st_mode & 0o777) == ("new", THEIRS, 7, 0o644)
    write_state_file(two.state / POOLS_RECORD_NAME, "{}")
    assert (two.state / POOLS_RECORD_NAME).stat().st_uid == THEIRS


@as_root
@pytest.mark.parametrize("case", ["roots", "not there", "anyones folder", "a third user's folder", "link on the way"])
def test_root_writes_nothing_else_by_its_word(two: Two, case: str) -> None:
    file = two.include
    if case == "roots":
        os.chown(file, 0, 0)
    elif case == "not there":
        file = two.conf / "cron"
    elif case == "anyones folder":
        two.conf.chmod(0o777)
    elif case == "a third user's folder":
        os.chown(two.conf, THEIRS + 1, 0)
    else:
        os.chown(file, 0, 0)
        (two.state / "way").symlink_to(two.conf)
        file = two.state / "way" / file.name
    with pytest.raises(
        SlurmError, match=r"root (does not write it; if .* chown it to user 64030|writes nothing there)"
    ):
        two.write(file)
    assert two.include.read_text() == "# none\n"
    assert list(two.conf.iterdir()) == [two.include]


@as_root
def test_root_refuses_a_record_that_names_another_file(tmp_path: Path) -> None:
    site = Site(tmp_path / "state")
    site.folder.mkdir()
    os.chown(site.folder, THEIRS, THEIRS)
    include = site.folder / "soda-pools.conf"
    site.arranger.apply(site.wanted())
    passwd = tmp_path / "passwd"
    passwd.write_text("# root's\n")
    record = site.folder / POOLS_RECORD_NAME
    record.write_text(record.read_text().replace(str(include), str(passwd)))
    with pytest.raises(SlurmError, match=f"{passwd} belongs to user 0"):
        site.arranger.revert()
    with pytest.raises(SlurmError, match=f"{passwd} belongs to user 0"):
        site.arranger.apply(site.wanted())
    assert passwd.read_text() == "# root's\n"


HOSTILE = [
    ("gpu_cpu\nPartitionName=x", {"Nodes": "n1"}),
    ("gpu_cpu Default=YES", {"Nodes": "n1"}),
    ("", {"Nodes": "n1"}),
    ("p", {"Nodes": "n1\n* * * * * root sh"}),
    ("p", {"Nodes": "n1 # x"}),
    ("p", {"Nodes": "n1\\"}),
    ("p", {"Nodes": ""}),
    ("p", {"No\ndes": "n1"}),
    ("p", {"JobDefaults": "DefCpuPerGPU=1\n,a b=2"}),
    ("p", {"JobDefaults": "a b=2"}),
]


@pytest.mark.parametrize(("name", "settings"), HOSTILE)
def test_text_that_no_partition_has_is_not_written(tmp_path: Path, name: str, settings: dict[str, str]) -> None:
    with pytest.raises(SlurmError, match="is not given to Slurm"):
        include_text({name: settings})
    site = Site(tmp_path)
    site.arranger.apply(site.wanted())
    include = (tmp_path / "soda-pools.conf").read_text()
    file = tmp_path / POOLS_RECORD_NAME
    document = json.loads(file.read_text())
    document["sent"][name] = settings
    file.write_text(json.dumps(document))
    sent = len(site.scontrol.sent)
    with pytest.raises(SlurmError, match="is not given to Slurm"):
        site.arranger.revert()
    with pytest.raises(SlurmError, match="is not given to Slurm"):
        site.arranger.apply(site.wanted(9))
    assert (tmp_path / "soda-pools.conf").read_text() == include
    assert len(site.scontrol.sent) == sent


@pytest.mark.parametrize(
    "change",
    [
        {"sent": []}, {"sent": {"gpu_cpu": ["Nodes=n1"]}}, {"sent": {"gpu_cpu": {"Nodes": 1}}}, {"include_path": 3},
        {"phase": "done"}, {"shown": "x"}, {"base_of": {"gpu_cpu": None}}, {"by": {}},
    ],
)  # fmt: skip
def test_a_record_of_another_form_is_none(tmp_path: Path, change: dict[str, Any]) -> None:
    site = Site(tmp_path)
    site.arranger.apply(site.wanted())
    file = tmp_path / POOLS_RECORD_NAME
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(SlurmError, match="not a record of pools"):
        read_record(tmp_path)
