"""sharing.conf of a node, as its agent reads it: as the hooks do (tests/prolog has those)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_soda.wire.hook_settings import HookSettings, read_hook_settings

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="the file must be root's")


def test_a_node_without_the_file_has_the_defaults(tmp_path: Path) -> None:
    assert read_hook_settings(tmp_path / "none") == HookSettings(30, False, (), False, "")


@as_root
@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("", HookSettings()),
        ("# comment\nkill_wait_s=10\nmps=yes\npartitions=gpu,long\n", HookSettings(10, True, ("gpu", "long"))),
        ("kill_wait_s=0\nmps=maybe\nconsent_by_default=yes", HookSettings(consent_by_default=True)),
        ("mps=no\nmps=yes\n", HookSettings()),
        ("mps=yes\nmps=no\n", HookSettings()),
        ("kill_wait_s=1000\n#mps=yes\npartitions=\n", HookSettings()),
    ],
)
def test_what_the_file_says(tmp_path: Path, text: str, settings: HookSettings) -> None:
    (tmp_path / "sharing.conf").write_text(text)
    assert read_hook_settings(tmp_path / "sharing.conf") == settings
    assert HookSettings.from_dict({**{key: getattr(settings, key) for key in settings.__slots__},
                                   "partitions": list(settings.partitions)}) == settings  # fmt: skip


def test_what_the_hooks_do_not_trust(tmp_path: Path) -> None:
    file, link, folder = tmp_path / "sharing.conf", tmp_path / "link", tmp_path / "folder"
    file.write_text("mps=yes\n")
    file.chmod(0o664)
    link.symlink_to(file)
    folder.mkdir()
    for path, problem in (
        (file, "others than root may write it"),
        (link, "it is no file"),
        (folder, "it is no file"),
    ):
        assert read_hook_settings(path) == HookSettings(problem=problem)
