"""On what ``simulate`` and ``compare`` ran, as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from slurm_soda.simulator.node.node_rules import NodeRules
from slurm_soda.simulator.runs.policy_choice import PolicyChoice
from slurm_soda.simulator.sharing.sharing_rules import SharingRules
from slurm_soda.sodactl.simulation.inputs.scenario_input import ScenarioInput
from slurm_soda.sodactl.simulation.inputs.scenario_options import ScenarioOptions


def run_settings_document(
    asked: ScenarioOptions, scenario_input: ScenarioInput, choices: Sequence[PolicyChoice]
) -> dict[str, Any]:
    """On what was simulated, as plain data."""
    scenario = scenario_input.first
    return {
        "source": scenario_input.source,
        "trace": None if asked.trace is None else str(asked.trace),
        "format": scenario_input.format,
        "workload": scenario.workload.name,
        "cluster": scenario.cluster.name,
        "nodes": len(scenario.cluster),
        "gpus": scenario.cluster.total_gpus,
        "costs": {
            "start_s": asked.start_cost_s,
            "restart_s": asked.restart_cost_s,
            "checkpoint_s": asked.checkpoint_cost_s,
            "round_s": asked.round_s,
            "checkpoint_every_s": asked.checkpoint_every_s if math.isfinite(asked.checkpoint_every_s) else None,
        },
        "cost_spread": asked.cost_spread,
        "learn_costs": asked.learn_costs,
        "max_preemptions": asked.max_preemptions,
        "passing_limit_s": asked.passing_limit_s if math.isfinite(asked.passing_limit_s) else None,
        "placement": asked.placement,
        "node_rules": _rules(scenario.nodes),
        "systems": {
            choice.label: {"policy": choice.name, **(_rules(choice.nodes) or {})} for choice in choices if choice.system
        },
        "can_checkpoint": asked.can_checkpoint,
        "consent": asked.consent,
        "site": None if asked.site is None else str(asked.site),
        "bands": scenario.site.bands,
        "max_gpus_per_user": asked.max_gpus_per_user,
        "estimates": asked.estimates,
        "history": None if asked.history is None else str(asked.history),
        "learn_days": asked.learn_days,
        "profiles": None if asked.profiles is None else str(asked.profiles),
        "spread_knowledge": scenario.spread_knowledge,
        "pairs": None if asked.pairs is None else str(asked.pairs),
        "sharing": _sharing(asked, scenario.sharing),
        "serving": None if scenario.services is None else {"services": asked.services, "serve": asked.serve},
        "node_failures": len(scenario.cluster.failures),
        "parameters": {choice.label: dict(choice.parameters) for choice in choices},
        "skipped": [
            {"file": file, "line": entry.line, "reason": entry.reason, "value": entry.value}
            for file, entry in scenario_input.skipped
        ],
        "unused": dict(scenario_input.unused),
        "notes": list(scenario_input.notes),
    }


def _rules(rules: NodeRules | None) -> dict[str, Any] | None:
    if rules is None:
        return None
    curves = None if rules.curves is None else str(rules.curves)
    return {"cores": rules.cores, "eliminates": rules.eliminates, "core_curves": curves}


def _sharing(asked: ScenarioOptions, rules: SharingRules | None) -> dict[str, Any] | None:
    if rules is None:
        return None
    return {
        "gpu": rules.gpu,
        "pair_slowdown": rules.slowdown,
        "model_map": None if asked.model_map is None else str(asked.model_map),
        "knowledge": rules.knowledge,
        "predictor": None if asked.predictor is None else str(asked.predictor),
        "pair_guess": asked.pair_guess,
        "observes": rules.observes,
        "max_slowdown": asked.max_slowdown,
        "parts": rules.parts,
        "mechanism": rules.mechanism.name,
    }
