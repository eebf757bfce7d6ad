"""python -m lint on small made-up trees: which names are refused, and that this repository has none."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

# These checks are no part of the package, so they are found by their place.
from lint.__main__ import main
from lint.counts import COUNTS
from lint.glossary import RefusedWord, read_glossary, split_words
from lint.names import find_names
from lint.source import Module, read_product
from slurm_soda.sodactl.main import COMMANDS
from tests.sodactl.conftest import subcommands

ROOT = Path(__file__).parents[2]

GLOSSARY = """# Glossary
| term | meaning | from | not |
|---|---|---|---|
| **Slurm state** | What Slurm said. | field | `sight` |
| pool | A division. | SODA | `arrays`, `in_want` |
| general | Say of what. | – | `Work`, `look()` |
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "glossary.md").write_text(GLOSSARY)
    (tmp_path / "daemon").mkdir()
    (tmp_path / "src" / "slurm_soda").mkdir(parents=True)
    (tmp_path / "src" / "slurm_soda" / "daemon").symlink_to("../../daemon")
    return tmp_path


def refused(tree: Path, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, int, str, str, str]]:
    status = main(["--root", str(tree), "names", "--json"])
    problems = json.loads(capsys.readouterr().out)
    assert status == (1 if problems else 0)
    return [(one["path"], one["line"], one["kind"], one["name"], one["word"]) for one in problems]


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("sight.py", "", (1, "module", "sight", "sight")),
        ("sights/__init__.py", "", (1, "module", "sights", "sight")),
        ("work.py", "", (1, "module", "work", "Work")),
        ("a.py", "\nclass ClusterSight: ...", (2, "class", "ClusterSight", "sight")),
        ("a.py", "class Work: ...", (1, "class", "Work", "Work")),
        ("a.py", "async def jobs_in_want(): ...", (1, "function", "jobs_in_want", "in_want")),
        ("a.py", "class A:\n    def look(self): ...", (2, "function", "look", "look()")),
        ("a.py", "class A:\n    last_sights: int = 0", (2, "field", "last_sights", "sight")),
        ("a.py", "class A:\n    __tablename__ = 'sight'", (2, "table", "sight", "sight")),
        ("settings/settings.py", "class _Settings:\n    sight_s: float = 1.0", (2, "key", "sight_s", "sight")),
        ("settings/settings.py", "class Settings:\n    work: WorkSettings = 1", (2, "section", "work", "Work")),
        ("a.py", "@click.option('-a', '--arrays/--no-arrays')\ndef f(): ...", (1, "option", "--arrays", "arrays")),
        ("a.py", "parser.add_argument('--last-sight')", (1, "option", "--last-sight", "sight")),
        ("a.py", "@group.command('sight')\ndef f(): ...", (1, "command", "sight", "sight")),
        ("a.py", "GROUPS: dict = {\n    '': {'arrays': 1}}", (2, "command", "arrays", "arrays")),
    ],
)
def test_a_refused_name(
    tree: Path, capsys: pytest.CaptureFixture[str], path: str, text: str, found: tuple[int, str, str, str]
) -> None:
    (tree / "daemon" / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / "daemon" / path).write_text(text)
    assert (f"daemon/{path}", *found) in refused(tree, capsys)


@pytest.mark.parametrize(
    "text",
    [
        "class IterationWork: ...",
        "def work(): ...",
        "class Insight: ...",
        "def array_task(): ...",
        "def look_up(): ...",
        "def _sight(): ...",
        "class _Sight: ...",
        "def jobs_in(): ...\ndef want(): ...",
        "def f():\n    sight = 1\n    return sight",
    ],
)
def test_a_name_that_is_allowed(tree: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tree / "daemon" / "a.py").write_text(text)
    assert refused(tree, capsys) == []


def test_a_class_name_used_twice(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "daemon" / "a.py").write_text("class Run: ...\nclass _State: ...")
    (tree / "daemon" / "b.py").write_text("class Queue:\n    class Run: ...\nclass _State: ...")
    assert refused(tree, capsys) == [("daemon/b.py", 2, "class", "Run", "Run")]
    assert main(["--root", str(tree), "names"]) == 1
    assert "daemon/b.py:2: class Run: Run: daemon/a.py:1 has this name" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('def f(now_s):\n    """It.\n\n    Args:\n        then_s: when."""', (1, "Args", "then_s", "not in f")),
        (
            'class A:\n    """It.\n\n    Attributes:\n        b: what."""\n    c: int',
            (1, "Attributes", "b", "not in A"),
        ),
        ('def f():\n    """It.\n\n    Raises:\n        GoneError: so."""', (1, "Raises", "GoneError", "not in f")),
        ('"""See :func:`.gone`."""', (1, "reference", ".gone", "no such name")),
        (
            '"""See :meth:`~.gone.A.f`."""\nclass A:\n    def f(self): ...',
            (1, "reference", ".gone.A.f", "no such name"),
        ),
    ],
)
def test_a_stale_name_in_a_docstring(
    tree: Path, capsys: pytest.CaptureFixture[str], text: str, found: tuple[int, str, str, str]
) -> None:
    (tree / "daemon" / "a.py").write_text(text)
    assert refused(tree, capsys) == [("daemon/a.py", *found)]


