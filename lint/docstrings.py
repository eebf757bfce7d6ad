"""Names that docstrings use and nobody has: arguments, attributes, errors and references that a renaming left behind."""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from lint.names import Problem
from lint.source import PACKAGE, Module

_REFERENCE = re.compile(r":(?:func|class|attr|data|meth|mod|exc):`~?([^`]+)`")
_SECTION = re.compile(r"^(Args|Attributes|Raises):\n((?:[ ]+.*\n?|\n)+)", re.MULTILINE)
_ENTRY = re.compile(r"(\w[\w., ]*?)(?: \(.*?\))?:")

_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def find_stale_names(modules: Sequence[Module]) -> list[Problem]:
    """One problem for each name in a docstring that is not, or no longer, a name of the product."""
    known = {name for module in modules for name in _defined_names(module)}
    return [problem for module in modules for problem in _stale_in(module, known)]


def _stale_in(module: Module, known: set[str]) -> Iterator[Problem]:
    path = str(module.path)
    for number, line in enumerate(module.text.splitlines(), 1):
        for name in _REFERENCE.findall(line):
            if not known.issuperset(part for part in name.split(".") if part not in ("", PACKAGE)):
                yield Problem(path, number, "reference", name, "no such name", "say its present name")
    for node in ast.walk(module.tree):
        if not isinstance(node, _Definition):
            continue
        for section, text in _SECTION.findall(ast.get_docstring(node) or ""):
            present = _names_for(section, node, known)
            for name in _entries(text):
                if present is not None and name not in present:
                    yield Problem(path, node.lineno, section, name, f"not in {node.name}", "say its present name")


def _names_for(section: str, node: _Definition, known: set[str]) -> set[str] | None:
    """The names that a section of this docstring may have; ``None``: any."""
    if section == "Raises":
        return known | set(dir(builtins))
    if section == "Args":
        return None if isinstance(node, ast.ClassDef) else {one.arg for one in _arguments(node)}
    return None if not isinstance(node, ast.ClassDef) or node.bases else set(_names_in(node))


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.arg]:
    return (one for one in ast.walk(node.args) if isinstance(one, ast.arg))


def _entries(text: str) -> Iterator[str]:
    """Names before the colon of each entry; those of other packages, which have dots, are left out."""
    for line in textwrap.dedent(text).splitlines():
        if found := _ENTRY.match(line):
            yield from (name for part in found[1].split(",") if (name := part.strip()) and "." not in name)


def _defined_names(module: Module) -> Iterator[str]:
    yield from module.path.with_suffix("").parts
    yield from _names_in(module.tree)
    for node in ast.walk(module.tree):  # errors of other packages that a module uses
        if isinstance(node, ast.ImportFrom | ast.Import):
            yield from (alias.asname or alias.name for alias in node.names)


def _names_in(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, _Definition):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
