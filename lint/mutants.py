"""``python -m lint.mutants``: does a test fail if one line of the product is wrong?

Draws single-line mutants of the modules that decide, send, record and run as root, and runs on each the tests that execute
its line, in a copy of the repository. Which they are is recorded by one run of all these tests under coverage, and kept in
``build/executed_lines``; delete that to record anew. A mutant that no test kills survives: no test holds its line, or it
means the same. Exit status: 0; 1 if too few were killed, or if a test fails without any mutant.
"""

from __future__ import annotations

import argparse
import ast
import atexit
import importlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest
from coverage import CoverageData

ROOT = Path(__file__).parents[1]

TESTS = {
    "policies/engine policies/pipeline": "tests/policies tests/simulator/engine tests/sodactl/test_same_decision.py",
    "slurm_ext/write slurm_ext/pools": "tests/slurm_ext tests/sodactl/test_pools.py tests/daemon",
    "daemon/cycle daemon/preemption daemon/store": "tests/daemon tests/store tests/sodactl",
    "sodactl/control": "tests/sodactl",
    "prolog epilog wire agent": "tests/wire tests/prolog tests/agent",
}
"""Folders that are mutated, and the tests that are to hold them."""
EXECUTED_LINES = ROOT / "build" / "executed_lines"
LIBRARIES = "alembic.command fastapi httpx hypothesis psycopg psutil pydantic rich.console sqlalchemy.orm uvicorn"
"""What tests load, but for NumPy, which our package is to load; loading takes longer than most tests."""
LONGEST_TEST_S = 120  # a mutant may loop for ever
DECLARATIONS = {"migrations", "tables"}  # these folders say what the database is to do
_PAIRS = "Lt LtE, Gt GtE, Eq NotEq, In NotIn, Is IsNot, And Or, Add Sub, Mult FloorDiv"
OPPOSITES = {a: b for pair in _PAIRS.split(", ") for a, b in (pair.split(), pair.split()[::-1])}
WANTED_SHARE = 0.95
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::\S.*?)?)(?: - .*)?$", re.MULTILINE)
FOR_PEOPLE = ("log", "warn", "warning", "exception", "print_line", "print_table", "write")
"""Calls that only say something; no test shall hold every word."""


class Mutant(NamedTuple):
    """One changed line; columns in bytes."""

    path: Path
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.old}  ->  {self.new}"


