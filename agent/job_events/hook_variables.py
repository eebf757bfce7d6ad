"""Makes the event of what ``soda-deliver-event`` (``wire/deliver_event.c``) sends: slurmd's variables, as they are.

The very functions of prolog and epilog do it, so that an event is the same whichever way it came. What a job's cgroup
still says at its end is left out: the agent, unlike the epilog, reads the cgroups itself right after a closing.
"""

from __future__ import annotations

from slurm_soda.epilog.main import make_close_event
from slurm_soda.prolog.main import make_open_event
from slurm_soda.wire.errors import RecordError
from slurm_soda.wire.event_delivery import MAX_EVENT_BYTES, encode_event
from slurm_soda.wire.json_fields import decode_json
from slurm_soda.wire.run_fields import RunFields

EVENT_MAKERS = {"open": make_open_event, "close": make_close_event}


def event_line_from_variables(line: bytes) -> bytes:
    """The line of the event that a raw line stands for; any other line as it is.

    Raises:
        RecordError: a raw line is not as the program writes it.
        SpoolError: the event is too long to be kept.
    """
    data = decode_json(line, MAX_EVENT_BYTES, "event")
    if not isinstance(data, dict) or "environ" not in data:
        return line
    read = RunFields("raw event", data)
    make = EVENT_MAKERS.get(read.text("kind", 16))
    variables = data["environ"]
    if make is None or not isinstance(variables, dict):
        raise RecordError("raw event: kind is not open or close, or environ no object")
    environ = {name: _decoded(value) for name, value in variables.items()}
    return encode_event(make(environ, read.unix_s("at_s"), read.text("host", 255)))


def _decoded(value: object) -> str:
    """A variable as ``os.environ`` has it; in the line every byte above 127 stands alone (PEP 383)."""
    try:
        if isinstance(value, str):
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        pass
    raise RecordError("raw event: environ has a value that is no variable's")
