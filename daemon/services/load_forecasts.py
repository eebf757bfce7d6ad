"""The load that each service may see within the next minutes, from what it saw by minute until now."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np

from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.daemon.services.service_load import MINUTE_S, LoadMinute
from slurm_soda.policies.services.forecast import LoadHistory, LoadModel, forecast_load, learn_load

LEARN_EVERY_S = 3600.0
"""Which method is right for a service is judged so often: once for one service in a cycle at most."""


@dataclass(slots=True)
class _Series:
    history: LoadHistory
    model: LoadModel | None = None
    learned_s: float = -math.inf
    """By the steady clock."""
    told: tuple[int, float] = (-1, math.nan)
    """The last forecast, and of which minute it is."""


@dataclass(slots=True)
class LoadForecasts:
    """Forecasts of all services of one daemon."""

    horizon_s: float = 600.0
    _series: dict[ServiceKey, _Series] = field(default_factory=dict)

    def add(self, minutes: Iterable[LoadMinute]) -> None:
        """Take in minutes that are over."""
        for one in minutes:
            key, minute = ServiceKey(one.owner, one.name), int(one.at_s // MINUTE_S)
            known = self._series.get(key)
            if known is None:
                self._series[key] = _Series(LoadHistory(minute, np.array([one.load_qps])))
            else:
                known.history = known.history.with_minute(minute, one.load_qps)

    def recall(self, histories: Iterable[tuple[ServiceKey, LoadHistory]]) -> None:
        """What the store has, in the place of what is known."""
        self._series = {key: _Series(history) for key, history in histories}

    def forget(self, services: Iterable[ServiceKey]) -> None:
        """These are not known any more."""
        for key in services:
            self._series.pop(key, None)

    def tell(self, services: Collection[ServiceKey], now_s: float, steady_s: float) -> dict[ServiceKey, float]:
        """The highest load that is expected within the horizon, of services for which a method has proved itself."""
        minute, found = int(now_s // MINUTE_S), {}
        self._learn(services, steady_s)
        for key in services:
            series = self._series.get(key)
            if series is None or series.model is None:
                continue
            if series.told[0] != minute:
                forecast = forecast_load(series.history, series.model, minute)
                series.told = minute, forecast.most_qps if math.isfinite(forecast.error_ratio) else math.nan
            if not math.isnan(series.told[1]):
                found[key] = series.told[1]
        return found

    def _learn(self, services: Collection[ServiceKey], steady_s: float) -> None:
        horizon = max(math.ceil(self.horizon_s / MINUTE_S), 1)
        for key in services:
            series = self._series.get(key)
            if series is not None and steady_s - series.learned_s >= LEARN_EVERY_S:
                series.learned_s = steady_s
                series.model = learn_load(series.history, horizon)
                return
