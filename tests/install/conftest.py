"""The install script's module, which is no part of the package: it runs before anything is installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOP = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def roles() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install_roles", TOP / "install" / "roles.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def sources(roles: ModuleType) -> dict[str, str]:
    """Texts of all our modules by name."""
    root = TOP / "src"
    inside = (root / roles.PACKAGE).iterdir()
    paths = [path for entry in inside for path in (entry.rglob("*.py") if entry.is_dir() else [entry])]
    return {roles.module_name(path.relative_to(root).as_posix()): path.read_text("utf-8") for path in paths}
