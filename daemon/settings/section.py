"""What all sections of the configuration file have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A table of the file: its keys alone, each with the type that is written here."""

    # strict: `interval_s = "5"` is a mistake worth a word, not a 5; whole numbers still do for a float.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
