"""The load that each service may see within the next minutes, from what it saw by minute until now."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from slurm_soda.daemon.services.known_service import ServiceKey
from slurm_soda.daemon.services.service_load import MINUTE_S, LoadMinute
from slurm_soda.policies.services.forecast import DAY, MOST_DAYS, LoadHistory, LoadModel, forecast_load, learn_load

LEARN_EVERY_S = 3600.0
"""Which method is right for a service is judged so often: once for one service in a cycle at most."""


@dataclass(slots=True)
class _Series:
    minute: list[int] = field(default_factory=list)
    qps: list[float] = field(default_factory=list)
    history: LoadHistory | None = None
    """Of the minutes above; ``None``: there are new ones."""
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
            series = self._series.setdefault(ServiceKey(one.owner, one.name), _Series())
            series.minute.append(int(one.at_s // MINUTE_S))
            series.qps.append(one.load_qps)
            series.history = None

    def recall(self, minutes: Mapping[ServiceKey, tuple[list[int], list[float]]]) -> None:
        """What the store has, in the place of what is known."""
        self._series = {key: _Series(*columns) for key, columns in minutes.items()}

    def tell(self, services: Collection[ServiceKey], now_s: float, steady_s: float) -> dict[ServiceKey, float]:
        """The highest load that is expected within the horizon, of services for which a method has proved itself."""
        minute, found = int(now_s // MINUTE_S), {}
        self._learn(services, steady_s)
        for key in services:
            series = self._series.get(key)
            if series is None or series.model is None:
                continue
            if series.told[0] != minute:
                forecast = forecast_load(self._history(series), series.model, minute)
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
                series.model = learn_load(self._history(series), horizon)
                return

    def _history(self, series: _Series) -> LoadHistory:
        if series.history is None:
            most = MOST_DAYS * DAY
            if len(series.minute) > 2 * most:
                series.minute, series.qps = series.minute[-most:], series.qps[-most:]
            series.history = LoadHistory.of(
                np.array(series.minute, dtype=np.int64), np.array(series.qps, dtype=np.float64)
            )
        return series.history
