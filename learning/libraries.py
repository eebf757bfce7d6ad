"""The libraries of the optional extra ``learn``: imported when something is learned, so that nothing else needs them."""

from __future__ import annotations

import importlib
from typing import Any

from slurm_soda.learning.errors import LearningError


def import_library(name: str) -> Any:
    """A module of SciPy or scikit-learn.

    Raises:
        LearningError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise LearningError(
            f"learning needs {name.partition('.')[0]}, which is not here ({error}): pip install 'slurm-soda[learn]'"
        ) from None
