"""A wrong key or type in agent.toml stops the agent with one line: file, key, what is expected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slurm_soda.agent.settings.agent_config import AgentConfig, AgentConfigError, load_agent_config
from slurm_soda.agent.settings.core_tuning import CoreTuningSettings


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("interval = 2", "unknown key 'interval'; known are controller, node, interval_s"),
        ('interval_s = "2"', "interval_s is '2'; expected a number"),
        ("interval_s = true", "interval_s is True; expected a number"),
        ("interval_s = nan", "interval_s is nan; expected a number of seconds from 0.05 to 86400"),
        ("interval_s = 0", "interval_s is 0; expected a number of seconds"),
        ("controller = 6830", "controller is 6830; expected text in quotes"),
        ('controller_user = ""', "controller_user is ''; expected a user's name or number"),
        ('controller = "ctl:6830"', "expected a URL such as http://ctl:6830"),
        ('controller = "http://c]:6830"', "controller is 'http://c]:6830'; expected a URL such as http://ctl:6830"),
        ('controller = "http://ctl:99999"', "expected a URL such as http://ctl:6830"),
        ('controller = "http://ctl:port"', "expected a URL such as http://ctl:6830"),
        ("controllers = 'http://ctl:6830'", "controllers is 'http://ctl:6830'; expected a list of texts in quotes"),
        ("controllers = [6830]", "controllers is [6830]; expected a list of texts in quotes"),
        ('controllers = ["http://c1:6830", "c2"]', "controllers has 'c2'; expected URLs such as http://ctl1:6830"),
        (f"controllers = {['http://c:1'] * 9}", "controllers has 9; expected 8 at most"),
        ("spool_files = 1.5", "spool_files is 1.5; expected a whole number"),
        ("spool_files = 1", "expected a whole number from 64"),
        *(
            (f'{key} = "{path}"', f"{key} is {path!a}; expected a path that begins with /")
            for key in ("socket", "spool", "cgroup_root", "progress", "state")
            for path in ("", "slurm-soda")
        ),
        ('log_level = "loud"', "expected one of debug, info, warning, error"),
        ("[agent]\ninterval_s = 2", "unknown key 'agent'"),
        ("interval_s = ", "cannot be read"),
        ("cores = true", "cores is True; expected a table [cores]"),
        ("[cores]\nstep = 60", "unknown key 'cores.step'; known are enabled, step_s"),
        ("[cores]\nenabled = 1", "cores.enabled is 1; expected true or false"),
        ("[cores]\nstep_s = 0.01\nsample_s = 0.001", "cores.step_s is 0.01; expected a number of seconds"),
        ("[cores]\nstep_s = 1", "cores.step_s is 1 and cores.sample_s 1; a step needs three samples"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    with pytest.raises(AgentConfigError) as caught:
        load_agent_config(path, {})
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_defaults_file_and_environment(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    assert load_agent_config(path, {}) == AgentConfig()
    path.write_text('controller = "https://soda:1"\ninterval_s = 1\n')
    assert load_agent_config(path, {}).controller == "https://soda:1"
    changed = load_agent_config(path, {"SODA_AGENT_CONTROLLER": "http://other:2", "SODA_AGENT_HEARTBEAT_S": "9.5"})
    assert (changed.controller, changed.interval_s, changed.heartbeat_s) == ("http://other:2", 1, 9.5)
    with pytest.raises(AgentConfigError, match="environment: SODA_AGENT_INTERVAL_S is 'soon'; expected a number"):
        load_agent_config(path, {"SODA_AGENT_INTERVAL_S": "soon"})
    path.write_text("[cores]\nenabled = true\nstep_s = 30\n")
    assert load_agent_config(path, {}).cores == CoreTuningSettings(enabled=True, step_s=30)
    assert load_agent_config(path, {"SODA_AGENT_CORES_ENABLED": "false"}).cores == CoreTuningSettings(step_s=30)
    with pytest.raises(AgentConfigError, match="environment: SODA_AGENT_CORES_ENABLED is 'no'; expected true or false"):
        load_agent_config(path, {"SODA_AGENT_CORES_ENABLED": "no"})
    with pytest.raises(AgentConfigError, match="there is no such file"):
        load_agent_config(tmp_path / "none", {}, required=True)


def test_the_command_says_it_in_one_line_and_leaves(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text("intervall_s = 2\n")
    argv = [sys.executable, "-m", "slurm_soda.agent.main", "--config", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"soda-agent: {path}: unknown key 'intervall_s'")
    assert done.stderr.count("\n") == 1


def test_several_controllers_from_the_file_and_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "agent.toml"
    path.write_text('controllers = ["http://c1:6830", "http://c2:6830"]\n')
    assert load_agent_config(path, {}).controllers == ("http://c1:6830", "http://c2:6830")
    environ = {"SODA_AGENT_CONTROLLERS": "http://c3:1, http://c4:2"}
    assert load_agent_config(path, environ).controllers == ("http://c3:1", "http://c4:2")
