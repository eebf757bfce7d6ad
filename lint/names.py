"""Public names of the product, where each is defined, and which of them the glossary refuses."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lint.glossary import RefusedWord
from lint.source import Module

_OPTION_CALLS = {"option", "add_argument", "Option"}
_COMMAND_CALLS = {"command", "group"}
_CONFIGURATION = ("daemon/settings/", "agent/settings/")
"""Where annotated fields are keys of a configuration file."""


@dataclass(frozen=True, slots=True)
class Name:
    """One name at its definition."""

    path: str
    line: int
    kind: str
    """``module``, ``class``, ``function``, ``field``, ``table``, ``option``, ``command``, ``key``, ``section``."""
    name: str


@dataclass(frozen=True, slots=True)
class Problem:
    """One refused name."""

    path: str
    line: int
    kind: str
    name: str
    word: str
    """The refused word, or the class's name where another class has it too."""
    instead: str
    """What to do about it."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind} {self.name}: {self.word}: {self.instead}"


def find_problems(modules: Iterable[Module], refused: Sequence[RefusedWord]) -> list[Problem]:
    """Names with a refused word, and public classes whose name another class has."""
    names = [name for module in modules for name in find_names(module)]
    problems = [
        Problem(one.path, one.line, one.kind, one.name, word.word, f"say {word.term}")
        for one in names
        for word in refused
        if word.is_in(one.name, one.kind)
    ]
    for same in find_repeated_classes(names):
        first = same[0]
        problems += [
            Problem(one.path, one.line, "class", one.name, one.name, f"{first.path}:{first.line} has this name")
            for one in same[1:]
        ]
    return sorted(problems, key=lambda problem: (problem.path, problem.line, problem.name, problem.word))


def find_repeated_classes(names: Iterable[Name]) -> list[list[Name]]:
    """Public classes with the same name, in groups of two or more."""
    by_name = defaultdict(list)
    for one in names:
        if one.kind == "class":
            by_name[one.name].append(one)
    return [same for same in by_name.values() if len(same) > 1]


def find_names(module: Module) -> Iterator[Name]:
    """All public names that a module defines: its own, its classes and functions, fields, and words of the command line."""
    path = module.path.as_posix()
    yield Name(path, 1, "module", module.path.parent.name if module.is_package else module.path.stem)
    is_configuration = path.startswith(_CONFIGURATION)
    for node in module.tree.body:
        yield from _find_definitions(node, path, is_configuration)
    for part in ast.walk(module.tree):
        if isinstance(part, ast.Call):
            yield from _find_command_words(part, path)
        elif isinstance(part, ast.AnnAssign | ast.Assign):
            yield from _find_command_table(part, path)


def _find_definitions(node: ast.stmt, path: str, is_configuration: bool) -> Iterator[Name]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
        yield Name(path, node.lineno, "function", node.name)
    if not isinstance(node, ast.ClassDef):
        return
    if not node.name.startswith("_"):
        yield Name(path, node.lineno, "class", node.name)
    elif not is_configuration:
        return
    for child in node.body:
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            if not child.target.id.startswith("_"):
                is_section = is_configuration and "Settings" in ast.unparse(child.annotation)
                kind = "section" if is_section else "key" if is_configuration else "field"
                yield Name(path, child.lineno, kind, child.target.id)
        elif isinstance(child, ast.Assign) and ast.unparse(child.targets[0]) == "__tablename__":
            yield Name(path, child.lineno, "table", str(ast.literal_eval(child.value)))
        else:
            yield from _find_definitions(child, path, is_configuration)


def _find_command_words(call: ast.Call, path: str) -> Iterator[Name]:
    function = call.func
    called = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    words = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    if called in _OPTION_CALLS:
        for word in words:
            if word.startswith("--"):
                yield from (Name(path, call.lineno, "option", each) for each in word.split("/"))
    elif called in _COMMAND_CALLS and words:
        yield Name(path, call.lineno, "command", words[0])


def _find_command_table(node: ast.AnnAssign | ast.Assign, path: str) -> Iterator[Name]:
    """Names in sodactl's table of commands, one dictionary for each group of readers."""
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    if isinstance(target, ast.Name) and target.id == "GROUPS" and isinstance(node.value, ast.Dict):
        for group in node.value.values:
            if isinstance(group, ast.Dict):
                for key in group.keys:
                    if isinstance(key, ast.Constant):
                        yield Name(path, key.lineno, "command", str(key.value))
