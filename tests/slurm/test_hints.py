"""The ``--soda-…`` flags on the real cluster: SPANK plugin, job_submit.lua and codec together."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from slurm_soda.containers.cluster import ContainerCluster
from slurm_soda.slurm_ext.hints import codec
from slurm_soda.slurm_ext.hints.flags import FLAG_BY_KEY, FLAGS, Hints
from tests.hints.lua_site import LUA_PARTS

pytestmark = pytest.mark.slurm

USER = "alice"
EVERY_FLAG = {
    "category": "NLP",
    "model": "meta/bert-base",
    "batch_size": "64",
    "iterations": "5000",
    "pipelined": "yes",
    "large_weights": "yes",
    "heavy_preprocessing": "yes",
    "share": "no",
    "max_slowdown": "1.50",
    "gpu_memory": "12G",
    "accumulates": "yes",
    "checkpoint": "sigusr1@2m",
}
EVERY_HINT = Hints("nlp", "meta/bert-base", 64, 5000, True, True, True, False, 1.5, 12288, True, "USR1", 120)
REFUSED = [
    ("category", "vision"),
    ("batch_size", "0"),
    ("batch_size", "64; rm -rf /"),
    ("checkpoint", "SIGFOO"),
    ("model", "evil\x1b[31m\nname"),
    ("gpu_memory", ""),
]
PARTS = ("soda.lua", *LUA_PARTS)
SITE_FILE = "/etc/slurm/job_submit.lua"
TAG = "soda:1:model=vgg16"
READ_AGAIN = ("read_at=$((read_at + 1))", f"touch --date=@$read_at {SITE_FILE}")
"""Slurm reads its file again at the next submission if it became younger, counted in whole seconds."""
TAKE_AND_CHANGE = (
    f"job=$(runuser -u {USER} -- sbatch --parsable --hold --output=/dev/null --soda-model=vgg16 --wrap=true) &&"
    f" runuser -u {USER} -- scontrol update JobId=$job TimeLimit=5 && echo $job",
)


SUBMIT_WITH_VARIABLES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <slurm/slurm.h>
#include <stdlib.h>
#include <string.h>
int slurm_submit_batch_job(job_desc_msg_t *job, submit_response_msg_t **answer)
{
    int (*submit)(job_desc_msg_t *, submit_response_msg_t **) = dlsym(RTLD_NEXT, "slurm_submit_batch_job");
    size_t bytes = strtoul(getenv("VARIABLE_BYTES"), NULL, 10);
    static char *variables[1];
    variables[0] = calloc(1, bytes + 3);
    memset(strcpy(variables[0], "A=") + 2, 'x', bytes);
    job->spank_job_env = variables;
    job->spank_job_env_size = 1;
    return submit(job, answer);
}
"""
"""What a user can do without any plugin: sbatch sends whatever list it has."""


def words(flags: dict[str, str]) -> list[str]:
    """Command-line words for flags by key."""
    return [FLAG_BY_KEY[key].option + (f"={value}" if FLAG_BY_KEY[key].metavar else "") for key, value in flags.items()]


@pytest.fixture(autouse=True)
def _no_jobs_left(cluster: ContainerCluster) -> Iterator[None]:
    yield
    cluster.exec("root", ["scancel", "--user", USER]).check()


def submit(cluster: ContainerCluster, *argv: str, script: str = "#!/bin/sh\nsleep 60\n") -> str:
    """Job id of a held batch job."""
    reply = cluster.exec(USER, ["sbatch", "--parsable", "--hold", "--output=/dev/null", *argv], input=script).check()
    return reply.stdout.strip()


def comment(cluster: ContainerCluster, job_id: str) -> str:
    reply = cluster.exec(USER, ["squeue", "--noheader", "--jobs", job_id, "--format", "%k"]).check()
    return reply.stdout.removesuffix("\n")


def queue_length(cluster: ContainerCluster) -> int:
    return cluster.exec(USER, ["squeue", "--noheader", "--user", USER]).check().stdout.count("\n")


