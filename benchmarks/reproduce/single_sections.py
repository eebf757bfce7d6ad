"""Single sections of the document: chosen by name, printed, or put in place of those that are there."""

from __future__ import annotations

from collections.abc import Sequence

import click

from benchmarks.reproduce.document import Section, Written, anchor
from benchmarks.reproduce.preface import MISSING, SUMMARY, claim_line, picture


def choose(names: Sequence[str], every: Sequence[Section]) -> list[Section]:
    """The sections that have each of the names in their titles, in the document's order.

    Raises:
        click.UsageError: a name is in no title, or in several.
    """
    chosen = set()
    for name in names:
        titles = [section.title for section in every]
        found = [title for title in titles if name.lower() in title.lower()]
        exact = [title for title in found if title.lower() == name.lower()]
        if len(exact or found) != 1:
            which = found or titles
            raise click.UsageError(
                f"--section {name!r} is part of {'several titles' if found else 'no title'}; one of: {'; '.join(which)}"
            )
        chosen.update(exact or found)
    return [section for section in every if section.title in chosen]


def printed(parts: Sequence[tuple[str, Written]]) -> str:
    """Sections as a document of their own, each with what it contributes to the summary above its tables."""
    lines: list[str] = []
    for title, written in parts:
        lines += [f"## {title}", "", *(claim_line(title, claim) for claim in written.claims), "", *written.lines]
    return "\n".join(lines).rstrip() + "\n"


def put_into(text: str, order: Sequence[str], title: str, written: Written, images: str) -> str:
    """The document with this section and its lines of the summary in place of those that it had, if it had any.

    Args:
        text: the document.
        order: titles of all sections that it may have, as they follow each other.
        title: the section's.
        written: what it is to be.
        images: where pictures are, from the document.

    Raises:
        click.UsageError: it is no such document.
    """
    lines = text.splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("## ")]
    blocks = {lines[at][3:]: lines[at + 1 : end] for at, end in zip(starts, [*starts[1:], len(lines)], strict=True)}
    if not starts or SUMMARY not in blocks or MISSING not in blocks:
        raise click.UsageError(
            "--out names no document of `make reproduce`; write the whole one first, without --section"
        )
    blocks[SUMMARY] = _summary(blocks[SUMMARY], [*order, MISSING], title, written)
    titles = list(blocks)
    if title not in blocks:
        later = {*order[order.index(title) + 1 :], MISSING}
        titles.insert(next(at for at, name in enumerate(titles) if name in later), title)
    blocks[title] = ["", *written.lines, *picture(title, images)]
    whole = [*lines[: starts[0]], *(line for name in titles for line in (f"## {name}", *blocks[name]))]
    return "\n".join(whole).rstrip() + "\n"


def _summary(lines: Sequence[str], order: Sequence[str], title: str, written: Written) -> list[str]:
    """Lines of the summary in the order of the sections to which they lead."""
    places = {f"](#{anchor(name)})": at for at, name in enumerate(order)}

    def place(line: str) -> int:
        found = [at for link, at in places.items() if link in line]
        if len(found) != 1:
            raise click.UsageError(f"--out: a line of its summary leads to no section, so write the whole anew: {line}")
        return found[0]

    kept = [line for line in lines if line and place(line) != order.index(title)]
    return ["", *sorted([*kept, *(claim_line(title, claim) for claim in written.claims)], key=place), ""]
