"""Two checks: ``python -m lint names`` and ``python -m lint counts [NAME]``.

``names`` refuses names by docs/glossary.md, and names in docstrings that nobody has; ``counts`` counts what is to stay rare.
Both read the source only and import none of it. Exit status: 0; 1 if names are refused; 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from lint.counts import COUNTS, count_lines
from lint.docstrings import find_stale_names
from lint.glossary import GLOSSARY, read_glossary
from lint.names import find_names, find_problems, find_repeated_classes
from lint.source import Module, read_product


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the two checks; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lint", description="Checks of the product's own source.")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="repository (default: this one)")
    commands = parser.add_subparsers(dest="command", required=True)
    names = commands.add_parser(
        "names",
        help="refuse names that docs/glossary.md refuses, class names used twice, and stale names in docstrings",
    )
    counts = commands.add_parser("counts", help="count what is to stay rare; with a NAME list the places")
    counts.add_argument("name", nargs="?", choices=COUNTS, help="list the places of this count")
    for command in (names, counts):
        command.add_argument("--json", action="store_true", help="one JSON document")
    arguments = parser.parse_args(argv)
    modules = read_product(arguments.root)
    if arguments.command == "names":
        return print_problems(modules, arguments.root, as_json=arguments.json)
    print_counts(modules, arguments.root, arguments.name, as_json=arguments.json)
    return 0


def print_problems(modules: dict[str, Module], root: Path, *, as_json: bool) -> int:
    """Print refused names; 1 if there are any."""
    problems = find_problems(modules.values(), read_glossary(root / GLOSSARY))
    problems += find_stale_names(list(modules.values()))
    if as_json:
        print(json.dumps([asdict(problem) for problem in problems], indent=2))
    else:
        for problem in problems:
            print(problem)
        print(f"{len(problems)} refused names ({GLOSSARY} tells what to say instead)", file=sys.stderr)
    return 1 if problems else 0


def print_counts(modules: dict[str, Module], root: Path, name: str | None, *, as_json: bool) -> None:
    """Print the figures, or the places of one of them."""
    if name:
        places = list(COUNTS[name](modules))
        print(json.dumps(places, indent=2) if as_json else "\n".join(places))
        return
    figures: dict[str, int | dict[str, int]] = {key: len(list(count(modules))) for key, count in COUNTS.items()}
    figures["loose-modules"] = dict(Counter(place.split("/")[0] for place in COUNTS["loose-modules"](modules)))
    figures["refused-names"] = len(find_problems(modules.values(), read_glossary(root / GLOSSARY)))
    all_names = (one for module in modules.values() for one in find_names(module))
    figures["class-names-used-twice"] = len(find_repeated_classes(all_names))
    figures["product-lines"] = count_lines(modules)
    if as_json:
        print(json.dumps(figures, indent=2))
        return
    for key, figure in figures.items():
        text = (
            ", ".join(f"{folder} {number}" for folder, number in figure.items()) if isinstance(figure, dict) else figure
        )
        print(f"{key:26} {text}")


if __name__ == "__main__":
    sys.exit(main())
