"""How much soda.lua works: every submission holds slurmctld's locks meanwhile, so no text of a user may make it long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.lua_jobs import SLURMS_LIMITS, TOKENS, TRES_FIELDS, Shape, hardest
from tests.hints.lua_site import LuaSite
from tests.hints.test_routing import SBATCH, Routed

MOST_HUNDREDS = 4_000
"""Instructions of a submission, in hundreds, whatever its texts say; with patterns counted as if written in lua."""
NO_LIMIT_BYTES = 256 * 1024
"""Far beyond what Slurm takes of any field: it looks at lengths only after job_submit.lua."""


class CountedSite:
    """A lua state with pools in force that counts instructions."""

    def __init__(self, folder: Path) -> None:
        routed = Routed("lua54", folder)
        self.site: LuaSite = routed.site
        self.site.runtime.execute(Path(__file__).with_name("counted_strings.lua").read_bytes())
        self._counted: Any = self.site.runtime.globals()[b"counted"]
        change = self.job(tres_per_node=b"gres/a:1,gpu:1", comment=b"soda:1:a")  # each pattern is compiled once
        self.site.soda[b"submit"](change, None)
        self.site.soda[b"modify"](change, self.record({}), 1000)

    def job(self, **texts: bytes) -> Any:
        """A plain job with these texts, of fields and of SPANK variables."""
        env = [f"{key}=".encode() + text for key, text in texts.items() if key.startswith("SODA_")]
        job = self.site.job(env=env)
        for key, value in (SBATCH | {"partition": b"gpu"} | texts).items():
            job[key.encode()] = value
        return job

    def record(self, texts: dict[str, bytes]) -> Any:
        """A waiting job of user 1000 with these texts."""
        record = self.job(**({"tres_fmt_req_str": b",gres/gpu=" * 100} | texts))
        record[b"user_id"], record[b"job_state"] = 1000, 0
        return record

    def submit(self, **texts: bytes) -> int:
        """Instructions of one submission, in hundreds: of root's, or a user's, who may be refused early."""
        submit = self.site.soda[b"submit"]
        return max(int(self._counted(MOST_HUNDREDS, submit, self.job(**texts), None, uid)) for uid in (0, 1000))

    def modify(self, record: dict[str, bytes], **texts: bytes) -> int:
        """Instructions of one change of a job, in hundreds."""
        modify = self.site.soda[b"modify"]
        return int(self._counted(MOST_HUNDREDS, modify, self.job(**texts), self.record(record), 1000))

    def parse_routes(self, text: bytes) -> int:
        """Instructions for reading a file of routes, in hundreds."""
        return int(self._counted(20 * MOST_HUNDREDS, self.site.routes[b"parse_routes"], text))


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> CountedSite:
    return CountedSite(tmp_path_factory.mktemp("routes"))


@pytest.mark.parametrize("length", [1024, 40_000])
@pytest.mark.parametrize("field", TRES_FIELDS)
def test_many_digits_in_a_request(counted: CountedSite, field: str, length: int) -> None:
    assert counted.submit(**{field: b"gres/gpu:" + b"1" * length + b"!"}) < MOST_HUNDREDS


def test_one_long_word_in_the_comment(counted: CountedSite) -> None:
    comment = b"x" * 1023 + b" "
    assert counted.submit(comment=comment, SODA_MODEL=b"resnet50") < MOST_HUNDREDS
    assert counted.modify({"comment": comment}, comment=b"new") < MOST_HUNDREDS


@pytest.fixture(scope="module")
def shapes(counted: CountedSite) -> dict[str, Shape]:
    """The hardest shape found of each field."""
    return {field: hardest(field, lambda text, field=field: counted.submit(**{field: text})) for field in TOKENS}


@pytest.mark.parametrize("field", TOKENS)
def test_work_grows_with_the_length_and_has_an_end(counted: CountedSite, shapes: dict[str, Shape], field: str) -> None:
    base = counted.submit()
    short, long = (counted.submit(**{field: shapes[field].text(length)}) - base for length in (256, 1024))
    assert long <= 5 * short + 50
    assert counted.submit(**{field: shapes[field].text(NO_LIMIT_BYTES)}) < MOST_HUNDREDS


def test_all_at_once(counted: CountedSite, shapes: dict[str, Shape]) -> None:
    texts = {field: shapes[field].text(SLURMS_LIMITS[field]) for field in TOKENS}
    assert counted.submit(**texts) < MOST_HUNDREDS
    assert counted.modify(texts, **texts) < MOST_HUNDREDS
    assert counted.modify({"partition": b"gpu_cpu_lend," * 78}, **texts) < MOST_HUNDREDS


def test_a_thousand_variables_are_not_read_but_refused(counted: CountedSite) -> None:
    job = counted.job()
    job[b"spank_job_env_size"] = 1000
    job[b"spank_job_env"] = counted.site.table(dict.fromkeys(range(1000), b"SODA_MODEL=resnet50"))
    assert b"more than 256" in counted.site.soda[b"submit"](job)
    assert job[b"comment"] is None


def test_a_file_of_routes_in_one_line(counted: CountedSite) -> None:
    text = b"soda-pools 1\npart name=" + b"a" * 32_000 + b"\nend\n"
    assert counted.parse_routes(text) < 20 * MOST_HUNDREDS


@pytest.mark.parametrize("motif", [b"gres/a:1,", b"a", b"gres/gpu:a", b":", b"gres/gpu:1a.-", b"gres:gpu=1,"])
def test_an_owners_new_request_for_his_guest(counted: CountedSite, motif: bytes) -> None:
    guest = {"tres_per_node": b"gres/sharedgpu:g0:1", "req_nodes": b"n1"}

    def work(length: int) -> int:
        text = b"gres/gpu:" + (motif * length)[:length] + b"!"
        return counted.modify(guest, **dict.fromkeys(TRES_FIELDS[:4], text))

    assert work(1000) <= 5 * work(250) + 50
    assert work(1000) < MOST_HUNDREDS
    assert work(NO_LIMIT_BYTES) < MOST_HUNDREDS


def test_the_nodes_of_a_guest(counted: CountedSite) -> None:
    for list_ in (b"n[" + b"1-2," * 250 + b"3]", b"n," * 500, b"n[" * 500, b"1-" * 500, b"n" * NO_LIMIT_BYTES):
        asked = {b"tres_per_node": b"gres/sharedgpu:g0:1", b"req_nodes": list_}
        modify = counted.site.soda[b"modify"]
        assert (
            int(counted._counted(MOST_HUNDREDS, modify, counted.site.table(asked), counted.record({}), 0))
            < MOST_HUNDREDS
        )