def find_mutants(path: Path) -> Iterator[Mutant]:
    """Every mutant of a file, in order."""
    for node in _executed(ast.parse((ROOT / path).read_text("utf-8"))):
        if isinstance(node, ast.expr | ast.stmt) and node.lineno == node.end_lineno:
            old = ast.unparse(node)
            if new := _mutated(node):
                yield Mutant(path, node.lineno, node.col_offset, node.end_col_offset or 0, old, new)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Everything that runs: no annotations, decorators, f-strings, assertions or words for people."""
    skipped = [getattr(node, "annotation", None), getattr(node, "returns", None), *getattr(node, "decorator_list", [])]
    for child in ast.iter_child_nodes(node):
        called = child.value.func if isinstance(child, ast.Expr) and isinstance(child.value, ast.Call) else None
        says = called is not None and ast.unparse(called).rpartition(".")[2] in FOR_PEOPLE
        if child not in skipped and not says and not isinstance(child, ast.JoinedStr | ast.Assert):
            yield child
            yield from _executed(child)


def _mutated(node: ast.AST) -> str:  # noqa: PLR0911 - one for each kind
    """What the node becomes; empty for one that stays. Its operator is exchanged in place: what is inside comes later."""
    match node:
        case ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Expr(value=ast.Call()):
            return "pass"
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            return "return None"
        case ast.Constant(value=bool() | 0 | 1):
            return str(not node.value if isinstance(node.value, bool) else int(node.value) + 1)
        case ast.UnaryOp(op=ast.Not()):
            return f"({ast.unparse(node.operand)})"
        case ast.IfExp():
            return f"({ast.unparse(ast.IfExp(node.test, node.orelse, node.body))})"
        case ast.Compare() if type(node.ops[0]).__name__ in OPPOSITES:
            node.ops[0] = getattr(ast, OPPOSITES[type(node.ops[0]).__name__])()
        case ast.BoolOp() | ast.BinOp() if type(node.op).__name__ in OPPOSITES:
            node.op = getattr(ast, OPPOSITES[type(node.op).__name__])()
        case _:
            return ""
    return f"({ast.unparse(node)})"


def record_executed_lines() -> None:
    """Run all tests of :data:`TESTS` and write which of them executes which line."""
    places = list(dict.fromkeys(" ".join(TESTS.values()).split()))
    print(
        f"recording which test executes which line, in {EXECUTED_LINES.relative_to(ROOT)}: takes as long as the tests",
        flush=True,
    )
    EXECUTED_LINES.parent.mkdir(exist_ok=True)
    options = ["-q", "-n", "auto", "--dist", "worksteal", "--cov", "--cov-context=test", "--cov-report="]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src", "COVERAGE_FILE": str(EXECUTED_LINES)}
    subprocess.run([sys.executable, "-m", "pytest", *options, *places], cwd=ROOT, env=environment, check=False)
    if not EXECUTED_LINES.exists():
        raise SystemExit("nothing was recorded")


def tests_of(path: Path, line: int) -> list[str]:
    """The tests of a line: those that execute it, first in files that name its module; then those newer than the record.

    If the record does not know the line (it runs at import or in another process, or its file has changed), all tests of
    the module.
    """
    recorded_s = EXECUTED_LINES.stat().st_mtime
    places = next(tests for names, tests in TESTS.items() if any(path.is_relative_to(name) for name in names.split()))
    found = ((ROOT / place, sorted((ROOT / place).rglob("test_*.py"))) for place in places.split())
    dotted = ".".join(path.with_suffix("").parts)
    files = {str(file.relative_to(ROOT)): file for place, inside in found for file in inside or [place]}
    naming = {name for name, file in files.items() if dotted in file.read_text("utf-8")}
    new = [name for name, file in files.items() if file.stat().st_mtime > recorded_s]
    executing = [] if (ROOT / path).stat().st_mtime > recorded_s else _executing_tests(path, line)
    old = [test for test in executing or files if (name := test.partition("::")[0]) in files and name not in new]
    return [*sorted(old, key=lambda test: test.partition("::")[0] not in naming), *new] or list(files)


def _executing_tests(path: Path, line: int) -> list[str]:
    """Tests during which the line was executed; whole files, where a fixture did it that several tests may share."""
    recorded = CoverageData(str(EXECUTED_LINES))
    recorded.read()
    contexts = recorded.contexts_by_lineno(str(ROOT / path)).get(line, [])
    if "" in contexts:
        return []
    shared = {context.partition("::")[0] for context in contexts if not context.endswith("|run")}
    tests = sorted(context.rpartition("|")[0] for context in contexts)
    return [*sorted(shared), *dict.fromkeys(test for test in tests if test.partition("::")[0] not in shared)]


def failing_test(copied: Path, tests: Sequence[str]) -> str:
    """The first of these tests that fails, or the first one if pytest itself does; empty if none fails."""
    with tempfile.TemporaryFile() as output:
        if (child := os.fork()) == 0:
            _run_tests(copied, tests, output.fileno())
        try:
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # what tests left
        output.seek(0)
        named = _FAILURE.search(output.read().decode("utf-8", "replace"))
    return "" if status == 0 else named[1] if named else tests[0]


def _run_tests(copied: Path, tests: Sequence[str], output: int) -> NoReturn:
    """In a process of their own, a copy of this one, which has the libraries and nothing of ours."""
    status = 1
    try:
        atexit._clear()  # what the other process does when it ends
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(copied)
        sys.path = [f"{copied}/src", str(copied), *(p for p in sys.path if p not in ("", str(ROOT), f"{ROOT}/src"))]
        os.environ |= {"PYTHONPATH": f"{copied}/src", "PYTHONDONTWRITEBYTECODE": "1"}
        sys.dont_write_bytecode = True
        options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", f"--timeout={LONGEST_TEST_S}"]
        status = pytest.main([*options, *tests])
        atexit._run_exitfuncs()
        sys.stdout.flush()
    finally:
        os._exit(status)


def judge(copied: Path, mutant: Mutant) -> str:
    """The test that kills a mutant; empty if it survives."""
    target = copied / mutant.path
    source, found = target.read_bytes(), target.stat()
    lines = source.splitlines(keepends=True)
    line = lines[mutant.line - 1]
    lines[mutant.line - 1] = line[: mutant.start] + mutant.new.encode() + line[mutant.end :]
    target.write_bytes(b"".join(lines))
    killer = failing_test(copied, tests_of(mutant.path, mutant.line))
    target.write_bytes(source)
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))  # its bytecode is valid again
    return killer


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sample; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lint.mutants", description="Runs tests on single-line mutants.")
    parser.add_argument("--seed", type=int, default=1, help="draws the sample (default: 1)")
    parser.add_argument("--sample", type=int, default=30, help="how many mutants (default: 30)")
    parser.add_argument("--only", default="", metavar="PATH", help="only modules below this folder, or this file")
    given = parser.parse_args(argv)
    files = sorted(path.relative_to(ROOT) for name in " ".join(TESTS).split() for path in (ROOT / name).rglob("*.py"))
    files = [path for path in files if path.is_relative_to(given.only) and not DECLARATIONS & {*path.parts}]
    every = [mutant for path in files for mutant in find_mutants(path)]
    chosen = random.Random(given.seed).sample(every, min(given.sample, len(every)))  # noqa: S311 - no secret
    if not EXECUTED_LINES.exists():
        record_executed_lines()
    for library in LIBRARIES.split():
        importlib.import_module(library)
    survivors, killers = [], []
    with tempfile.TemporaryDirectory(prefix="slurm-soda-mutants-") as scratch:
        copied, unneeded = Path(scratch) / "repository", (".git", "build", ".*_cache")
        shutil.copytree(ROOT, copied, symlinks=True, ignore=shutil.ignore_patterns(*unneeded))
        for number, mutant in enumerate(chosen, 1):
            began_s = time.monotonic()
            killer = judge(copied, mutant)
            survivors += [] if killer else [mutant]
            killers += [killer] if killer else []
            word, took_s = f"killed by {killer}" if killer else "SURVIVED", time.monotonic() - began_s
            print(f"{number}/{len(chosen)} {took_s:4.0f} s  {mutant}  {word}", flush=True)
        if killers and (always := failing_test(copied, sorted(set(killers)))):
            raise SystemExit(f"{always} fails without any mutant: mend that first")
    share = 1 - len(survivors) / max(len(chosen), 1)
    print(f"seed {given.seed}: {share:.0%} of {len(chosen)} killed, drawn from {len(every)} mutants; survivors:")
    print("\n".join(f"  {mutant}" for mutant in survivors) or "  none")
    return 0 if share >= WANTED_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
