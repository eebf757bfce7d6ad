"""What soda.lua does to submissions and to changes of jobs, in every version of lua."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from slurm_soda.slurm_ext.hints import codec
from slurm_soda.slurm_ext.hints.flags import FLAG_BY_KEY, Hints
from tests.hints.lua_site import LUA_DIR, LUA_PARTS, LUA_VERSIONS, LuaSite
from tests.hints.values import comments, some_hints

RESNET = b"soda:1:model=resnet50"


@pytest.fixture(params=LUA_VERSIONS)
def site(request: pytest.FixtureRequest) -> LuaSite:
    return LuaSite(request.param)


@pytest.mark.parametrize(
    ("comment", "env", "expected"),
    [
        (None, [], None),
        (b"mine", [], b"mine"),
        (None, [b"SODA_MODEL=resnet50"], RESNET),
        (b"", [b"SODA_MODEL=resnet50"], RESNET),
        (b"it's | mine\n\xff", [b"SODA_MODEL=resnet50"], b"it's | mine\n\xff " + RESNET),
        (b"mine", [b"_SLURM_SPANK_OPTION_soda_soda_model=resnet50", b"OTHER=1"], b"mine"),
        (b"mine", [b"SODA_SHARE=YES", b"SODA_CATEGORY=cv"], b"mine soda:1:category=cv,share=yes"),
        (b"mine soda:1:share=yes", [], b"mine"),
        (b"soda:1:share=yes", [], b""),
        (b"a soda:1:share=yes b", [b"SODA_MODEL=resnet50"], b"a b " + RESNET),
        (b"soda:9:x mine", [b"SODA_MODEL=resnet50"], b"mine " + RESNET),
    ],
)
def test_submit(site: LuaSite, comment: bytes | None, env: list[bytes], expected: bytes | None) -> None:
    job = site.job(comment, env)
    site.soda[b"submit"](job)
    assert job[b"comment"] == expected
    assert site.said("errors") == []
    assert site.said("told") == []


def test_a_value_put_there_by_hand_is_left_out_and_its_user_told(site: LuaSite) -> None:
    job = site.job(b"mine", [b"SODA_BATCH_SIZE=64; rm -rf /", b"SODA_MODEL=resnet50"])
    site.soda[b"submit"](job)
    assert job[b"comment"] == b"mine " + RESNET
    assert site.said("told") == [
        '--soda-batch-size: "64; rm -rf /" is not allowed; use a whole number from 1 to 9999999; it is ignored'
    ]


def test_a_percent_sign_in_a_value_is_no_format(site: LuaSite) -> None:
    site.soda[b"submit"](site.job(None, [b"SODA_MODEL=%s%d%n"]))
    assert '"%s%d%n"' in site.said("told")[0]
    assert site.said("errors") == []


def test_a_comment_that_leaves_no_room_is_kept_and_the_job_is_not_lost(site: LuaSite) -> None:
    longest = b"x" * codec.COMMENT_MAX_BYTES
    job = site.job(longest, [b"SODA_MODEL=resnet50"])
    site.soda[b"submit"](job)
    assert job[b"comment"] == longest
    assert "shorten --comment" in site.said("told")[0]

    just_fits = longest[: codec.COMMENT_MAX_BYTES - len(RESNET) - 1]
    job = site.job(just_fits, [b"SODA_MODEL=resnet50"])
    site.soda[b"submit"](job)
    assert job[b"comment"] == just_fits + b" " + RESNET


@pytest.mark.parametrize(
    ("wanted", "before", "uid", "expected"),
    [
        (None, b"mine " + RESNET, 1000, None),
        (b"new", b"mine " + RESNET, 1000, b"new " + RESNET),
        (b"", b"mine " + RESNET, 1000, RESNET),
        (b"new soda:1:share=yes", b"mine " + RESNET, 1000, b"new " + RESNET),
        (b"new soda:1:share=yes", b"mine", 1000, b"new"),
        (b"new", None, 1000, b"new"),
        (b"new", b"mine " + RESNET, 64030, b"new " + RESNET),
        (b"new", b"mine " + RESNET, 0, b"new"),
        (b"x" * 1020, b"mine " + RESNET, 1000, b"mine " + RESNET),
    ],
)
def test_modify(site: LuaSite, wanted: bytes | None, before: bytes | None, uid: int, expected: bytes | None) -> None:
    job = site.job(wanted)
    site.soda[b"modify"](job, site.job(before), uid)
    assert job[b"comment"] == expected
    assert site.said("errors") == []


def test_an_error_inside_is_logged_and_never_leaves_the_module(site: LuaSite) -> None:
    broken = site.runtime.execute(b"return setmetatable({}, {__index = function() error('boom', 0) end})")
    site.soda[b"submit"](broken)
    site.soda[b"modify"](broken, broken, 1000)
    assert set(site.said("errors")) == {"slurm-soda: soda.lua failed, the job is not affected: boom"}


@pytest.mark.parametrize(("lengths", "taken"), [((65_000,), True), ((65_600,), False), ((400,) * 200, False)])
def test_variables_that_keep_a_prolog_from_starting(site: LuaSite, lengths: tuple[int, ...], taken: bool) -> None:
    """Slurm gives them to it without a limit, and drains the node then."""
    site.runtime.execute((LUA_DIR / "job_submit.lua").read_text().replace("/opt/slurm-soda/lib", f"{LUA_DIR}").encode())
    job = site.job(None, [b"SODA_MODEL=resnet50", *(b"OTHER=".ljust(length, b"x") for length in lengths)])
    status = site.runtime.globals()[b"slurm_job_submit"](job, None, 1000)
    assert (status, job[b"comment"]) == ((0, RESNET) if taken else (-1, None))
    assert [line[:11] for line in site.said("told")] == ([] if taken else ["job refused"])


def test_an_error_while_logging_an_error_stays_inside_too(site: LuaSite) -> None:
    site.runtime.execute(b"slurm = nil")
    site.soda[b"submit"](site.table({b"comment": 5.5, b"spank_job_env": True}))


def test_roots_update_does_not_even_look_at_the_job_that_is_there(site: LuaSite) -> None:
    site.soda[b"modify"](site.job(b"new"), None, 0)
    assert site.said("errors") == []


def test_submit_wakes_the_daemon(tmp_path: Path) -> None:
    wake = tmp_path / "wake"
    site = LuaSite("lua51", wake)
    site.soda[b"submit"](site.job())
    assert wake.read_bytes() == b"\n"
    os.utime(wake, (0, 0))
    site.soda[b"submit"](site.job())
    assert wake.read_bytes() == b"\n"
    assert wake.stat().st_mtime > 0


@pytest.mark.parametrize("make", ["missing", "directory", "pipe", "dangling"])
def test_wake_neither_fails_nor_blocks(tmp_path: Path, make: str) -> None:
    wake = tmp_path / "wake"
    match make:
        case "directory":
            wake.mkdir()
        case "pipe":
            os.mkfifo(wake)
        case "dangling":
            wake.symlink_to(tmp_path / "no" / "such")
        case _:
            wake = tmp_path / "no" / "such" / "wake"
    site = LuaSite("lua51", wake)
    job = site.job(None, [b"SODA_MODEL=resnet50"])
    site.soda[b"submit"](job)
    assert job[b"comment"] == RESNET
    assert site.said("errors") == []


def test_a_change_of_a_job_wakes_nobody(tmp_path: Path) -> None:
    site = LuaSite("lua51", tmp_path / "wake")
    site.soda[b"modify"](site.job(b"new"), site.job(b"mine"), 1000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", LUA_VERSIONS)
@given(comments, some_hints)
def test_lua_attaches_like_python(version: str, comment: str, hints: Hints) -> None:
    site = SITES.setdefault(version, LuaSite(version))
    env = [f"{FLAG_BY_KEY[key].env}={text}".encode() for key, text in codec.hints_to_dict(hints).items()]
    raw = comment.encode("utf-8", "surrogateescape")
    job = site.job(raw, env)
    site.soda[b"submit"](job)
    wanted = codec.attach_tag(comment, hints).encode("utf-8", "surrogateescape")
    assert job[b"comment"] == (wanted if len(wanted) <= codec.COMMENT_MAX_BYTES else raw)
    assert site.said("errors") == []


SITES: dict[str, LuaSite] = {}


PARTS_THAT_WILL_NOT_DO = {
    "missing": (None, "cannot open {}"),
    "empty": ("", "{} is no part of slurm-soda; install it again"),
    "cut short": ("local M = {}\nfunction M.annotate(", "near '<eof>'"),
}


@pytest.mark.parametrize("state", PARTS_THAT_WILL_NOT_DO)
@pytest.mark.parametrize("part", LUA_PARTS)
def test_a_part_that_will_not_do_turns_the_module_off_and_jobs_go_on(part: str, state: str, tmp_path: Path) -> None:
    for file in LUA_DIR.glob("soda*.lua"):
        shutil.copy(file, tmp_path)
    content, said = PARTS_THAT_WILL_NOT_DO[state]
    (tmp_path / part).unlink()
    if content is not None:
        (tmp_path / part).write_text(content)
    site = LuaSite("lua51")
    example = (LUA_DIR / "job_submit.lua").read_text()
    site.runtime.execute(example.replace("/opt/slurm-soda/lib/", f"{tmp_path}/").encode())
    (line,) = site.said("errors")
    assert line.startswith("slurm-soda is off: ")
    assert said.format(f"{tmp_path}/{part}") in line
    job = site.job(None, [b"SODA_MODEL=resnet50"])
    assert site.runtime.globals()[b"slurm_job_submit"](job, None, 1000) == 0
    assert job[b"comment"] is None


class ExampleSite:
    """The example of a site's file, with soda.lua and its parts in a folder where they can be spoilt."""

    def __init__(self, version: str, folder: Path) -> None:
        self.folder = folder
        self.site = LuaSite(version)
        example = (LUA_DIR / "job_submit.lua").read_text()
        self._example = example.replace("/opt/slurm-soda/lib/", f"{folder}/").encode()
        for file in LUA_DIR.glob("soda*.lua"):
            text = file.read_text().replace("/run/slurm-soda/wake", f"{folder}/wake")
            (folder / file.name).write_text(text)

    def takes_jobs_with(self, name: str, content: bytes) -> bytes | None:
        """Load everything with this content of one file, submit a job and change it; its comment in the end."""
        good = (self.folder / name).read_bytes()
        (self.folder / name).write_bytes(content)
        try:
            self.site.runtime.execute(self._example)
        finally:
            (self.folder / name).write_bytes(good)
        names: Any = self.site.runtime.globals()
        job = self.site.job(None, [b"SODA_MODEL=resnet50"])
        assert names[b"slurm_job_submit"](job, None, 1000) == 0
        change = self.site.job(b"new")
        assert names[b"slurm_job_modify"](change, job, None, 1000) == 0
        comment: bytes = change[b"comment"]
        return comment


