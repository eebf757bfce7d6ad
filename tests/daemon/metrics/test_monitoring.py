"""What an admin gets for Prometheus and Grafana: checked with promtool, and scraped by a real Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from slurm_soda.daemon.metrics.catalog import NODES, PROCESS, SITE
from slurm_soda.daemon.metrics.cycle_figures import ClusterFigures, GpuCounts, QueueCounts
from slurm_soda.daemon.metrics.cycle_meter import CycleFigures
from slurm_soda.policies.expected_starts.calibration import IntervalScore
from slurm_soda.wire.node_use import COUNTS, HeldGpu, NodeUse
from slurm_soda.wire.records import NodeReport
from tests.daemon.metrics.conftest import Served

FILES = Path(__file__).parents[3] / "install" / "monitoring"
DASHBOARD = json.loads((FILES / "slurm-soda-dashboard.json").read_text("utf-8"))
ODD = 'o"d\\d\n{}\u00e9\\xff'
"""A partition and a node of this name."""
KNOWN = {
    *(metric.name for metric in (*SITE, *NODES) if metric.kind != "histogram"),
    *(f"{metric.name}_{part}" for metric in SITE if metric.kind == "histogram" for part in ("bucket", "sum", "count")),
    *PROCESS,
}


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (apt-get install prometheus)")
    return found


def promtool(*arguments: str, text: bytes = b"") -> str:
    done = subprocess.run([program("promtool"), *arguments], input=text, capture_output=True, timeout=60, check=False)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


def expressions() -> list[str]:
    """Of all panels, with their variables filled in."""
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    notes = [note["expr"] for note in DASHBOARD["annotations"]["list"]]
    return [
        expr.replace("$__rate_interval", "1m").replace("$partition", ".*").replace("$node", ".*")
        for expr in [*panels, *notes]
    ]


@pytest.fixture
def site(serve: Callable[..., Served]) -> Served:
    """With something of everything."""
    site = serve()
    figures, gpus = GpuCounts(4, 2, 1, 1), {"n1": GpuCounts(4, 2, 1, 1), ODD: GpuCounts(1)}
    jobs_in = {"main": QueueCounts(3, 2, 1, 4, 2), ODD: QueueCounts()}
    site.metered.meter.figures = CycleFigures(
        mode="enforce", policy="soda", last_s=time.time(), success_s=time.time(), interval_s=10.0, silent_after_s=30.0,
        shares={"started": 1}, start_score=IntervalScore(500, 0.8, 0.1, 0.1),
        cluster=ClusterFigures(
            QueueCounts(3, 2, 1, 4, 2), jobs_in, figures, {"main": figures, ODD: figures}, gpus, 1,
            {("in", "pending"): 3, ("out", "running"): 1},
        ),
    )  # fmt: skip
    for partition in jobs_in:
        site.metered.meter._wait_times.labels(partition).observe(100.0)
    site.metered.meter._durations.observe(0.4)
    use = NodeUse((HeldGpu(0, 0.5, 1024.0),), dict.fromkeys(COUNTS, 1), 1.5, 40_000_000)
    site.metered.report(NodeReport("n1", "a", 1, 1.0, faults=("NVML",), use=(use,)))
    return site


@pytest.mark.parametrize("path", ["/metrics", "/metrics/nodes"])
def test_promtool_finds_nothing_to_say(site: Served, path: str) -> None:
    shown = site.get(path)
    assert shown.status_code == 200
    assert promtool("check", "metrics", text=shown.content).strip() == ""


def test_promtool_accepts_the_alerts_and_they_fire_when_they_should() -> None:
    assert "rules found" in promtool("check", "rules", str(FILES / "slurm-soda.rules.yml"))
    promtool("check", "config", str(FILES / "prometheus.yml"))
    promtool("test", "rules", str(Path(__file__).parent / "rules_test.yml"))


def test_alerts_and_dashboard_ask_for_what_there_is() -> None:
    rules = (FILES / "slurm-soda.rules.yml").read_text("utf-8")
    asked = {*re.findall(r"\b(?:soda|process)_[a-z_]+", " ".join(expressions()))}
    assert asked <= KNOWN
    alerted = {name for name in re.findall(r"\bsoda_[a-z_]+", rules) if name != "soda_cycle_part_seconds_total"}
    assert alerted <= KNOWN
    assert {metric.name for metric in SITE if metric.kind == "gauge"} - asked - alerted <= {
        "soda_policy_info", "soda_breaker_failures", "soda_cycle_last_timestamp_seconds", "soda_changes_deferred",
        "soda_jobs_pending", "soda_jobs_eligible", "soda_jobs_running", "soda_jobs_gpus_pending", "soda_jobs_gpus_alloc",
        "soda_partition_jobs_eligible", "soda_partition_jobs_gpus_alloc", "soda_partition_gpus", "soda_shares",
        "soda_services",
    }  # fmt: skip  # whatever else there is, somebody looks at


def test_the_test_of_the_alerts_knows_them_all() -> None:
    alerts = set(re.findall(r"alert: (\w+)", (FILES / "slurm-soda.rules.yml").read_text("utf-8")))
    tested = (Path(__file__).parent / "rules_test.yml").read_text("utf-8")
    assert set(re.findall(r"alertname: (\w+)", tested)) == alerts
    assert set(re.findall(r'alertname="(\w+)"}', tested)) == alerts


def test_panels_do_not_overlap_and_have_what_grafana_wants() -> None:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 25
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not own & taken, panel["title"]
        taken |= own
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "partition", "node"]


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[httpx.Client]:
    """A real one with the files that admins get, and an interval that a test can wait for."""
    config = (FILES / "prometheus.yml").read_text("utf-8")
    assert config.count("127.0.0.1:6831") == 3
    config = re.sub(r"scrape_interval: \w+", "scrape_interval: 500ms", config.replace("127.0.0.1:6831", target))
    (folder / "prometheus.yml").write_text(
        f"global: {{scrape_timeout: 500ms, evaluation_interval: 500ms}}\n{config}", "utf-8"
    )
    shutil.copy(FILES / "slurm-soda.rules.yml", folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [program("prometheus"), f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
         f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"],
    )  # fmt: skip
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", trust_env=False, verify=False) as client:
            yield client
    finally:
        process.kill()
        process.wait()


def result(client: httpx.Client, expr: str) -> list[dict[str, Any]]:
    answer = client.get("/query", params={"query": expr}).json()
    assert answer["status"] == "success", (expr, answer)
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def test_a_real_prometheus_scrapes_it_and_answers_the_dashboard(site: Served, tmp_path: Path) -> None:
    with prometheus(tmp_path, site.target) as client:
        until_s = time.monotonic() + 30
        while True:
            assert time.monotonic() < until_s
            try:
                if len(result(client, "up == 1")) == 2 and result(client, "soda_agents") and result(client, "ALERTS"):
                    break
            except (httpx.ConnectError, KeyError, json.JSONDecodeError):
                pass
            time.sleep(0.1)
        (odd,) = result(client, f"soda_node_gpus{{node={json.dumps(ODD)}}}")
        assert (odd["metric"]["node"], odd["value"][1]) == (ODD, "1")
        assert {one["metric"]["partition"] for one in result(client, "soda_partition_gpus")} == {"main", ODD}
        for expr in expressions():
            result(client, expr)
        groups = client.get("/rules").json()["data"]["groups"]
        assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}
        joined = result(client, "sum by (node) (soda_node_gpu_util_ratio) * on (node) group_left soda_node_gpus")
        assert [one["metric"]["node"] for one in joined] == ["n1"]
