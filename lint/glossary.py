"""The words that docs/glossary.md refuses, and which part of a name each of them refuses.

A table whose last column is headed "not" holds them between backticks, each beside the term to use:

- ``word``: as one word of a name, in singular and plural: ``sight``, ``ClusterSight``, ``--last-sights``;
- ``two_words``: these words next to each other;
- ``Word``: as the whole name of a class, a module, a table, a command or a section of the configuration. So a general word
  such as Work is refused where it stands alone, and allowed in ``IterationWork``;
- ``word()``: as the whole name of a function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

GLOSSARY = Path("docs/glossary.md")
WHOLE_NAME_KINDS = frozenset({"class", "module", "table", "command", "section"})

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_CELL = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True)
class RefusedWord:
    """One word of the column "not"."""

    word: str
    """As the glossary writes it."""
    term: str
    """What to say instead."""

    def is_in(self, name: str, kind: str) -> bool:
        """Whether a name is refused for this word."""
        words = split_words(name)
        refused = split_words(self.word)
        if self.word[0].isupper():
            return kind in WHOLE_NAME_KINDS and words == refused
        if self.word.endswith("()"):
            return kind == "function" and words == refused
        return any(
            all(word in (other, f"{other}s") for word, other in zip(words[at:], refused, strict=False))
            for at in range(len(words) - len(refused) + 1)
        )


def split_words(name: str) -> list[str]:
    """The words of a name in snake_case, CamelCase or kebab-case, in small letters."""
    return [word.lower() for word in _WORD.findall(name)]


def read_glossary(path: Path) -> list[RefusedWord]:
    """All refused words.

    Raises:
        ValueError: the file holds none, so a check by it would say nothing.
    """
    refused = list(_parse_tables(path.read_text(encoding="utf-8")))
    if not refused:
        raise ValueError(f"{path}: no table with a last column 'not'")
    return refused


def _parse_tables(text: str) -> Iterator[RefusedWord]:
    in_table = False
    for line in text.splitlines():
        cells = [cell.strip() for cell in _CELL.split(line.strip())[1:-1]]
        if not cells:
            in_table = False
        elif not in_table:
            in_table = cells[-1] == "not"
        else:
            term = cells[0].replace("`", "").replace("*", "")
            yield from (RefusedWord(word, term) for word in re.findall(r"`([^`]+)`", cells[-1]))
