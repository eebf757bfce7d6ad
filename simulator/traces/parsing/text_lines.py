"""The lines of a text file, with their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_soda.simulator.traces.parsing.trace_faults import TraceFaults

_MAGIC = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK\x03\x04")
"""First bytes of gzip, bzip2, xz, zstd and zip."""
COMPRESSED = "it is compressed; unpack it first, such as with gunzip"
_NOT_UTF8 = "the text must be UTF-8"


@dataclass(frozen=True, slots=True)
class TextLines:
    """The lines of a file that are not blank; ``text[i]`` is line ``number[i]``, 1 first."""

    text: Sequence[str]
    number: Sequence[int]

    def __len__(self) -> int:
        return len(self.text)

    def select(self, wanted: Sequence[bool]) -> TextLines:
        """Some of the lines, by one flag each."""
        if all(wanted):
            return self
        return TextLines(
            [text for text, want in zip(self.text, wanted, strict=True) if want],
            [number for number, want in zip(self.number, wanted, strict=True) if want],
        )


def is_compressed(head: bytes) -> bool:
    """Whether a file that begins with these bytes is compressed."""
    return head.startswith(_MAGIC)


def with_newlines(data: bytes) -> bytes:
    """A text whose lines end with carriage returns alone, with newlines instead; any other as it is."""
    return data if b"\n" in data else data.replace(b"\r", b"\n")


def read_lines(path: Path, faults: TraceFaults) -> TextLines:
    """Read a file; a byte order mark is dropped, lines end with a newline, a carriage return, or both.

    A line that is no UTF-8 is a fault of that line.

    Raises:
        TraceError: the file cannot be read, is compressed, or has nothing but blank lines.
    """
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        faults.fail(0, f"it cannot be read: {reason}")
    if is_compressed(data):
        faults.fail(0, COMPRESSED)
    lines = _decode(with_newlines(data), faults)
    faults.settle()
    lines = lines.select([bool(text) and not text.isspace() for text in lines.text])
    if not len(lines):
        faults.fail(0, "it is empty")
    return lines


def _decode(data: bytes, faults: TraceFaults) -> TextLines:
    try:
        texts = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        texts = []
        for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
            try:
                texts.append(line.decode())
            except UnicodeDecodeError:
                faults.row(number, _NOT_UTF8, line.decode(errors="backslashreplace"))
                texts.append("")
    if b"\r" in data:
        texts = [text.removesuffix("\r") for text in texts]
    return TextLines(texts, range(1, len(texts) + 1))
