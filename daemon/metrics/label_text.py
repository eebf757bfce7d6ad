"""Names of Slurm as label values: valid Unicode, whatever bytes they have."""

from __future__ import annotations


def label_text(name: str) -> str:
    r"""The name, with a byte that is no UTF-8 written as ``\xff``; quotes and line ends are escaped where text is made."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
