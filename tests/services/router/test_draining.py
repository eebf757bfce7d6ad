"""Who drains, and that no query is lost by it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.services.router import drain_requests
from slurm_soda.services.router.drains import DrainCandidate, choose_drains
from slurm_soda.wire.services.router_report import ReportedInstance, RouterAnswer
from tests.sampling import thorough
from tests.services.router.conftest import Site, wait_until
from tests.services.router.load import Load

HANDOVERS = 50


def reported(site: Site, job_id: int) -> ReportedInstance | None:
    """What the last report says of a job."""
    reports = site.sodad.reports
    return next((one for one in reports[-1].instances if one.job_id == job_id), None) if reports else None


def state(site: Site, job_id: int) -> str:
    found = reported(site, job_id)
    return found.state if found else ""


def test_no_query_is_lost_in_many_handovers(site: Site) -> None:
    """Another instance comes, the one before drains and ends: fifty times under load, in a sample ten."""
    handovers = HANDOVERS if thorough() else HANDOVERS // 5
    router = site.start()
    job = 1
    site.backends.add(job)
    site.wait_serving(job)
    with Load(site.endpoint, 200 if thorough() else 100) as load:
        for _ in range(handovers):
            before, job = job, job + 1
            site.backends.add(job)
            site.wait_serving(job)
            router._drains.take({before})
            wait_until(lambda before=before: site.status(before) == "DRAIN", "drained")
            view = next(view for view in router.views if view.instance.job_id == before)
            wait_until(lambda: router._haproxy.in_flight(router._haproxy.stats())(view.stem) == 0, "idle")  # noqa: B023
            site.backends.remove(before)
    assert set(load.results) == {200}, load.results
    assert len(load.by) > handovers


def test_sodad_names_an_instance_and_sees_it_empty(site: Site) -> None:
    """It gets no new query at once, its file says so, and its queries in flight are told until there is none."""
    slow = site.backends.add(1, hold=True)
    site.backends.add(2)
    site.start(with_sodad=True)
    site.wait_serving(1, 2)
    with Load(site.endpoint, 20):
        wait_until(lambda: slow.in_flight > 0, "busy")
        site.sodad.answer = RouterAnswer(drain=(1,))
        wait_until(lambda: state(site, 1) == "draining", "reported")
        had = slow.in_flight
        found = reported(site, 1)
        assert (found is not None and found.queries, (site.folder / "instances" / "127.0.0.1.1.drain").exists()) == (
            had,
            True,
        )
        slow.hold = False
        wait_until(lambda: (found := reported(site, 1)) and found.queries == 0, "empty")
        assert (slow.in_flight, slow.answered) == (0, had)
    site.sodad.answer = RouterAnswer()
    wait_until(lambda: state(site, 1) == "ready", "called back")


def test_the_last_ready_instance_is_not_drained(site: Site) -> None:
    """Whatever sodad says; as soon as another is ready, it is."""
    site.backends.add(1)
    site.sodad.answer = RouterAnswer(drain=(1, 2))
    site.start(with_sodad=True)
    site.wait_serving(1)
    wait_until(lambda: any("no other instance is ready" in line for line in site.said), "told")
    assert site.asked(5) == {"1"}
    site.backends.add(2)
    site.backends.add(3)
    wait_until(lambda: state(site, 1) == state(site, 2) == "draining", "both drain")
    assert site.asked(5) == {"3"}
    site.backends.remove(3)
    wait_until(lambda: site.serves(1) or site.serves(2), "one is called back")


def test_a_router_that_begins_goes_on_with_drains_from_files(site: Site) -> None:
    """And calls those back that sodad does not want drained any more."""
    site.backends.add(1)
    site.backends.add(2)
    (site.folder / "instances" / "127.0.0.1.1.drain").touch()
    site.start()
    site.wait_serving(2)
    wait_until(lambda: site.status(1) == "DRAIN", "drained")
    wait_until(
        lambda: site.asked(5) == {"2"}, "2 alone serves"
    )  # a late answer to a check of 2 calls 1 back for a while


def test_without_a_word_of_sodads_all_serve_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sodad that is gone wanted is not done for ever."""
    monkeypatch.setattr(drain_requests, "WISH_LASTS_S", 1.0)
    site.backends.add(1)
    site.backends.add(2)
    (site.folder / "instances" / "127.0.0.1.1.drain").touch()
    site.start()
    site.wait_serving(1, 2)
    assert site.asked(20) == {"1", "2"}
    assert not (site.folder / "instances" / "127.0.0.1.1.drain").exists()


candidates = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(DrainCandidate, st.booleans(), st.booleans(), st.booleans(), st.floats(0, 10)).map(
        lambda one: DrainCandidate(one.ready or one.serves, one.answers or one.serves, one.serves, one.since_s)
    ),
)


@given(candidates, st.frozensets(st.sampled_from("abcdefg")))
def test_capacity_never_falls_to_none(all_of_them: dict[str, DrainCandidate], wanted: frozenset[str]) -> None:
    """If one serves now, one serves afterwards; only the wanted drain, and at most one of them does not."""
    drains = choose_drains(all_of_them, wanted)
    left = [one for name, one in all_of_them.items() if name not in drains]
    assert drains <= wanted & all_of_them.keys()
    assert len(wanted & all_of_them.keys()) - len(drains) <= 1
    if any(one.serves for one in all_of_them.values()):
        assert any(one.serves for one in left)
    elif any(one.can_serve for one in all_of_them.values()):
        assert any(one.can_serve for one in left)


def test_reports_stop_nothing_while_sodad_is_away(site: Site) -> None:
    """Connections refused, then sodad comes."""
    site.backends.add(1)
    url, site.sodad.url = site.sodad.url, "http://127.0.0.1:1"
    site.start(with_sodad=True)
    site.wait_serving(1)
    wait_until(lambda: any("does not take reports" in line for line in site.said), "told")
    assert site.asked(5) == {"1"}
    site.sodad.url = url
    wait_until(lambda: site.sodad.reports, "reports again")
    wait_until(lambda: any("takes reports again" in line for line in site.said), "told")


def test_answers_of_others_are_not_believed(site: Site) -> None:
    """Whoever has sodad's port cannot drain anything: MUNGE says who answers."""
    site.backends.add(1)
    site.backends.add(2)
    site.sodad.answer, site.sodad.answers_as = RouterAnswer(drain=(1,)), 2001
    site.start(with_sodad=True)
    site.wait_serving(1, 2)
    wait_until(lambda: any("uid 2001" in line for line in site.said), "refused")
    time.sleep(0.6)  # a turn
    assert site.serves(1)
    assert not (site.folder / "instances" / "127.0.0.1.1.drain").exists()
    site.sodad.answers_as = 64030
    wait_until(lambda: state(site, 1) == "draining", "SlurmUser's are")
