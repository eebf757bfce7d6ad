r"""The one codec of hints: to and from flag values, the environment, plain dictionaries and the tag in a job's Comment.

A comment is the user's own text followed by at most one tag, its last word::

    comment = text | tag | text " " tag
    tag     = "soda:1:" key "=" value { "," key "=" value }      in the order of FLAGS, each key at most once

A word is a run of bytes other than the space. The user's text is kept byte for byte, except that words of it that begin
like a tag (``soda:DIGITS:``) are taken out, so that nobody can put a tag there by hand. Values are in canonical form,
never hold a space, comma or equals sign, and a tag is at most :data:`TAG_MAX_BYTES` long.

Reading is total: whatever cannot be read is dropped and described in a list of problems. Only the standard library is
used and no pattern is compiled, because prologs import this on their fast path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from slurm_soda.slurm_ext.errors import HintError
from slurm_soda.slurm_ext.hints.flags import (
    CATEGORIES,
    CHECKPOINT_SIGNALS,
    COUNT_MAX_DIGITS,
    FLAG_BY_KEY,
    FLAGS,
    GPU_MEMORY_MAX_MIB,
    GRACE_MAX_S,
    MODEL_MAX_BYTES,
    SERVICE_MAX_BYTES,
    HintFlag,
    Hints,
)

TAG_PREFIX = "soda:1:"
TAG_MAX_BYTES = 470
COMMENT_MAX_BYTES = 1024
"""slurmctld refuses a job or an update with a longer comment."""

_SHOWN_BYTES = 40
_DIGITS = frozenset("0123456789")
_MODEL_FIRST = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_SERVICE_FIRST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_SERVICE_REST = _SERVICE_FIRST | frozenset("-")
_MODEL_REST = _MODEL_FIRST | frozenset("._+-/")
_MIB_PER_UNIT = {"M": 1, "G": 1024, "T": 1024 * 1024}
_SECONDS_PER_UNIT = {"s": 1, "m": 60}


@dataclass(frozen=True, slots=True)
class DecodedComment:
    """A comment taken apart."""

    hints: Hints
    text: str
    """The user's own text, without tags."""
    problems: tuple[str, ...] = ()
    """What could not be read, one line each."""


def quote_for_log(value: str) -> str:
    """A value made safe for terminals and logs: printable ASCII, at most 40 bytes, in double quotes."""
    try:
        raw = value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate that stands for no byte
        raw = value.encode("utf-8", "replace")
    safe = "".join(chr(byte) if 0x20 <= byte < 0x7F else "?" for byte in raw[:_SHOWN_BYTES])
    return f'"{safe}"' + ("..." if len(raw) > _SHOWN_BYTES else "")


def _count(text: str, max_digits: int) -> str | None:
    """Decimal digits without sign or leading zero."""
    good = 0 < len(text) <= max_digits and text[0] != "0" and _DIGITS.issuperset(text)
    return text if good else None


def _name(text: str) -> str | None:
    good = 0 < len(text) <= MODEL_MAX_BYTES and text[0] in _MODEL_FIRST and _MODEL_REST.issuperset(text)
    return text if good else None


def _service(text: str) -> str | None:
    """The name that a service's file gives it (``wire/services/service_file.py``)."""
    good = 0 < len(text) <= SERVICE_MAX_BYTES and text[0] in _SERVICE_FIRST and _SERVICE_REST.issuperset(text)
    return text if good else None


def _one_of(text: str, choices: Iterable[str]) -> str | None:
    lowered = text.lower() if text.isascii() else text
    return next((choice for choice in choices if choice == lowered), None)


def _factor(text: str) -> str | None:
    """``1`` to ``99.999``, trailing zeros of the fraction dropped."""
    whole, dot, fraction = text.partition(".")
    if _count(whole, 2) is None or (dot and not (0 < len(fraction) <= 3 and _DIGITS.issuperset(fraction))):
        return None
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def _scaled(text: str, units: Mapping[str, int], largest: int) -> int | None:
    """A count with an optional unit letter, in the unit whose factor is 1."""
    unit = units.get(text[-1:])
    digits = _count(text if unit is None else text[:-1], len(str(largest)))
    if digits is None or (value := int(digits) * (unit or 1)) > largest:
        return None
    return value


