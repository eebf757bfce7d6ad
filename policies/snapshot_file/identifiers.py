"""Which fields of a snapshot and of a plan name something of a site: what stand-ins replace before a file leaves it.

A field says so by its type. Text of any other type than these cannot be written to a file at all
(:mod:`.encoding`), so that nobody adds a column of names and forgets it here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Identifier:
    """What a value names; values of one kind get stand-ins together."""

    kind: str


SENTENCE = Identifier("")
"""Text for people, with names and numbers of jobs in it."""
VOCABULARY = Identifier("word")
"""Text that slurm-soda itself chose, which tells nothing of a site."""

JobId = Annotated[int, Identifier("job")]
JobIdColumn = Annotated[NDArray[np.int64], Identifier("job")]
UserName = Annotated[str, Identifier("user")]
PartitionName = Annotated[str, Identifier("partition")]
"""One name, or Slurm's list of several with commas between them."""
PoolName = Annotated[str, Identifier("pool")]
"""A partition and, behind a slash, one of slurm-soda's own words."""
NodeName = Annotated[str, Identifier("node")]
GpuTypeName = Annotated[str, Identifier("gpu_type")]
ModelName = Annotated[str, Identifier("model")]
CategoryName = Annotated[str, Identifier("category")]
"""Of jobs; those that decisions know by name stay."""
Sentence = Annotated[str, SENTENCE]
Word = Annotated[str, VOCABULARY]
