"""Whether Slurm is set up to guard guests, by ``scontrol show config`` and the files that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_soda.slurm_ext.read.site_guards import list_missing_guards, lua_code, our_scripts

TOP = Path(__file__).parents[2]
GOOD = {
    "Prolog[0]": "/opt/slurm-soda/libexec/prolog",
    "Epilog": "/opt/slurm-soda/libexec/epilog",
    "JobSubmitPlugins": "require_timelimit,lua",
    "PrologEpilogTimeout": "75",
}


def missing(tmp_path: Path, **settings: str) -> list[str]:
    config = GOOD | {"SLURM_CONF": f"{tmp_path}/slurm.conf"} | settings
    return [f"{found.check}: {found.sentence}" for found in list_missing_guards(config)]


def test_a_site_that_runs_all_lacks_nothing(tmp_path: Path) -> None:
    assert not missing(tmp_path), "a script that cannot be read here is on another machine"
    (tmp_path / "job_submit.lua").write_text((TOP / "slurm_ext/lua/job_submit.lua").read_text())
    assert not missing(tmp_path)


@pytest.mark.parametrize(("key", "what"), [("Epilog", "prolog/epilog"), ("JobSubmitPlugins", "guard")])
def test_what_slurm_conf_does_not_name_is_told(tmp_path: Path, key: str, what: str) -> None:
    (told,) = missing(tmp_path, **{key: "(null)"})
    assert told.startswith(f"{what}: nobody can be one now: {key}=(null)")


def test_nobody_is_a_guest_where_somebody_else_reads_extra(tmp_path: Path) -> None:
    assert not missing(tmp_path, SchedulerParameters="bf_continue,no_extra_constraints")
    (told,) = missing(tmp_path, SchedulerParameters="bf_continue,extra_constraints")
    assert told.startswith("Extra: nobody can be one now: SchedulerParameters has extra_constraints: take it out")


@pytest.mark.parametrize("flag", ["RunInJob", "Serial"])
def test_nobody_is_a_guest_where_hooks_run_in_their_job_or_one_by_one(tmp_path: Path, flag: str) -> None:
    assert not missing(tmp_path, PrologFlags="Alloc,Contain")
    (told,) = missing(tmp_path, PrologFlags=f"Alloc,Contain,{flag}")
    assert told.startswith(f"prolog/epilog: nobody can be one now: PrologFlags has {flag}: take it out")


CALL = "/opt/slurm-soda/libexec/prolog"
CALLED = {
    "as the last command": f"#!/bin/sh\nexec {CALL}\n",
    "after a test": f'#!/bin/sh\n[ ! -x {CALL} ] || {CALL} "$@" # ours\n',
    "from a folder of its own": '#!/bin/sh\nfor hook in "$soda"/libexec/prolog /site/other; do "$hook"; done\nexit 0\n',
    "itself": (TOP / "prolog/prolog").read_text(),
    "after words that begin as exit does": f"#!/bin/sh\nexit_code=0\nexit_handler() {{\n:\n}}\n{CALL}\n",
    "after a sign of comments in quotes": f'#!/bin/sh\nlogger "job #1"; {CALL}\n',
    "after an end of a function": f"#!/bin/sh\nfail() {{\nexit 1\n}}\n{CALL}\n",
    "after an end of a case": f"#!/bin/bash\ncase $SLURM_JOB_PARTITION in\ncpu)\nexit 0\n;;\nesac\n{CALL}\n",
    "after an end that may be": f"#!/bin/sh\n[ -e /site ] || exit 0\nif [ -e /x ]; then\nexit 0\nfi\n{CALL}\n",
    "after an end of a group that may be": f"#!/bin/sh\n[ -e /site ] || {{\necho no\nexit 0\n}}\n{CALL}\n",
    "after an end of a subshell": f"#!/bin/sh\n(exit 1)\n{CALL}\n",
    "after its output was sent elsewhere": f"#!/bin/sh\nexec >/var/log/hook 2>&1\nexec 3> /x\n{CALL}\n",
    "behind a here-document": f"#!/bin/sh\ncat <<-EOF >/x\n\texit 0\n\tEOF\n{CALL}\n",
    "beside a branch that is never taken": f"#!/bin/sh\nif false; then\nexit 0\nelse\n{CALL}\nfi\n",
    "behind a branch that is never taken": f"#!/bin/sh\nif false; then\nexit 0\nfi\n{CALL}\n",
    "by a variable": f"#!/bin/sh\nhook={CALL}\n$hook\n",
    "over two lines": f"#!/bin/sh\ntimeout 60 \\\n  {CALL} || :\n",
    "by another language": f"#!/usr/bin/python3\nimport subprocess  # {CALL}\nsubprocess.run(['{CALL}'])\n",
}
NOT_CALLED = {
    "by nothing": "#!/bin/sh\nexit 0\n",
    "by a comment": f"#!/bin/sh\n# slurm-soda's prolog: off for now\n  # {CALL}\n",
    "by a comment behind a command": f"#!/bin/sh\ntrue # {CALL}\n:;# {CALL}\n",
    "by a line that is never reached": f"#!/bin/sh\nexit 0\n{CALL}\n",
    "by another name": f"#!/bin/sh\n{CALL}.off\n/site/libexec/prologue\n",
    "by a here-document": f"#!/bin/sh\n: <<'OFF'\n{CALL}\nOFF\n",
    "by a branch that is never taken": f"#!/bin/sh\nif false; then\n  {CALL}\nfi\n",
    "after another program": f"#!/bin/sh\nexec /site/prolog\n{CALL}\n",
    "after the end of a line": f"#!/bin/sh\ntrue; exit 0\n{CALL}\n",
    "after an end that is sure": f"#!/bin/sh\nfalse || exit 0\n{CALL}\n",
    "after an end of a group": f"#!/bin/sh\n{{\n  exit 0\n}}\n{CALL}\n",
    "by a test": f"#!/bin/sh\n[ -x {CALL} ] || logger missing\n",
    "by a message": f'#!/bin/sh\necho "not running {CALL}"\n',
    "but from a copy": "#!/bin/sh\n/backup/libexec/prolog\n",
    "by a script that cannot run": f"#!/bin/sh\r\n{CALL}\r\n",
    "by a comment of another language": f"#!/usr/bin/python3\n# {CALL}\n",
}


@pytest.mark.parametrize("how", CALLED)
@pytest.mark.parametrize("name", ["site-prolog", "soda-prolog"])
def test_a_script_of_the_sites_may_call_ours(tmp_path: Path, name: str, how: str) -> None:
    (tmp_path / name).write_text(CALLED[how])
    assert not missing(tmp_path, **{"Prolog[0]": f"{tmp_path}/{name}"})


@pytest.mark.parametrize("how", NOT_CALLED)
@pytest.mark.parametrize("name", ["site-prolog", "soda-prolog"])
def test_a_script_that_only_names_ours_guards_nobody(tmp_path: Path, name: str, how: str) -> None:
    (tmp_path / name).write_text(NOT_CALLED[how])
    (told,) = missing(tmp_path, **{"Prolog[0]": f"{tmp_path}/{name}"})
    assert f"Prolog={tmp_path}/{name} does not run slurm-soda's prolog" in told


def test_what_lies_in_a_folder_of_another_name_may_be_ours(tmp_path: Path) -> None:
    folder = tmp_path / "tools/libexec"
    folder.mkdir(parents=True)
    (tmp_path / "site").write_text(f"#!/bin/sh\n{folder}/prolog\n")
    assert missing(tmp_path, **{"Prolog[0]": f"{tmp_path}/site"})
    (folder / "prolog").write_text((TOP / "prolog/prolog").read_text())
    assert not missing(tmp_path, **{"Prolog[0]": f"{tmp_path}/site"})


def test_our_own_hooks_are_known_by_what_they_do() -> None:
    for key, path in (("Epilog", "epilog/epilog"), ("EpilogSlurmctld", "epilog/epilogctld")):
        assert our_scripts({key: str(TOP / path)}, key) == [str(TOP / path)]


@pytest.mark.parametrize("call", ["submit", "modify"])
def test_a_site_script_without_our_calls_is_no_guard(tmp_path: Path, call: str) -> None:
    text = (TOP / "slurm_ext/lua/job_submit.lua").read_text().replace(f"return soda.{call}(", "return other(")
    (tmp_path / "job_submit.lua").write_text(f"-- soda.{call}(x)\n--[==[ off ]]\n soda.{call}(x)\n]==]\n{text}")
    (told,) = missing(tmp_path)
    assert "does not call soda.submit and soda.modify" in told


def test_comments_of_lua() -> None:
    text = 'a("-- no comment \\"--[[", \'--\') --[[ off\n]] b() -- off\n---[[ on\nc() --]]\nd() --[==[ ]] to the end\n'
    assert lua_code(text) == 'a("-- no comment \\"--[[", \'--\')  b() \n\nc() \nd() '
