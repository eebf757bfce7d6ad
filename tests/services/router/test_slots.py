"""HAProxy's servers are as wanted, after any changes, and after a reload for more of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slurm_soda.services.router.runtime_socket import HaproxyStats, ServerStats
from slurm_soda.services.router.server_slots import ServerSlots, WantedServer
from tests.services.router.conftest import SERVICE, Site, wait_until
from tests.services.router.load import Load

SLOTS = 4
wanted_servers = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        WantedServer, st.sampled_from(["10.0.0.1", "fe80::1"]), st.integers(1, 9), st.booleans(), st.integers(0, 3)
    ),
    max_size=SLOTS,
)


def apply(servers: dict[str, ServerStats], commands: list[str]) -> None:
    """What HAProxy makes of commands (management guide, 9.3)."""
    for command in commands:
        _, what, *rest = command.split()
        name = rest[0 if what == "server" else 1].partition("/")[2]
        before = servers[name]
        status, address, most = before.status, before.address, before.most_queries
        if what == "maxconn":
            most = int(rest[2])
        elif rest[1] == "addr":
            address = f"[{rest[2]}]:{rest[4]}" if ":" in rest[2] else f"{rest[2]}:{rest[4]}"
        elif rest[1] == "state":
            status = {"maint": "MAINT", "drain": "DRAIN", "ready": "UP"}[rest[2]]
        servers[name] = ServerStats(status, "L7OK", 0, address, most)


@given(st.lists(wanted_servers, min_size=1, max_size=5), st.booleans())
def test_servers_become_as_wanted(steps: list[dict[str, WantedServer]], restarted: bool) -> None:
    """Each instance has one server with its address; nobody else has one. Also after HAProxy was started anew."""
    servers = {f"s{n + 1}": ServerStats("MAINT") for n in range(SLOTS)}
    slots = ServerSlots(SLOTS)
    for wanted in steps:
        if restarted:
            servers = {name: ServerStats("MAINT", address=one.address) for name, one in servers.items()}
        for group in slots.commands(wanted, HaproxyStats(servers=servers)):
            apply(servers, group)
        seen = {name: one for name, one in servers.items() if one.status != "MAINT"}
        assert {slots.server(stem) for stem in wanted} == set(seen)
        for stem, server in wanted.items():
            found = servers[slots.server(stem)]
            assert (found.address, found.most_queries) == (server.endpoint, server.most_queries)
            assert found.status == ("DRAIN" if server.drain else "UP")
    assert slots.commands(steps[-1], HaproxyStats(servers=servers)) == []


def test_more_instances_than_slots_need_a_reload_that_loses_nothing(site: Site) -> None:
    """And what was set at run time holds after it: addresses, who drains, and how many queries each takes."""
    site.file.write_text(SERVICE + "[replicas]\nmost = 1\n")
    jobs = range(1, 13)
    site.backends.add(1, batch=3)
    site.backends.add(2, state="draining", batch=3)
    router = site.start()
    site.wait_serving(1)
    with Load(site.endpoint, 50) as load:
        for job in jobs[2:]:
            site.backends.add(job, batch=3)
        site.wait_serving(*jobs[2:])
        wait_until(lambda: all(load.by[str(job)] for job in jobs[2:]), "all answer")
    assert set(load.results) == {200}
    assert (load.by["2"], site.status(2)) == (0, "DRAIN")
    assert {view.server.most_queries for view in router.views} == {6}