def _size(text: str) -> str | None:
    mib = _scaled(text.upper() if text.isascii() else text, _MIB_PER_UNIT, GPU_MEMORY_MAX_MIB)
    return None if mib is None else f"{mib}M"


def _checkpoint(text: str) -> str | None:
    name, at, grace = text.partition("@")
    name = name.upper() if name.isascii() else name
    name = name.removeprefix("SIG")
    if name not in CHECKPOINT_SIGNALS:
        return None
    if not at:
        return name
    grace_s = _scaled(grace, _SECONDS_PER_UNIT, GRACE_MAX_S)
    return None if grace_s is None else f"{name}@{grace_s}"


_RULES: dict[str, Callable[[HintFlag, str], str | None]] = {
    "choice": lambda _, text: _one_of(text, CATEGORIES),
    "name": lambda _, text: _name(text),
    "count": lambda flag, text: _count(text, COUNT_MAX_DIGITS[flag.key]),
    "switch": lambda _, text: _one_of(text, ("yes",)),
    "yesno": lambda _, text: _one_of(text, ("yes", "no")),
    "factor": lambda _, text: _factor(text),
    "size": lambda _, text: _size(text),
    "checkpoint": lambda _, text: _checkpoint(text),
    "service": lambda _, text: _service(text),
}


def canonical_value(flag: HintFlag, text: str) -> str | None:
    """The canonical form of a value, or ``None`` if it is not allowed. Applying it twice changes nothing."""
    return _RULES[flag.kind](flag, text)


def refusal_text(flag: HintFlag, text: str) -> str:
    """The one line that says why a value is refused: flag, value and what is allowed."""
    return f"{flag.option}: {quote_for_log(text)} is not allowed; use {flag.allowed}"


def parse_flag(name: str, text: str) -> str:
    """Canonical form of a value that somebody wants to write.

    ``name`` is the flag (``--soda-batch-size``) or its key (``batch_size``).

    Raises:
        HintError: no such flag, or its value is not allowed.
    """
    flag = FLAG_BY_KEY.get(name.removeprefix("--soda-").replace("-", "_"))
    if flag is None:
        raise HintError(f"{quote_for_log(name)} is no flag; use one of {', '.join(known.option for known in FLAGS)}")
    value = canonical_value(flag, text)
    if value is None:
        raise HintError(refusal_text(flag, text))
    return value


def hints_from_dict(values: Mapping[str, str], problems: list[str] | None = None) -> Hints:
    """Hints from key and value texts; what is not allowed is dropped and described in ``problems``.

    Keys that this version does not know are dropped too: a store or a tag may have been written by a newer one.
    """
    found: dict[str, str | int | float | bool] = {}
    problems = [] if problems is None else problems
    for key, text in values.items():
        flag = FLAG_BY_KEY.get(key)
        if flag is None:
            problems.append(f"unknown hint {quote_for_log(key)} is ignored")
        elif (value := canonical_value(flag, text)) is None:
            problems.append(refusal_text(flag, text))
        else:
            found.update(_fields(flag, value))
    return Hints(**found)  # type: ignore[arg-type]  # _fields gives each field its own type


def _fields(flag: HintFlag, value: str) -> dict[str, str | int | float | bool]:
    """Fields of :class:`Hints` that a canonical value sets."""
    match flag.kind:
        case "count":
            return {flag.key: int(value)}
        case "switch" | "yesno":
            return {flag.key: value == "yes"}
        case "factor":
            return {flag.key: float(value)}
        case "size":
            return {"gpu_memory_mib": int(value[:-1])}
        case "checkpoint":
            name, at, grace = value.partition("@")
            return {"checkpoint_signal": name, **({"checkpoint_grace_s": int(grace)} if at else {})}
        case _:
            return {flag.key: value}