@pytest.mark.parametrize(
    "text",
    [
        'def f(a, b, **more):\n    """It.\n\n    Args:\n        a, b: one,\n            c: two.\n        more: rest."""',
        'class A:\n    """It.\n\n    Attributes:\n        b: what."""\n    def __init__(self): self.b = 1',
        'class A(B):\n    """It.\n\n    Attributes:\n        inherited: what."""',
        'def f():\n    """It.\n\n    Raises:\n        ValueError: no.\n        click.UsageError: no."""',
        '"""See :mod:`.a`, :meth:`A.f` and :attr:`slurm_soda.daemon.a.A.g`."""\nclass A:\n    g: int\n    def f(self): ...',
    ],
)
def test_a_docstring_whose_names_are_there(tree: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    (tree / "daemon" / "a.py").write_text(text)
    assert refused(tree, capsys) == []


def test_the_message_says_what_to_say_instead(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "daemon" / "a.py").write_text("class Sight: ...")
    main(["--root", str(tree), "names"])
    assert capsys.readouterr().out == "daemon/a.py:1: class Sight: sight: say Slurm state\n"


def test_a_glossary_without_words_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "glossary.md").write_text("| term | not |\n|---|---|\n| pool | |\n")
    with pytest.raises(ValueError, match="no table"):
        read_glossary(tmp_path / "glossary.md")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("HTTPServer2", ["http", "server", "2"]),
        ("gpu_util_ratio", ["gpu", "util", "ratio"]),
        ("--pair-slowdown", ["pair", "slowdown"]),
    ],
)
def test_words_of_a_name(name: str, words: list[str]) -> None:
    assert split_words(name) == words


def test_several_words_stand_together() -> None:
    assert RefusedWord("in_want", "").is_in("JobsInWant", "class")
    assert not RefusedWord("in_want", "").is_in("want_in", "function")


COUNTED = {
    "updates-outside-actuator": ["daemon/cycle/cycle.py:4"],
    "joins-by-id": ["daemon/cycle/cycle.py:5"],
    "imports-of-the-cycle": [
        "slurm_soda.daemon.cycle.small",
        "slurm_soda.daemon.loose",
        "slurm_soda.slurm_ext.write.changes",
    ],
    "loose-modules": ["daemon/loose.py"],
    "small-modules": [
        "daemon/cycle/small.py (1 lines, for slurm_soda.daemon.cycle.cycle)",
        "daemon/loose.py (1 lines, for slurm_soda.daemon.cycle.cycle)",
        "slurm_ext/write/changes.py (2 lines, for slurm_soda.daemon.cycle.cycle)",
    ],
    "dense-formatting": ["daemon/loose.py:1"],
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(tree: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    files = {
        "daemon/__init__.py": "",
        "daemon/loose.py": "x = 1  # fmt: skip",
        "daemon/cycle/__init__.py": "",
        "daemon/cycle/small.py": "y = 1",
        "daemon/cycle/cycle.py": "import json\nfrom .small import y\nfrom ..loose import x\nJobChange(1)\nid(x)\n"
        "from slurm_soda.slurm_ext.write.changes import JobChange\nself.id(3)\n",
        "slurm_ext/__init__.py": "",
        "slurm_ext/write/__init__.py": "",
        "slurm_ext/write/changes.py": "class JobChange: ...\nJobChange(2)",
    }
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
    (tree / "src" / "slurm_soda" / "slurm_ext").symlink_to("../../slurm_ext")
    assert main(["--root", str(tree), "counts", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == COUNTED[name]
    assert main(["--root", str(tree), "counts", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["loose-modules"] == {"daemon": 1}
    assert (figures["product-lines"], figures["refused-names"], figures["class-names-used-twice"]) == (11, 0, 0)


@pytest.fixture(scope="module")
def product() -> dict[str, Module]:
    return read_product(ROOT)


@pytest.mark.thorough
def test_this_repository_has_no_refused_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["names"]) == 0, capsys.readouterr().out


def test_every_option_of_the_command_line_is_seen(product: dict[str, Module]) -> None:
    """Names come from the source alone: what click has in the end is among them."""
    names = [one for module in product.values() for one in find_names(module)]
    seen = {one.name for one in names if one.kind == "option"}
    assert set(COMMANDS) <= {one.name for one in names if one.kind == "command"}
    pending: list[click.Command] = [lazy.load() for lazy in COMMANDS.values()]
    while pending:
        command = pending.pop()
        if isinstance(command, click.Group):
            pending += subcommands(command)
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert {word for word in parameter.opts if word.startswith("--")} <= seen, command.name


def test_keys_of_both_configurations_are_seen(product: dict[str, Module]) -> None:
    kinds = {(one.kind, one.name) for module in product.values() for one in find_names(module)}
    assert {("section", "change_limits"), ("key", "order_depth"), ("key", "upload_interval_s")} <= kinds