def broken_forms(good: str) -> dict[str, str | None]:
    """What a file may become; None: it is gone."""
    late = "return setmetatable({}, { __index = function() return function() error('late') end end })"
    cut = {f"cut {quarter}": good[: len(good) * quarter // 4] for quarter in (1, 2, 3)}
    whole: dict[str, str | None] = {
        "gone": None,
        "empty": "",
        "no lua": "this is no lua (",
        "error": "error('at load')",
    }
    return whole | cut | {"other": "return 7", "hollow": "return {}", "late": late}


@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
def test_help_lists_every_flag(cluster: ContainerCluster, command: str) -> None:
    reply = cluster.exec(USER, [command, "--help"], environment={"COLUMNS": "200"}).check().stdout
    for flag in FLAGS:
        shown = flag.option + (f"={flag.metavar}" if flag.metavar else "")
        assert f" {shown}" in reply
        assert flag.usage in reply


def test_every_flag_reaches_the_comment(cluster: ContainerCluster) -> None:
    job_id = submit(cluster, *words(EVERY_FLAG), "--comment=my own words")
    assert codec.decode_comment(comment(cluster, job_id)) == codec.DecodedComment(EVERY_HINT, "my own words")


def test_sbatch_lines(cluster: ContainerCluster) -> None:
    lines = "".join(f"#SBATCH {word}\n" for word in words(EVERY_FLAG))
    job_id = submit(cluster, script=f"#!/bin/sh\n{lines}sleep 60\n")
    assert codec.decode_comment(comment(cluster, job_id)) == codec.DecodedComment(EVERY_HINT, "")


def test_the_command_line_overrides_sbatch_lines(cluster: ContainerCluster) -> None:
    job_id = submit(
        cluster, "--soda-model=new", script="#!/bin/sh\n#SBATCH --soda-model=old\n#SBATCH --soda-share=no\n"
    )
    assert codec.decode_comment(comment(cluster, job_id)).hints == Hints(model="new", share=False)


def test_without_flags_nothing_is_added(cluster: ContainerCluster) -> None:
    assert comment(cluster, submit(cluster, "--comment=mine")) == "mine"
    assert comment(cluster, submit(cluster)) == "(null)"


@pytest.mark.sample(6)
@pytest.mark.parametrize(("key", "value"), REFUSED)
@pytest.mark.parametrize(
    "command", [["sbatch", "--wrap=true"], ["salloc", "true"], ["srun", "true"]], ids=lambda command: command[0]
)
def test_a_bad_value_is_refused_with_one_line(
    cluster: ContainerCluster, command: list[str], key: str, value: str
) -> None:
    argv = [command[0], *words({key: value}), *command[1:]]
    reply = cluster.exec(USER, argv)
    assert reply.status == 1
    assert reply.stdout == ""
    assert reply.stderr == f"{command[0]}: error: {codec.refusal_text(FLAG_BY_KEY[key], value)}\n"
    assert queue_length(cluster) == 0


def test_a_bad_value_in_the_script_is_refused_with_one_line(cluster: ContainerCluster) -> None:
    reply = cluster.exec(USER, ["sbatch"], input="#!/bin/sh\n#SBATCH --soda-batch-size=0\ntrue\n")
    assert reply.status == 1
    assert reply.stderr == f"sbatch: error: {codec.refusal_text(FLAG_BY_KEY['batch_size'], '0')}\n"


@pytest.mark.parametrize("text", ['it\'s | "mine"; $(id) %s', "two\nlines\tand tabs", "caf\xe9 \udcff", "  spaces  "])
def test_the_users_comment_survives(cluster: ContainerCluster, text: str) -> None:
    # Through a shell's standard input: the engine's own interface takes words as JSON, which has no room for stray bytes.
    line = shlex.join(["sbatch", "--parsable", "--hold", "--wrap=true", "--soda-model=vgg16", f"--comment={text}"])
    job_id = cluster.exec(USER, ["sh"], input=line).check().stdout.strip()
    assert codec.decode_comment(comment(cluster, job_id)) == codec.DecodedComment(Hints(model="vgg16"), text)


def test_a_tag_written_by_hand_is_taken_out(cluster: ContainerCluster) -> None:
    job_id = submit(cluster, "--soda-model=vgg16", "--comment=soda:1:share=yes mine soda:2:x")
    assert comment(cluster, job_id) == "mine soda:1:model=vgg16"


def test_a_comment_that_fills_slurms_limit_is_kept(cluster: ContainerCluster) -> None:
    longest = "x" * codec.COMMENT_MAX_BYTES
    argv = ["sbatch", "--parsable", "--hold", "--soda-model=vgg16", f"--comment={longest}", "--wrap=true"]
    reply = cluster.exec(USER, argv).check()
    assert comment(cluster, reply.stdout.strip()) == longest
    assert "shorten --comment" in reply.stderr
    assert reply.stderr.count("\n") == 1


def test_the_tag_outlives_the_owners_changes_of_the_comment(cluster: ContainerCluster) -> None:
    job_id = submit(cluster, "--soda-model=vgg16", "--comment=old")
    for text in ("new words", "other soda:1:share=yes", ""):
        cluster.exec(USER, ["scontrol", "update", f"JobId={job_id}", f"Comment={text}"]).check()
        assert codec.decode_comment(comment(cluster, job_id)) == codec.DecodedComment(
            Hints(model="vgg16"), codec.strip_tags(text)
        )
    cluster.exec(USER, ["scontrol", "update", f"JobId={job_id}", f"Comment={'x' * 1020}"])
    assert comment(cluster, job_id) == "soda:1:model=vgg16"
    cluster.exec("root", ["scontrol", "update", f"JobId={job_id}", "SiteFactor=7"]).check()
    assert comment(cluster, job_id) == "soda:1:model=vgg16"
    cluster.exec("root", ["scontrol", "update", f"JobId={job_id}", "Comment=by root"]).check()
    assert comment(cluster, job_id) == "by root"


@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_srun_and_salloc_allocate_with_hints(cluster: ContainerCluster, command: str) -> None:
    argv = [command, "--quiet", *words(EVERY_FLAG), "sh", "-c", 'squeue -h -j "$SLURM_JOB_ID" -o %k']
    reply = cluster.exec(USER, argv).check()
    assert reply.stderr == ""
    assert codec.decode_comment(reply.stdout.strip()).hints == EVERY_HINT


def test_a_job_finds_its_hints_in_its_environment(cluster: ContainerCluster) -> None:
    reply = cluster.exec(USER, ["salloc", "--quiet", *words(EVERY_FLAG), "env"]).check()
    env = dict(line.split("=", 1) for line in reply.stdout.splitlines() if "=" in line)
    assert codec.hints_from_env(env, "SLURM_SPANK_") == EVERY_HINT


def test_inside_a_job_steps_run_and_other_jobs_do_not_inherit(cluster: ContainerCluster) -> None:
    inner = (
        "srun --soda-model=step true && srun true && echo steps ran;"
        "sbatch --parsable --hold --output=/dev/null --wrap=true;"
        'squeue -h -j "$SLURM_JOB_ID" -o %k'
    )
    reply = cluster.exec(USER, ["salloc", "--quiet", "--soda-model=outer", "--comment=mine", "sh", "-c", inner]).check()
    steps, nested, tag = reply.stdout.splitlines()
    assert steps == "steps ran"
    assert tag == "mine soda:1:model=outer"
    assert comment(cluster, nested) == "(null)"


def test_each_part_of_a_heterogeneous_job_has_its_flags(cluster: ContainerCluster) -> None:
    parts = ["--soda-model=first", "--soda-share=no", ":", "--soda-model=second"]
    job_id = submit(cluster, *parts)
    assert sorted(comment(cluster, job_id).splitlines()) == [
        "soda:1:model=first,share=no",
        "soda:1:model=second,share=no",  # Slurm itself hands the flags of any plugin on to later parts
    ]


def test_variables_that_would_drain_a_node_are_refused(cluster: ContainerCluster) -> None:
    build = ("gcc", "-shared", "-fPIC", "-x", "c", "-o", "/tmp/long-variables.so", "-")
    cluster.exec(USER, build, input=SUBMIT_WITH_VARIABLES).check()
    with_variable = "VARIABLE_BYTES={} LD_PRELOAD=/tmp/long-variables.so sbatch --wait --output=/dev/null --wrap=true"
    cluster.exec(USER, ("sh", "-c", with_variable.format(30_000))).check()
    refused = cluster.exec(USER, ("sh", "-c", with_variable.format(200_000)))
    assert refused.status != 0
    assert "more than 64 KiB" in refused.stderr
    assert "drain" not in cluster.exec("root", ("sinfo", "-h", "-N", "-o", "%T")).check().stdout


def test_a_submission_wakes_the_daemon(cluster: ContainerCluster) -> None:
    def touched() -> str:
        return cluster.exec("root", ["stat", "--format=%y", "/run/slurm-soda/wake"]).stdout

    before = touched()
    submit(cluster)
    assert touched() not in ("", before)


def test_jobs_are_taken_and_changed_whatever_a_file_of_lua_has_become(cluster: ContainerCluster) -> None:
    """Since 26.05 Slurm refuses a job, and a change of one, after any error of lua."""
    files = {path.rpartition("/")[2]: path for path in (*(f"/opt/slurm-soda/lib/{name}" for name in PARTS), SITE_FILE)}
    good = {name: cluster.copy_out(path).decode() for name, path in files.items()}
    cases = [(name, kind, text) for name in PARTS for kind, text in broken_forms(good[name]).items()]
    # Of the site's own file, Slurm keeps what it read last.
    cases += [
        ("job_submit.lua", kind, broken_forms(good["job_submit.lua"])[kind]) for kind in ("empty", "cut 1", "no lua")
    ]
    script = ["set -u", f"read_at=$(stat --format=%Y {SITE_FILE})"]
    for name, _, text in cases:
        broken = f"rm {files[name]}" if text is None else f"printf %s {shlex.quote(text)} >{files[name]}"
        script += [broken, *READ_AGAIN, *TAKE_AND_CHANGE, f"printf %s {shlex.quote(good[name])} >{files[name]}"]
    script += [
        *READ_AGAIN,
        'while [ "$(date +%s)" -le $read_at ]; do sleep 0.1; done',
    ]  # a touch is younger from then on
    said = cluster.exec("root", ["sh"], input="\n".join(script)).check()
    jobs = said.stdout.splitlines()
    assert len(jobs) == len(cases), said.stderr
    found = cluster.exec(USER, ["squeue", "--noheader", "--user", USER, "--format", "%i %k"]).check().stdout
    comments = dict(line.split(" ", 1) for line in found.splitlines())
    tagged = {(name, kind) for (name, kind, _), job in zip(cases, jobs, strict=True) if comments[job] != "(null)"}
    own = {(name, kind) for name, kind, _ in cases if name == "job_submit.lua"}
    assert (
        tagged == {(name, kind) for name in ("soda_routes.lua", "soda_guests.lua") for kind in ("hollow", "late")} | own
    )
    assert comment(cluster, submit(cluster, "--soda-model=vgg16")) == TAG


def test_jobs_are_taken_when_the_plugin_is_gone(cluster: ContainerCluster) -> None:
    path = "/opt/slurm-soda/lib/soda_spank.so"
    cluster.exec("root", ["mv", path, f"{path}.away"]).check()
    try:
        assert comment(cluster, submit(cluster)) == "(null)"
    finally:
        cluster.exec("root", ["mv", f"{path}.away", path]).check()
    assert comment(cluster, submit(cluster, "--soda-model=vgg16")) == "soda:1:model=vgg16"
