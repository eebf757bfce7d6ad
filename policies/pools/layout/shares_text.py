"""Shares as a person, or a configuration file, writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from slurm_soda.policies.pools.kinds import NodeClass, PoolShare

SHARES_FORMAT = "a list of texts [TYPE:]GPUSxCPUS=CPU_CORES/LARGE_NODES, such as a100:8x128=64/10"
_CLASS = re.compile(r"(?:(?P<type>[A-Za-z0-9_.-]+):)?(?P<gpus>\d+)x(?P<cpus>\d+)=(?P<cores>\d+)/(?P<large>\d+)")


def parse_shares(value: Any) -> dict[NodeClass, PoolShare]:
    """A mapping of classes to shares as it is, or the texts of :data:`SHARES_FORMAT`.

    Raises:
        TypeError: neither a mapping nor a list.
        ValueError: a text of another form, a class that is named twice, or a share beyond its node's cores.
    """
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise TypeError(value)
    shares: dict[NodeClass, PoolShare] = {}
    for text in value:
        found = _CLASS.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise ValueError(text)
        node_class = NodeClass(found["type"] or "", int(found["gpus"]), int(found["cpus"]))
        if node_class in shares or int(found["cores"]) > node_class.cpus:
            raise ValueError(text)
        shares[node_class] = PoolShare(int(found["cores"]), int(found["large"]))
    return shares
