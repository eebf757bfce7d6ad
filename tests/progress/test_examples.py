"""The recipes: each compiles and uses flags that exist; the one in plain Python saves, resumes and tells its progress."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurm_soda.agent.sampling.progress_files import ProgressFiles
from slurm_soda.slurm_ext.hints.flags import FLAGS
from slurm_soda.wire.records import JobOpened

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TRAININGS = [folder for folder in sorted(EXAMPLES.iterdir()) if folder.is_dir() and folder.name != "serving"]
PROGRAMS = [program for folder in TRAININGS for program in sorted(folder.glob("*.py"))]
SCRIPTS = [script for folder in TRAININGS for script in sorted(folder.glob("*.sh"))]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.parent.name)
def test_programs_compile_and_use_what_the_helper_has(program: Path) -> None:
    tree = ast.parse(program.read_text())
    compile(tree, str(program), "exec")
    helper = ast.parse((ROOT / "progress" / "slurm_soda_progress.py").read_text())
    names = {node.name for node in helper.body if isinstance(node, ast.FunctionDef | ast.ClassDef)} | {"STOPPED"}
    imported = [
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "slurm_soda_progress"
    ]
    assert len(imported) == 1
    assert {alias.name for alias in imported[0].names} <= names


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_scripts_are_bash_and_their_flags_exist(script: Path) -> None:
    subprocess.run(["bash", "-n", script], check=True)
    known = {flag.option.lstrip("-") for flag in FLAGS}
    told = set(re.findall(r"--(soda-[a-z-]+)", script.read_text()))
    assert {"soda-checkpoint", "soda-share", "soda-model"} <= told <= known


def test_the_example_in_plain_python_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    for file in (EXAMPLES / "plain_python" / "train.py", ROOT / "progress" / "slurm_soda_progress.py"):
        shutil.copy(file, tmp_path)
    files = ProgressFiles(str(tmp_path))
    env = {**os.environ, "SLURM_JOB_ID": "7", "SODA_PROGRESS_DIR": str(tmp_path), "PYTHONPATH": ""}
    argv = [sys.executable, "train.py", "--iterations", "300", "--iteration-s", "0.01", "--save-every", "50"]
    restart, outputs = 0, []
    while True:
        opened = JobOpened(7, restart, "n1", os.getuid(), "alice", "gpu", 1000.0, (0,), 4)
        assert files.prepare(opened) == ""
        env["SLURM_RESTART_COUNT"] = str(restart)
        training = subprocess.Popen(argv, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True)
        if restart < 2:
            time.sleep(0.8)
            training.send_signal(signal.SIGTERM)
        out, _ = training.communicate(timeout=60)
        outputs.append(out.splitlines())
        told = files.read(opened)
        assert told is not None
        if training.returncode == 0:
            break
        assert training.returncode == 75
        assert told.iteration == told.saved > 0
        restart += 1
    saved = [int(lines[-1].split()[-1]) for lines in outputs[:-1]]
    started = [int(lines[0].split()[-1]) for lines in outputs]
    assert started == [0, *saved]
    assert 0 < saved[0] < saved[1] < 300
    assert outputs[-1][-1] == f"done after iteration 300 with {sum(range(1, 301)):.1f}"
