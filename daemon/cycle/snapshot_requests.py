"""One cycle's snapshot and plan for ``sodactl snapshot dump``: asked for through the store, left in the state directory.

Whoever may write the store may ask; only root and sodad's own user can read the answer, which names every user's jobs.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from sqlalchemy import delete, select
from sqlalchemy.exc import SQLAlchemyError

from slurm_soda.daemon.logs import LOGGER, log
from slurm_soda.daemon.store.engine import Store
from slurm_soda.daemon.store.queries import put_admin_setting
from slurm_soda.daemon.store.store_errors import StoreError
from slurm_soda.daemon.store.tables.scheduling import AdminSetting
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.policies.snapshot_file.document import SnapshotDump, write_dump
from slurm_soda.slurm_ext.errors import SodaError
from slurm_soda.slurm_ext.pools.state_files import remove_state_file, write_state_file

SETTING = "snapshot_request"
"""Key of the request among what admins set; its value is a number of :data:`_REQUEST`'s form, new for each request."""
REFUSAL = "snapshot_refusal"
"""Key of the latest request that could not be answered; its value is that number, a space and the reason."""
_MOST_CHARACTERS = 255
"""Of a setting's value."""
_REQUEST = re.compile(r"[0-9a-f]{16}")
_OWNER_ONLY = 0o600


def answer_path(state_dir: Path, request: str) -> Path:
    """Where the answer to a request is found, once it is whole."""
    return state_dir / f"snapshot-{request}.json"


@dataclass(frozen=True, slots=True)
class SnapshotRequests:
    """Answers one request at most in a cycle; a newer request takes the place of one that was not answered yet."""

    store: Store
    state_dir: Path

    def serve(
        self,
        request: str | None,
        snapshot: ClusterSnapshot,
        policy: Policy,
        plan: Plan | None = None,
        *,
        mode: str = "",
    ) -> None:
        """Write the file if somebody asked. What goes wrong with it is logged and told to who asked; it is never raised."""
        if request is None:
            return
        try:
            if self._close(request):
                self._answer(request, SnapshotDump(snapshot, policy, plan, mode, version("slurm-soda")))
        except Exception as error:  # noqa: BLE001 - a dump is not worth a cycle
            expected = isinstance(error, SodaError | SQLAlchemyError)
            reason = str(error) if isinstance(error, SodaError) else f"{type(error).__name__}: {error}"
            log(logging.WARNING if expected else logging.ERROR, "snapshot-not-written", error=reason)
            if not expected:
                LOGGER.exception("unexpected")
            self._refuse(request, reason, snapshot.now_s)

    def _close(self, request: str) -> bool:
        """End the request before it is answered, so that no mistake is made twice; whether anybody still wants it."""
        asked = (AdminSetting.key == SETTING, AdminSetting.value == request)
        with self.store.write() as session:
            wanted = session.scalar(select(AdminSetting.key).where(*asked)) is not None
            session.execute(delete(AdminSetting).where(*asked))
        return wanted

    def _refuse(self, request: str, reason: str, now_s: float) -> None:
        value = f"{request} {reason}".encode("ascii", "backslashreplace").decode("ascii")[:_MOST_CHARACTERS]
        try:
            with self.store.write() as session:
                put_admin_setting(session, REFUSAL, value, now_s=now_s, by="sodad")
        except (SQLAlchemyError, StoreError) as error:
            log(logging.ERROR, "store-unusable", error=error)

    def _answer(self, request: str, dump: SnapshotDump) -> None:
        if not _REQUEST.fullmatch(request):
            raise SodaError(f"{SETTING} = {request[:60]!r} is no request; ask with sodactl snapshot dump")
        for left in self.state_dir.glob("snapshot-*.json"):  # of a sodactl that did not wait for its answer
            remove_state_file(left)
        file = answer_path(self.state_dir, request)
        write_state_file(file, write_dump(dump).decode("ascii"), mode=_OWNER_ONLY)
        log(logging.INFO, "snapshot-written", file=file)
