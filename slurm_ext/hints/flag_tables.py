"""Writes the table of flags for C and lua from the one in :mod:`.flags`: ``make flags``, after a change there.

What is written is checked in, as neither a compute node nor a controller needs Python to build and load it.
"""

from __future__ import annotations

import json
from pathlib import Path

from slurm_soda.slurm_ext.hints.flags import (
    CATEGORIES,
    CHECKPOINT_SIGNALS,
    COUNT_MAX_DIGITS,
    FLAGS,
    GPU_MEMORY_MAX_MIB,
    GRACE_MAX_S,
    MODEL_MAX_BYTES,
    SERVICE_MAX_BYTES,
    HintFlag,
)

HEADER = Path(__file__).parents[1] / "spank" / "flags.h"
LUA = Path(__file__).parents[1] / "lua" / "soda_hints.lua"
BEGIN = "-- Written by `make flags` from slurm_ext/hints/flags.py, down to the end mark: do not edit.\n"
END = "-- End of what `make flags` writes.\n"


def c_header() -> str:
    """The text of ``spank/flags.h``."""
    rows = "".join(f" \\\n    {{{_c_flag(flag)}}}," for flag in FLAGS)
    return f"""/* Written by `make flags` from slurm_ext/hints/flags.py: do not edit. */
#define SODA_FLAG_COUNT {len(FLAGS)}
#define SODA_MODEL_MAX_BYTES {MODEL_MAX_BYTES}
#define SODA_SERVICE_MAX_BYTES {SERVICE_MAX_BYTES}
#define SODA_GPU_MEMORY_MAX_MIB {GPU_MEMORY_MAX_MIB}
#define SODA_GRACE_MAX_S {GRACE_MAX_S}
#define SODA_CATEGORIES {", ".join(map(_quoted, CATEGORIES))}
#define SODA_SIGNALS {", ".join(map(_quoted, CHECKPOINT_SIGNALS))}
/* Option, environment variable, kind, digits of a count, value in sbatch --help, what is allowed, text of sbatch --help. */
#define SODA_FLAGS{rows}
"""


def _c_flag(flag: HintFlag) -> str:
    fields = [
        _quoted(flag.option.removeprefix("--")),
        _quoted(flag.env),
        f"SODA_{flag.kind.upper()}",
        str(COUNT_MAX_DIGITS.get(flag.key, 0)),
        _quoted(flag.metavar) if flag.metavar else "NULL",
        _quoted(flag.allowed),
        _quoted(flag.usage),
    ]
    return ", ".join(fields)


def lua_table() -> str:
    """What stands between :data:`BEGIN` and :data:`END` in ``lua/soda_hints.lua``."""
    rows = "".join(f"    {{ {_lua_flag(flag)} }},\n" for flag in FLAGS)
    return f"""local CATEGORIES = {{ {_lua_set(CATEGORIES)} }}
local SIGNALS = {{ {_lua_set(CHECKPOINT_SIGNALS)} }}
local MODEL_MAX_BYTES, GPU_MEMORY_MAX_MIB, GRACE_MAX_S = {MODEL_MAX_BYTES}, {GPU_MEMORY_MAX_MIB}, {GRACE_MAX_S}
local SERVICE_MAX_BYTES = {SERVICE_MAX_BYTES}
-- In the order of the tag.
M.flags = {{
{rows}}}
"""


def _lua_flag(flag: HintFlag) -> str:
    digits = f"max_digits = {COUNT_MAX_DIGITS[flag.key]}, " if flag.kind == "count" else ""
    return f"key = {_quoted(flag.key)}, kind = {_quoted(flag.kind)}, {digits}allowed = {_quoted(flag.allowed)}"


def _lua_set(words: tuple[str, ...]) -> str:
    return ", ".join(f"{word} = true" for word in words)


def _quoted(text: str) -> str:
    """A string literal of C and of lua: of printable ASCII both are written as in JSON."""
    if not (text.isascii() and text.isprintable()):
        raise ValueError(f"texts of flags must be printable ASCII, not {text!r}")
    return json.dumps(text)


def with_table(lua: str) -> str:
    """A text of ``lua/soda_hints.lua`` with the table as it should be now."""
    before, _, rest = lua.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{LUA} has lost its marks: {BEGIN.strip()} ... {END.strip()}")
    return before + BEGIN + lua_table() + END + after


if __name__ == "__main__":
    HEADER.write_text(c_header(), encoding="ascii")
    LUA.write_text(with_table(LUA.read_text(encoding="utf-8")), encoding="utf-8")
