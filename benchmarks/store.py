"""sodad's store on a cluster, asked from outside."""

from __future__ import annotations

import json
from typing import Any

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.container_commands import ContainerCommandResult
from slurm_soda.demo.cluster_runs import PYTHON

_ASK = """
import json, sqlite3, sys
store = sqlite3.connect("file:/var/lib/slurm-soda/soda.db?mode=ro", uri=True)
print(json.dumps([store.execute(query).fetchall() for query in json.load(sys.stdin)]))
"""


def asked(cluster: ContainerCluster, *queries: str) -> ContainerCommandResult:
    """The command's end; it fails while sodad is only making its store. :func:`rows` reads its output."""
    return cluster.exec("root", (PYTHON, "-c", _ASK), input=json.dumps(queries))


def rows(answer: ContainerCommandResult) -> list[list[list[Any]]]:
    """The rows of each query."""
    found: list[list[list[Any]]] = json.loads(answer.stdout)
    return found
