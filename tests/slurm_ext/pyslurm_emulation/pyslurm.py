"""Stands for pyslurm where there is none: tells what a file says, and fails in the ways in which a library in C does."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

_ANSWERS = 3
"""Where the child writes its answers: the first descriptor that is free when it starts."""


def _site() -> Any:
    return json.loads(Path(os.environ["SODA_EMULATED_SITE"]).read_text())


__version__ = _site()["version"]


def slurm_api_version() -> tuple[int, ...]:
    return tuple(_site()["library"])


class RPCError(Exception):
    pass


class job:  # noqa: N801 - pyslurm's name
    def get(self) -> Any:
        site = _site()
        print("a library's own words on standard output")
        os.write(1, b"and from C\n")
        match site.get("act", ""):
            case "segv":
                os.write(2, b"free(): invalid pointer\n")
                os.kill(os.getpid(), signal.SIGSEGV)
            case "exit":
                os._exit(7)
            case "hang":
                time.sleep(120)
            case "garbage":
                os.write(_ANSWERS, b"\xff not an answer\n")
            case "half":
                os.write(_ANSWERS, b"9999\n{")
                os._exit(0)
            case "more":
                os.write(_ANSWERS, b"2\n{}")
            case "error":
                raise ValueError("Unable to contact slurm controller (connect failure)", 1)
        return {int(number): fields for number, fields in site["jobs"].items()}


class Job(SimpleNamespace):
    @classmethod
    def load(cls, number: int) -> Job:
        site = _site()
        if str(number) not in site["sharing"]:
            raise RPCError
        return cls(id=number, resource_sharing=site["sharing"][str(number)])


class Jobs(dict[int, Job]):
    @classmethod
    def load(cls) -> Jobs:
        words = _site()["sharing"]
        return cls({int(number): Job(id=int(number), resource_sharing=word) for number, word in words.items()})
