"""Instances come, die, lie, drain and vanish in any order, between reloads, and no query is lost."""

from __future__ import annotations

import random
import time

import pytest

from tests.services.router.backends import Backend
from tests.services.router.conftest import SERVICE, Site
from tests.services.router.load import Load

EVENTS = ("add", "kill", "lie", "drain", "drain", "call back", "reload", "vanish")


class Disorder:
    """Events at one service, as a random source says; two instances that serve are left alone."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site, self.random = site, random.Random(seed)
        self.alive: dict[int, Backend] = {}
        self.liars: list[Backend] = []
        self.jobs = 0

    def add(self, *, healthy: bool = True) -> Backend:
        self.jobs += 1
        answer_s, batch = self.random.choice([0.002, 0.05, 0.3]), self.random.choice([0, 4])
        return self.site.backends.add(self.jobs, answer_s=answer_s, batch=batch, healthy=healthy)

    def begin(self) -> None:
        backend = self.add()
        self.alive[self.jobs] = backend

    def one(self) -> None:
        router = self.site.router
        assert router is not None
        event = self.random.choice(EVENTS)
        serving = [job for job in self.alive if self.site.serves(job)]
        if event == "add" and len(self.alive) < 8:
            self.begin()
        elif event == "lie" and len(self.liars) < 4:
            self.liars.append(self.add(healthy=False))
        elif event in ("kill", "vanish") and len(serving) > 2:
            job = self.random.choice(serving)
            backend = self.alive.pop(job)
            if event == "kill":
                self.site.backends.do(backend.die())
            self.site.backends.remove(job)
        elif event in ("drain", "call back"):
            count = self.random.randint(1, len(self.alive)) if event == "drain" else 0
            router._drains.take(self.random.sample(sorted(self.alive), count))
        elif event == "reload":
            self.site.file.write_text(f'health = "/health{self.random.randint(0, 99)}"\n' + SERVICE)
            router.reread.set()


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_query_is_lost_whatever_comes_and_goes(site: Site, seed: int) -> None:
    """Forty events under load."""
    disorder = Disorder(site, seed)
    for _ in range(3):
        disorder.begin()
    site.start()
    site.wait_serving(1, 2, 3)
    with Load(site.endpoint, 80) as load:
        for _ in range(40):
            disorder.one()
            time.sleep(disorder.random.uniform(0.1, 0.8))
    assert set(load.results) == {200}, load.results
    assert sum(backend.answered for backend in disorder.liars) == 0