@pytest.mark.parametrize("version", ["lua51", "lua54"])
@pytest.mark.parametrize("name", ["soda.lua", *LUA_PARTS])
def test_a_file_cut_anywhere_costs_no_submission(version: str, name: str, tmp_path: Path) -> None:
    site = ExampleSite(version, tmp_path)
    whole = (tmp_path / name).read_bytes()
    assert site.takes_jobs_with(name, whole) == b"new " + RESNET
    ends = [at + 1 for at, byte in enumerate(whole) if byte == ord("\n")]
    for length in {*range(0, len(whole) - 9, 151), *ends[:-1:9], *range(len(whole) - 9, len(whole) - 1)}:
        assert site.takes_jobs_with(name, whole[:length]) == b"new", length


NO_MODULES = [
    b"", b"\n", b"this is no lua (", b"error('at load')", b"error({})", b"error()", b"return false", b"return 5",
    b"return 'text'", b"return {}", b"return { submit = 5, modify = {} }", b"return function() end", b"return os.tmpname, 1",
    b"return { submit = function() error() end, modify = function() error({}) end }",
    b"return setmetatable({}, { __index = function() error('no') end })", bytes(5000),
]  # fmt: skip


@pytest.mark.parametrize("version", LUA_VERSIONS)
@pytest.mark.parametrize("name", ["soda.lua", *LUA_PARTS])
def test_a_file_with_anything_else_in_it_costs_no_submission(version: str, name: str, tmp_path: Path) -> None:
    site = ExampleSite(version, tmp_path)
    for content in NO_MODULES:
        before = len(site.site.said("errors"))
        comment = site.takes_jobs_with(name, content)
        assert comment == b"new" or (name in ("soda_routes.lua", "soda_guests.lua") and comment == b"new " + RESNET), (
            content
        )
        assert len(site.site.said("errors")) > before, content


