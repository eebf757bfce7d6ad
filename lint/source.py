"""The product's Python source: every module below src/slurm_soda, parsed once, by its place in the repository."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "slurm_soda"


@dataclass(frozen=True, slots=True)
class Module:
    """One parsed file."""

    path: Path
    """Relative to the repository: ``daemon/cycle/wake.py``."""
    text: str
    tree: ast.Module

    @property
    def folder(self) -> str:
        """Its top-level folder, such as ``daemon``."""
        return self.path.parts[0]

    @property
    def dotted_name(self) -> str:
        """As it is imported: ``slurm_soda.daemon.cycle.wake``; of a package its own name."""
        parts = self.path.with_suffix("").parts
        return ".".join((PACKAGE, *(parts[:-1] if parts[-1] == "__init__" else parts)))

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def imported_modules(self, known: Mapping[str, Module]) -> Iterator[str]:
        """The product's modules that this one imports, anywhere in it."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in known)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute_name(node)
                for alias in node.names:
                    name = f"{base}.{alias.name}"
                    if (found := name if name in known else base) in known:
                        yield found

    def _absolute_name(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parents = self.dotted_name.split(".")
        package = parents[: len(parents) - node.level + self.is_package]
        return ".".join((*package, node.module) if node.module else package)


def read_product(root: Path) -> dict[str, Module]:
    """All modules of the folders to which ``src/slurm_soda`` leads, by dotted name."""
    modules = {}
    for folder in sorted(path.name for path in (root / "src" / PACKAGE).iterdir() if path.is_dir()):
        for path in sorted((root / "src" / PACKAGE / folder).resolve().rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            place = Path(folder) / path.relative_to((root / "src" / PACKAGE / folder).resolve())
            module = Module(place, text, ast.parse(text, str(place)))
            modules[module.dotted_name] = module
    return modules