def hints_to_dict(hints: Hints) -> dict[str, str]:
    """Key and canonical value of everything that was said, in the order of :data:`FLAGS`."""
    values: dict[str, str | None] = {
        "category": hints.category,
        "model": hints.model,
        "batch_size": _text(hints.batch_size),
        "iterations": _text(hints.iterations),
        "pipelined": "yes" if hints.pipelined else None,
        "large_weights": "yes" if hints.large_weights else None,
        "heavy_preprocessing": "yes" if hints.heavy_preprocessing else None,
        "share": None if hints.share is None else ("yes" if hints.share else "no"),
        "max_slowdown": None if hints.max_slowdown is None else f"{hints.max_slowdown:.3f}",
        "gpu_memory": None if hints.gpu_memory_mib is None else f"{hints.gpu_memory_mib}M",
        "accumulates": "yes" if hints.accumulates else None,
        "checkpoint": _text(hints.checkpoint_signal),
        "service": hints.service,
    }
    if hints.checkpoint_signal is not None and hints.checkpoint_grace_s is not None:
        values["checkpoint"] = f"{hints.checkpoint_signal}@{hints.checkpoint_grace_s}"
    return {key: parse_flag(key, value) for key, value in values.items() if value is not None}


def _text(value: int | str | None) -> str | None:
    return None if value is None else str(value)


def hints_from_env(env: Mapping[str, str], prefix: str = "", problems: list[str] | None = None) -> Hints:
    """Hints from environment variables ``PREFIX + SODA_…``.

    Args:
        env: any environment; other variables are ignored.
        prefix: ``""`` in job_submit, ``"SPANK_"`` in Prolog and Epilog, ``"SLURM_SPANK_"`` in a job.
        problems: gets one line for each value that is not allowed.
    """
    given = {flag.key: env[name] for flag in FLAGS if (name := prefix + flag.env) in env}
    return hints_from_dict(given, problems)


def encode_tag(hints: Hints) -> str:
    """The tag of these hints; empty when nothing was said.

    Raises:
        HintError: a field holds a value that is not allowed.
    """
    values = hints_to_dict(hints)
    return TAG_PREFIX + ",".join(f"{key}={value}" for key, value in values.items()) if values else ""


def attach_tag(comment: str, hints: Hints) -> str:
    """The user's text with the tag of these hints behind it, in place of any that was there.

    Raises:
        HintError: a field holds a value that is not allowed.
    """
    return " ".join(part for part in (strip_tags(comment), encode_tag(hints)) if part)


def strip_tags(comment: str) -> str:
    """The user's own text: the comment without any word that begins like a tag, each with one space beside it."""
    if "soda:" not in comment:
        return comment
    return " ".join(word for word in comment.split(" ") if not _is_tag(word))


def _is_tag(word: str) -> bool:
    """``soda:DIGITS:…``."""
    if not word.startswith("soda:"):
        return False
    digits, colon, _ = word[len("soda:") :].partition(":")
    return bool(colon and digits) and _DIGITS.issuperset(digits)


def decode_comment(comment: str) -> DecodedComment:
    """Hints and the user's own text out of a job's comment; never raises."""
    tag = comment.rpartition(" ")[2]
    if not _is_tag(tag):
        return DecodedComment(Hints(), strip_tags(comment))
    text = strip_tags(comment)
    if not tag.startswith(TAG_PREFIX):
        return DecodedComment(
            Hints(), text, (f"tag {quote_for_log(tag)} is of an unknown version; this one reads {TAG_PREFIX}",)
        )
    problems: list[str] = []
    values: dict[str, str] = {}
    for piece in tag[len(TAG_PREFIX) :].split(","):
        key, equals, value = piece.partition("=")
        if not equals or key in values:
            problems.append(f"{quote_for_log(piece)} in the tag is ignored")
        else:
            values[key] = value
    return DecodedComment(hints_from_dict(values, problems), text, tuple(problems))
