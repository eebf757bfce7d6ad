"""What is to stay rare in the product, counted: one function a figure, each listing the places that it counted."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from lint.source import Module

Modules = Mapping[str, Module]

ACTUATOR = "slurm_ext/write/"
CYCLE = "daemon/cycle/cycle.py"
SMALL_MODULE_LINES = 40
ROOMS = ("daemon", "sodactl", "agent", "policies", "slurm_ext")
"""Top-level folders with at most four loose modules each."""


def updates_outside_actuator(modules: Modules) -> Iterator[str]:
    """Slurm updates (JobChange, JobUpdate) that are constructed outside slurm_ext/write."""
    for module in modules.values():
        if not module.path.as_posix().startswith(ACTUATOR):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Call) and _called(node) in {"JobChange", "JobUpdate"}:
                    yield f"{module.path}:{node.lineno}"


def joins_by_id(modules: Modules) -> Iterator[str]:
    """Calls of the built-in id(), by which one table of objects finds another."""
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "id":
                yield f"{module.path}:{node.lineno}"


def imports_of_the_cycle(modules: Modules) -> Iterator[str]:
    """Modules of the product that daemon/cycle/cycle.py imports."""
    for module in modules.values():
        if module.path.as_posix() == CYCLE:
            yield from sorted(set(module.imported_modules(modules)))


def loose_modules(modules: Modules) -> Iterator[str]:
    """Modules that lie in a top-level folder itself, beside its sub-folders (at most four in each)."""
    for module in modules.values():
        if module.folder in ROOMS and len(module.path.parts) == 2 and not module.is_package:
            yield str(module.path)


def small_modules_with_one_importer(modules: Modules) -> Iterator[str]:
    """Modules under 40 lines that one other module imports and nobody else."""
    importers = defaultdict(set)
    for name, module in modules.items():
        for imported in module.imported_modules(modules):
            if imported != name:
                importers[imported].add(name)
    for name, module in modules.items():
        if not module.is_package and _lines(module) < SMALL_MODULE_LINES and len(importers[name]) == 1:
            yield f"{module.path} ({_lines(module)} lines, for {next(iter(importers[name]))})"


def dense_formatting(modules: Modules) -> Iterator[str]:
    """Places where the formatter is turned off (fmt: skip, fmt: off)."""
    for module in modules.values():
        for number, line in enumerate(module.text.splitlines(), 1):
            if "fmt: skip" in line or "fmt: off" in line:
                yield f"{module.path}:{number}"


COUNTS: Mapping[str, Callable[[Modules], Iterator[str]]] = {
    "updates-outside-actuator": updates_outside_actuator,
    "joins-by-id": joins_by_id,
    "imports-of-the-cycle": imports_of_the_cycle,
    "loose-modules": loose_modules,
    "small-modules": small_modules_with_one_importer,
    "dense-formatting": dense_formatting,
}


def count_lines(modules: Modules) -> int:
    """Lines of the product's Python."""
    return sum(_lines(module) for module in modules.values())


def _lines(module: Module) -> int:
    return len(module.text.splitlines())


def _called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
