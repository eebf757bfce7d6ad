"""The documentation: every key of the configuration, one value for a setting, links that lead to what they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from slurm_soda.daemon.metrics.catalog import NODES, PROCESS, SITE, Metric
from slurm_soda.daemon.settings.settings import Settings
from slurm_soda.sodactl.main import GROUPS
from slurm_soda.wire.services import service_file

ROOT = Path(__file__).parents[2]
PAGES = sorted((*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"))
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]*)(?:#([^)]*))?\)")


def keys(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """``cycle.interval_s`` and all the others of the configuration file."""
    for name, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from keys(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


@pytest.mark.parametrize("key", list(keys(Settings)))
def test_every_key_of_the_configuration_is_documented(key: str) -> None:
    rows = [line for line in (ROOT / "docs" / "install.md").read_text().splitlines() if line.startswith("| `")]
    assert any(f"`{key}`" in row.split(" | ")[0] for row in rows), f"docs/install.md has no row for {key}"


@pytest.mark.parametrize(
    "key", [*service_file._KEYS, *(f"{of}.{key}" for of, keys in service_file._DEVICE_KEYS.items() for key in keys)]
)
def test_every_key_of_a_service_file_is_documented(key: str) -> None:
    rows = [
        line.split(" | ")[0] for line in (ROOT / "docs" / "services.md").read_text().splitlines() if line[:2] == "| "
    ]
    tables = {"replicas": "`replicas.most`", "cpu": "`cpu.cores`", "gpu": "`gpu.gpus`"}
    assert any(tables.get(key, f"`{key}`") in row for row in rows), f"docs/services.md has no row for {key}"


@pytest.mark.parametrize(("heading", "metrics"), [("At /metrics", SITE), ("At /metrics/nodes", NODES)])
def test_the_tables_of_metrics_are_the_catalogue(heading: str, metrics: tuple[Metric, ...]) -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in section.splitlines()]
    told = [row for row in rows if re.fullmatch(r"`soda_\w+`", row[0])]
    labels = {metric.name: ", ".join(f"`{label}`" for label in metric.labels) for metric in metrics}
    assert told == [(f"`{metric.name}`", metric.kind, labels[metric.name], metric.meaning) for metric in metrics]
    assert heading != "At /metrics" or all(f"`{name}`" in section for name in PROCESS)


def test_the_table_of_alerts_is_what_is_installed() -> None:
    rules = (ROOT / "install" / "monitoring" / "slurm-soda.rules.yml").read_text()
    alerts = re.findall(r"alert: (\w+)(?:.|\n)*?severity: (\w+)", rules)
    told = re.findall(r"(?m)^\| `(Soda\w+)` \| (\w+) \|", (ROOT / "docs" / "metrics.md").read_text())
    assert sorted(told) == sorted(alerts)


@pytest.mark.parametrize("command", [name for group in GROUPS.values() for name in group])
def test_every_command_is_in_the_tables_of_commands_and_has_a_section(command: str) -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    assert f"| [`{command}`](#sodactl-{command}" in text.partition("## Common to all commands")[0]
    assert re.search(rf"(?m)^## sodactl {command}( .*)?$", text)


def test_every_check_of_doctor_is_documented() -> None:
    """By the names that its modules write."""
    files = sorted((ROOT / "sodactl" / "checks").glob("*.py"))
    named = {
        found
        for path in files
        for found in re.findall(r'(?:CheckResult\(\s*|^_CHECK = )"([^":]+)', path.read_text(), re.M)
    }
    section = (ROOT / "docs" / "commands.md").read_text().partition("\n## sodactl doctor\n")[2].partition("\n## ")[0]
    rows = [line.split(" | ")[0].strip("| ") for line in section.splitlines() if line.startswith("| ")]
    told = {name.partition(":")[0] for row in rows for name in row.split(", ")}
    assert {"slurmctld", "configuration", "scope"} <= named
    assert named <= told, named - told


def test_prologs_have_one_time_limit_everywhere() -> None:
    pages = [page for page in PAGES if page.parent.name != "measurements"]  # transcripts show Slurm's default too
    files = [*pages, *(ROOT / "containers").rglob("*.py"), *(ROOT / "sodactl").rglob("*.py")]
    found = {path: re.findall(r"PrologEpilogTimeout=(\d+)", path.read_text()) for path in files}
    named = {str(path.relative_to(ROOT)): values for path, values in found.items() if values}
    assert {"docs/install.md", "docs/node.md", "containers/slurm_config.py"} <= set(named)
    assert {value for values in named.values() for value in values} == {"90"}, named


def anchors(page: Path) -> set[str]:
    """Names of a page's headings in links, as GitHub forms them."""
    headings = re.findall(r"(?m)^#+ (.*)$", page.read_text())
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_what_they_name(page: Path) -> None:
    for text, target, anchor in LINK.findall(page.read_text()):
        if "://" in target:
            continue
        if anchor:
            assert anchor in anchors(page.parent / target if target else page), f"[{text}]({target}#{anchor})"
        assert (page.parent / target).exists(), f"[{text}]({target})"
        if re.fullmatch(r"[\w./-]+\.md", text):
            assert Path(text).name == Path(target).name, f"[{text}]({target})"
