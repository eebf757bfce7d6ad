"""Commented samples of the configuration files: keys and defaults are the program's own, what they mean is the documents'.

    python -m install.deb.samples TOP FOLDER       soda.toml and agent.toml, with an environment that has slurm-soda

A sample without its comment signs is the configuration that holds without any file.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from slurm_soda.agent.settings.agent_config import AgentConfig
from slurm_soda.daemon.settings.settings import Settings

_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_WIDTH = 119

_SODA_HEAD = """\
# Configuration of slurm-soda: of sodad on the controller, and of sodactl. Every key is optional; each line that
# begins with #KEY shows a default. After a change: sodactl doctor, systemctl restart sodad. A wrong key or value stops
# sodad at start, with one line that names it (journalctl -u sodad -o cat).
"""
_AGENT_HEAD = """\
# Configuration of soda-agent on this node. Every key is optional; each line that begins with #KEY shows a default.
# Set `controller` first, then see whether sodad takes a report: soda-agent --once; echo $?
"""


def sample_of_soda(install_md: str) -> str:
    """Text of ``soda.toml``."""
    meanings = dict(_rows(_section(install_md, "Configuration")))
    values = Settings().model_dump()
    return _SODA_HEAD + "".join(_lines(values, meanings, ""))


def sample_of_agent(node_md: str) -> str:
    """Text of ``agent.toml``."""
    meanings = dict(_rows(_section(node_md, "Configuration")))
    for table, heading in (("cores", "Cores"), ("memory", "Memory bandwidth"), ("network", "Network")):
        meanings |= {f"{table}.{key}": meaning for key, meaning in _rows(_section(node_md, heading))}
    return _AGENT_HEAD + "".join(_lines(asdict(AgentConfig()), meanings, ""))


def _lines(values: Mapping[str, object], meanings: Mapping[str, str], table: str) -> Iterator[str]:
    """Plain keys, then tables: in TOML a key after a table's head would be that table's."""
    for key, value in values.items():
        if not isinstance(value, Mapping) or not value:
            yield from _entry(key, value, meanings.get(f"{table}{key}", ""))
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield f"\n[{table}{key}]\n"
            yield from _lines(value, meanings, f"{table}{key}.")


def _entry(key: str, value: object, meaning: str) -> Iterator[str]:
    if value is None:
        meaning = f"{key}: {meaning}; not set by default"
    if meaning:
        yield "\n" + textwrap.fill(meaning, _WIDTH, initial_indent="# ", subsequent_indent="# ") + "\n"
    if value is not None:
        yield f"#{key} = {_toml(value)}\n"


def _toml(value: object) -> str:
    """As TOML writes it. What JSON writes is that too, for everything but infinite numbers and tables."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    return repr(value) if isinstance(value, float) else json.dumps(value)


def _section(text: str, heading: str) -> str:
    """What stands under a heading of the second level, and in those below it."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if found is None:
        raise SystemExit(f"there is no section {heading!r} any more, of which the samples are made")
    return found[1]


def _rows(section: str) -> Iterator[tuple[str, str]]:
    """Keys with what they mean, from tables of three columns; of several keys in a row each has the whole."""
    for line in section.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3:
            for key in _CODE.findall(cells[0]):
                yield key, _CODE.sub(r"\1", _LINK.sub(r"\1", cells[2])).replace("\\|", "|")


def main(top: Path, folder: Path) -> None:
    """Write both samples."""
    (folder / "soda.toml").write_text(sample_of_soda((top / "docs/install.md").read_text("utf-8")), "utf-8")
    (folder / "agent.toml").write_text(sample_of_agent((top / "docs/node.md").read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
