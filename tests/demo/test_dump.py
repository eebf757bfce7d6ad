"""The demo's accounting, dumped as the manual says, and what whatif makes of it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.containers.cluster_spec import ClusterError
from slurm_soda.containers.container_commands import ContainerCommandResult
from slurm_soda.demo.accounting import DemoError, MixJobRecord, MixJobRun
from slurm_soda.demo.cluster_runs import DemoObserver
from slurm_soda.demo.job_mix import mix_demo
from slurm_soda.demo.job_mix.demo_settings import DemoSettings, policy_parameters
from slurm_soda.demo.job_mix.mix_jobs import draw_mix
from slurm_soda.demo.job_mix.sacct_dump import DUMP_FILES, dump_command, whatif_command, write_dump
from slurm_soda.demo.job_mix.whatif_forecast import forecast_runs
from slurm_soda.simulator import whatif
from slurm_soda.simulator.traces.sacct.columns import SACCT_COLUMNS
from slurm_soda.sodactl.main import run

STOCK = Path(whatif.__file__).parent / "demo-stock.txt"
MANUAL = Path(__file__).parents[2] / "docs" / "whatif.md"


class Accounting:
    """A cluster of which only sacct is asked."""

    def __init__(self, *answers: str, status: int = 0) -> None:
        """``answers``: one after the other, the last one from then on."""
        self.columns: Sequence[str] = SACCT_COLUMNS
        self.asked: list[tuple[str, tuple[str, ...], Mapping[str, str]]] = []
        self.answers, self.status = answers or ("",), status

    def exec(
        self, user: str, argv: Sequence[str], *, environment: Mapping[str, str] | None = None
    ) -> ContainerCommandResult:
        if argv[-1] == "--helpformat":
            return ContainerCommandResult(tuple(argv), "\n".join(self.columns), "", 0)
        assert environment is not None
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append((user, tuple(argv), environment))
        return ContainerCommandResult(tuple(argv), answer, "sacct: error: no database", self.status)

    @property
    def cluster(self) -> ContainerCluster:
        return cast(ContainerCluster, self)


def typed(environment: Mapping[str, str], argv: Sequence[str]) -> str:
    return " ".join([*(f"{name}={value}" for name, value in environment.items()), *argv])


def test_a_dump_is_made_as_the_manual_says() -> None:
    assert f"{typed(*dump_command())} > dump.txt\n" in MANUAL.read_text()


def job(job_id: int, end_s: float) -> MixJobRecord:
    return MixJobRecord(
        job_id, "alice", "a", "COMPLETED", 1, 100.0, end_s, (MixJobRun(110.0, end_s, "COMPLETED", "n1"),)
    )


WHOLE = "JobID|End|Comment\n8|150|\n8|170|\udcff|x\n9|180|\n"
JOBS = [job(8, 170.0), job(9, 180.0)]


def test_each_dump_has_only_its_own_jobs(tmp_path: Path) -> None:
    stock, soda = Accounting("JobID|End\n7|160\n"), Accounting(WHOLE)
    write_dump(stock.cluster, "stock", [job(7, 160.0)], tmp_path)
    write_dump(soda.cluster, "soda", JOBS, tmp_path)
    environment, argv = dump_command()
    assert [*stock.asked, *soda.asked] == [("root", (*argv, f"--jobs={ids}"), environment) for ids in ("7", "8,9")]
    assert {path.name for path in tmp_path.iterdir()} == {"sacct-stock.txt", "sacct-soda.txt"}
    assert (tmp_path / "sacct-soda.txt").read_bytes() == WHOLE.encode(errors="surrogateescape")


def test_a_column_that_sacct_does_not_have_is_left_out(tmp_path: Path) -> None:
    """``Restarts`` before 24.11."""
    old = Accounting(WHOLE)
    old.columns = [name for name in SACCT_COLUMNS if name != "Restarts"]
    write_dump(old.cluster, "soda", JOBS, tmp_path)
    ((_, argv, _),) = old.asked
    (columns,) = [word for word in argv if word.startswith("--format=")]
    assert columns == f"--format={','.join(old.columns)}"


INCOMPLETE = {
    "": "an empty answer",
    "JobID|End|Comment\n": "no job",
    "JobID|End|Comment\n8|170|\n": "one job",
    "JobID|End|Comment\n8|150|\n9|180|\n": "only the first run of one",
    "JobID|End|Comment\n8|170|\n9|Unknown|\n": "a job that has not ended",
    "JobID|End|Comment\n8|170|\n9|180": "a torn line",
}


@pytest.mark.parametrize("answer", INCOMPLETE, ids=INCOMPLETE.values())
def test_an_answer_without_all_ends_is_asked_for_again(answer: str, tmp_path: Path) -> None:
    accounting = Accounting(answer, WHOLE)
    write_dump(accounting.cluster, "soda", JOBS, tmp_path)
    assert len(accounting.asked) == 2
    assert (tmp_path / "sacct-soda.txt").read_bytes() == WHOLE.encode(errors="surrogateescape")
    with pytest.raises(DemoError, match=r"of 2 jobs .*sacct-stock\.txt is not written"):
        write_dump(Accounting(answer).cluster, "stock", JOBS, tmp_path, within_s=0.0)
    assert not (tmp_path / "sacct-stock.txt").exists()


def test_a_silent_accounting_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no database"):
        write_dump(Accounting(status=1).cluster, "stock", JOBS, tmp_path, within_s=0.0)


COMMANDS = [
    (DemoSettings(), "--set change_s=1"),
    (DemoSettings(policy="tiresias-las"), "--set thresholds_gpu_s=21.33 --set min_run_s=4"),
    (DemoSettings(policy="srsf"), "--policy=srsf --set min_run_s=4"),
    (DemoSettings(policy="fifo"), "--policy=fifo"),
]


@pytest.mark.parametrize(("settings", "end"), COMMANDS)
def test_the_next_command_has_the_daemons_settings(settings: DemoSettings, end: str) -> None:
    start = "sodactl whatif --sacct build/demo/sacct-stock.txt --restart-cost-s=0.3 --tell-progress "
    assert whatif_command(settings, draw_mix()) == start + end


def test_a_path_with_a_space_is_quoted() -> None:
    command = whatif_command(DemoSettings(out=Path("my demo")), draw_mix())
    assert shlex.split(command)[3] == "my demo/sacct-stock.txt"


@pytest.mark.usefixtures("few_variants")
@pytest.mark.parametrize("policy", ["soda", "tiresias-las", "fifo"])
def test_the_forecast_is_what_the_command_says(policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings, mix = DemoSettings(policy=policy, out=tmp_path), draw_mix()
    (tmp_path / DUMP_FILES["stock"]).write_text("\n".join(STOCK.read_text().splitlines()[:16]))
    predicted = forecast_runs(tmp_path / DUMP_FILES["stock"], settings, mix)
    assert run([*shlex.split(whatif_command(settings, mix))[1:], "--json"]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    (row,) = (row for row in said["policies"] if (row["policy"], row["role"]) == (policy, "tried"))
    assert predicted["stock"]["avg_jct_s"] == pytest.approx(said["present"]["avg_jct_s"], abs=1e-4)
    assert predicted["soda"]["avg_jct_s"] == pytest.approx(row["avg_jct_s"], abs=1e-4)
    assert row["parameters"].items() >= policy_parameters(settings, mix).items()
    assert predicted["soda"]["policy"] == policy


def test_a_dump_that_says_nothing_ends_no_demo(tmp_path: Path) -> None:
    said: list[str] = []
    watch = DemoObserver(said.append, lambda phase, event: None)
    (tmp_path / DUMP_FILES["stock"]).write_text("JobID|User\n")
    assert mix_demo._forecast(DemoSettings(out=tmp_path), draw_mix(), watch) is None
    assert len(said) == 1
    assert said[0].startswith("no prediction: ")