@pytest.mark.parametrize("part", LUA_PARTS)
def test_a_part_of_another_release_is_an_error_in_the_log_alone(part: str, tmp_path: Path) -> None:
    for file in LUA_DIR.glob("soda*.lua"):
        shutil.copy(file, tmp_path)
    (tmp_path / part).write_text("return {}")
    site = LuaSite("lua51")
    soda = site.runtime.globals()[b"dofile"](bytes(tmp_path / "soda.lua"))
    soda[b"wake_path"] = False
    soda[b"submit"](site.job(None, [b"SODA_MODEL=resnet50"]), None)
    soda[b"modify"](site.job(b"new"), site.job(RESNET), 1000)
    assert site.said("errors")


@pytest.mark.parametrize("version", LUA_VERSIONS)
def test_example_site_file(version: str, tmp_path: Path) -> None:
    example = (LUA_DIR / "job_submit.lua").read_text()
    installed = "/opt/slurm-soda/lib/soda.lua"
    assert installed in example
    for path, expected in ((LUA_DIR / "soda.lua", RESNET), (tmp_path / "gone.lua", None)):
        site = LuaSite(version)
        site.runtime.execute(example.replace(installed, str(path)).encode())
        names: Any = site.runtime.globals()
        job = site.job(None, [b"SODA_MODEL=resnet50"])
        assert names[b"slurm_job_submit"](job, None, 1000) == 0
        assert job[b"comment"] == expected
        job = site.job(b"new")
        assert names[b"slurm_job_modify"](job, site.job(expected), None, 1000) == 0
        assert job[b"comment"] == (b"new " + expected if expected else b"new")
