"""Queries that come while no instance serves: they wait for a while, in HAProxy, if one is to come.

HAProxy queues queries for servers that are busy; without any that is up it answers 503 at once (configuration manual 2.6,
4.2, ``timeout queue``). So a few lines of Lua hold them back before that, as long as the router says that an instance comes.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from slurm_soda.wire.services.router_report import RouterAnswer

SCRIPT = "wait.lua"
ACTION = "wait_for_instance"
MOST_WAITING = 256
"""At a time; each holds 64 KiB or so. Further ones are answered at once, as all are where none is to come."""
ANSWER_HOLDS_S = 10.0
"""What sodad wants is taken to hold for so long."""

LIMIT_MS, LIMIT_COUNT = "SODA_WAIT_MS", "SODA_WAIT_COUNT"
"""Variables of HAProxy's own environment, which the script reads: how long a query waits, and how many do."""
SCRIPT_TEXT = """\
local limit_ms, most = tonumber(os.getenv("SODA_WAIT_MS")), tonumber(os.getenv("SODA_WAIT_COUNT"))
local seen, count = {}, 0

-- Clients that left do not say so; who waits looks twenty times a second.
local function forget_gone(now_s)
  for query, at_s in pairs(seen) do
    if now_s - at_s > 2 then
      seen[query], count = nil, count - 1
    end
  end
end

core.register_action("wait_for_instance", {"http-req"}, function(txn)
  if count >= most then
    forget_gone(core.now().sec)
    if count >= most then
      return
    end
  end
  local query, left_ms = {}, limit_ms
  seen[query], count = core.now().sec, count + 1
  while left_ms > 0 and txn.f:nbsrv("instances") == 0 and txn.f:nbsrv("coming") > 0 do
    core.msleep(50)
    left_ms = left_ms - 50
    if seen[query] then
      seen[query] = core.now().sec
    end
  end
  if seen[query] then
    seen[query], count = nil, count - 1
  end
end)
"""


@dataclass(slots=True)
class ExpectedInstances:
    """What sodad said of instances that shall run."""

    _wanted: int = 0
    _said_s: float = float("-inf")

    def take(self, answer: RouterAnswer, now_s: float) -> None:
        """An answer came."""
        self._wanted, self._said_s = answer.cpu + answer.gpu, now_s

    def any_comes(self, states: Collection[str], least: int, now_s: float) -> bool:
        """Whether it is worth waiting: an instance starts, sodad wants more than there are, or has let all go and brings one
        as soon as a query comes.

        Args:
            states: of the instances, as they are reported.
            least: instances that run whatever the load.
            now_s: by a steady clock.
        """
        if "starting" in states:
            return True
        if now_s - self._said_s > ANSWER_HOLDS_S:
            return False
        there = sum(state != "draining" for state in states)
        return self._wanted > there or (not self._wanted and not least and not there)
