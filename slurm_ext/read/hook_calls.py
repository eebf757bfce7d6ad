"""Whether a script of a site's own calls one of our hooks, as far as its text tells.

It is a hint: what a script does can depend on anything. That a node's prolog runs shows in the records that it writes there
(docs/node.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    rb"""
    (?P<space>(?:[ \t]|\\\n)+)
  | (?P<comment>\#[^\n]*)
  | <<(?P<tabs>-?)[ \t]*(?P<quote>['"\\]?)(?P<end>\w+)['"]?
  | (?P<operator>\n|;;&?|;&|&&|\|\||[;&|()])
  | (?P<word>(?:
        [0-9]*(?:<<<|>>|<>|>\||[<>])&?
      | \\. | '[^']*' | "(?:\\.|[^"\\])*" | `[^`]*` | \$\((?:[^()]|\([^()]*\))*\) | \$\{[^}]*\}
      | [^\s;&|()'"\\<>`]
    )+)
  | (?P<odd>.)
    """,
    re.X | re.S,
)
_SHELL = re.compile(rb"#![^\n]*/(?:env[ \t]+)?(?:ba|da|k|z|a)?sh\b")
_ONLY_NAMES = frozenset(
    b"[ [[ test echo printf logger : true false ls cat grep stat file which type hash alias unset".split()
    + b"rm cp mv ln chmod chown touch".split()
)
"""Commands that do not run what they name."""
_OPENS, _CLOSES = frozenset(b"if while until for case select".split()), frozenset(b"fi done esac".split())
_GOES_ON = frozenset(b"then do else elif ! time".split())
_REDIRECTED = re.compile(rb"[0-9]*(?:<<<|>>|<>|>\||[<>])&?(.*)", re.S)
_COMMENT = re.compile(rb"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?:^|(?<=[\s;&|(]))#.*""")
"""Of most languages in which hooks are written; or a string, which is none."""


def calls(text: bytes, names_ours: Callable[[bytes], bool]) -> bool:
    """Whether a script runs something that names one of ours, before it ends for certain."""
    if b"\r\n" in text.partition(b"\n")[0] + b"\n":
        return False  # the system looks for an interpreter whose name ends with a carriage return
    if not _SHELL.match(text):
        return any(names_ours(_COMMENT.sub(lambda found: found[1] or b"", line)) for line in text.splitlines())
    return any(_may_run(words, names_ours) for words in _Script().commands(text))


def _may_run(words: list[bytes], names_ours: Callable[[bytes], bool]) -> bool:
    """Also where it is named to a command that is not known, in an assignment, or as where output goes."""
    if words[0] in _ONLY_NAMES or words[:2] == [b"command", b"-v"]:
        words = [word for word in words if _REDIRECTED.match(word)]
    return any(names_ours(word.replace(b'"', b"").replace(b"'", b"")) for word in words)


@dataclass(slots=True)
class _Script:
    """A walk over the commands of a shell script that may be reached."""

    _depth: int = 0
    """Of functions, branches, loops and subshells: what ends there need not end the script."""
    _groups: list[int] = field(default_factory=list)
    """Of each open brace, how deep it is."""
    _parentheses: int = 0
    _never: int | None = None
    """How deep the branch is that is never taken."""
    _makes_function: bool = False
    _before: bytes = b"\n"
    """The operator before this command."""
    _last: list[bytes] = field(default_factory=list)
    """The command before this one."""

    def commands(self, text: bytes) -> Iterator[list[bytes]]:
        """Words of each, up to one that ends the script for certain."""
        words: list[bytes] = []
        for kind, token in _tokens(text):
            if kind == "word":
                if words or not self._is_structure(token):
                    words.append(token)
                continue
            if token == b"(" and len(words) == 1:
                self._makes_function, words = True, []  # name()
            elif words:
                if self._never is None:
                    yield words
                if self._ends(words, token):
                    return
                self._last, words = words, []
            self._take_operator(token)

    def _is_structure(self, word: bytes) -> bool:
        """Takes in a word that stands where a command would, and is none."""
        if word in _OPENS:
            self._depth += 1
            return word not in {b"for", b"case"}
        if word in _CLOSES:
            self._depth = max(self._depth - 1, 0)
        if (
            word in {b"fi", b"else", b"elif"}
            and self._never is not None
            and self._depth <= self._never - (word == b"fi")
        ):
            self._never = None
        if word == b"then" and self._last == [b"false"] and self._before in {b";", b"\n"} and self._never is None:
            self._never = self._depth
        if word == b"{":
            deeper = self._makes_function or self._before in {b"&&", b"||"}
            self._groups.append(int(deeper))
            self._depth += deeper
            self._makes_function, self._before = False, b"\n"
        if word == b"}" and self._groups:
            self._depth -= self._groups.pop()
        return word in _CLOSES or word in _GOES_ON or word in {b"{", b"}"}

    def _take_operator(self, token: bytes) -> None:
        if token == b"(" and not self._makes_function:
            self._parentheses += 1
            self._depth += 1
        elif token == b")" and self._parentheses and not self._makes_function:
            self._parentheses -= 1
            self._depth -= 1
        if token != b"\n" or self._before not in {b"&&", b"||", b"|"}:
            self._before = token

    def _ends(self, words: list[bytes], after: bytes) -> bool:
        if self._depth or after in {b"|", b"&"}:
            return False
        sure = (
            self._before in {b"\n", b";"}
            or (self._before == b"&&" and self._last in ([b"true"], [b":"]))
            or (self._before == b"||" and self._last == [b"false"])
        )
        return sure and (words[0] == b"exit" or (words[0] == b"exec" and _runs_something(words[1:])))


def _runs_something(words: list[bytes]) -> bool:
    """Whether more than redirections are left."""
    left = iter(words)
    for word in left:
        found = _REDIRECTED.match(word)
        if found is None:
            return True
        if not found[1]:
            next(left, None)
    return False


def _tokens(text: bytes) -> Iterator[tuple[str, bytes]]:
    """Words and operators, without comments and here-documents; a line ends with an operator."""
    at, ends = 0, list[tuple[bytes, bool]]()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            return
        at = found.end()
        if found["end"] is not None:
            ends.append((found["end"], bool(found["tabs"])))
        elif found["word"] is not None:
            yield "word", found[0]
        elif found["operator"] is not None:
            if found[0] == b"\n" and ends:
                at = _after_documents(text, at, ends)
                ends = []
            yield "operator", found[0]
    yield "operator", b"\n"


def _after_documents(text: bytes, at: int, ends: list[tuple[bytes, bool]]) -> int:
    for end, tabs in ends:
        while at < len(text):
            line, newline, _ = text[at:].partition(b"\n")
            at += len(line) + len(newline)
            if (line.lstrip(b"\t") if tabs else line) == end:
                break
    return at
