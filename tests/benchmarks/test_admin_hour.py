"""The transcript of an administrator's hour: what it keeps and how it is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from benchmarks.admin_hour.transcript import Terminal
from slurm_soda.containers.container_commands import ContainerCommandResult


@dataclass
class Shell:
    """In a cluster's place: each command says what it was told to say."""

    says: str = ""
    status: int = 0
    asked: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)

    def exec(self, user: str, argv: tuple[str, ...], *, node: str, **_: Any) -> ContainerCommandResult:
        self.asked.append((user, node, argv))
        return ContainerCommandResult(argv, self.says, "", self.status)


def test_commands_are_written_with_what_they_said() -> None:
    shell = Shell("(Reading database ... 5%\nSetting up slurm-soda-agent ...\n")
    site = Terminal(shell, part="Install")  # type: ignore[arg-type]
    site.type("apt-get install x", "n1")
    shell.says, shell.status = "ok\n" * 40, 1
    site.part = "Look"
    site.type("cat <<'END'\nx\nEND", user="alice", statuses=(0, 1))
    site.look("hidden")
    text = "\n".join(site.markdown())
    assert text.startswith("| step | commands | time |\n|---|---|---|\n| Install | 1 | 0 s |\n| Look | 1 | 0 s |\n")
    assert "root@n1$ apt-get install x    # 0.0 s\nSetting up slurm-soda-agent ...\n" in text
    assert "alice@ctl$ cat <<'END'    # 0.0 s, status 1\n> x\n> END\nok\n" in text
    assert "… 16 lines more" in text
    assert "Reading" not in text
    assert "hidden" not in text


def test_a_command_that_fails_ends_the_hour() -> None:
    site = Terminal(Shell("sodad: no\n", 1))  # type: ignore[arg-type]
    with pytest.raises(SystemExit, match="ctl: false: status 1"):
        site.type("false")
    assert len(site.typed) == 1, "what failed is in the transcript"
