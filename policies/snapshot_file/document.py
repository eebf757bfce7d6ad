"""The file itself: canonical JSON, compressed or not, with everything that a decision is made of."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_type_hints

from slurm_soda.policies.errors import PolicyError
from slurm_soda.policies.pipeline.stages import pipeline_of
from slurm_soda.policies.plan import Plan
from slurm_soda.policies.policy import Policy
from slurm_soda.policies.registry.catalog import find_entry, make_policy
from slurm_soda.policies.sharing.snapshot import SharingSnapshot
from slurm_soda.policies.snapshot import ClusterSnapshot
from slurm_soda.policies.snapshot_file.checks import check_snapshot
from slurm_soda.policies.snapshot_file.encoding import codec_of
from slurm_soda.policies.snapshot_file.identifiers import Word
from slurm_soda.policies.snapshot_file.sharing import (
    decode_plan,
    decode_sharing,
    encode_plan,
    encode_sharing,
    rename_plan,
    rename_sharing,
)
from slurm_soda.policies.snapshot_file.stand_ins import Names
from slurm_soda.policies.snapshot_file.values import EncodingError, Rename, unexpected

FORMAT = "slurm-soda snapshot"
VERSION = 1
MOST_BYTES = 256 * 1024 * 1024
"""A file, uncompressed, is not longer: 100 000 jobs on 10 000 nodes need 40 MB."""
_GZIP = b"\x1f\x8b"
_WITH_GZIP_HEADER = 16 + zlib.MAX_WBITS
_KEYS = ("format", "version", "made_by", "mode", "stand_ins", "policy", "snapshot", "plan")
_SHARING = "sharing"
"""A key that only files of snapshots with single GPUs have."""


@dataclass(frozen=True, slots=True)
class SnapshotDump:
    """One decision: what it was made on, by which policy, and what came out."""

    snapshot: ClusterSnapshot
    policy: Policy
    plan: Plan | None = None
    """As recorded where it was made; ``None``: nothing was decided (mode ``observe``)."""
    mode: str = ""
    made_by: str = ""
    """Version of slurm-soda."""
    stand_ins: bool = False
    """Names are not the site's own."""

    def decide(self) -> Plan:
        """What comes out here: the whole decision, as sodad makes it."""
        return pipeline_of(self.policy).decide(self.snapshot)

    def with_stand_ins(self) -> SnapshotDump:
        """The same with stand-ins for names, from which the same is decided."""
        names = Names()
        self._renamed(names.note)
        return replace(self._renamed(names.stand_ins().replace), stand_ins=True)

    def _renamed(self, rename: Rename) -> SnapshotDump:
        plan = None if self.plan is None else rename_plan(self.plan, rename)
        snapshot = codec_of(ClusterSnapshot).renamed(self.snapshot, rename)
        if isinstance(self.snapshot, SharingSnapshot):
            snapshot = rename_sharing(snapshot, self.snapshot, rename)
        return replace(self, snapshot=snapshot, plan=plan, policy=_policy_renamed(self.policy, rename))


def plan_bytes(plan: Plan) -> bytes:
    """A plan as canonical JSON: two plans are the same exactly if these bytes are."""
    return _json(encode_plan(plan))


def write_dump(dump: SnapshotDump) -> bytes:
    """The file, uncompressed.

    Raises:
        PolicyError: what is known of pairs of jobs comes from a simulation, which files do not hold.
    """
    values = (
        FORMAT,
        VERSION,
        dump.made_by,
        dump.mode,
        dump.stand_ins,
        policy_document(dump.policy),
        codec_of(ClusterSnapshot).encode(dump.snapshot),
        None if dump.plan is None else encode_plan(dump.plan),
    )
    told = dict(zip(_KEYS, values, strict=True))
    if isinstance(dump.snapshot, SharingSnapshot):
        told[_SHARING] = encode_sharing(dump.snapshot)
    return _json(told)


def compressed(raw: bytes) -> bytes:
    """The same bytes in gzip's format, without a time in it."""
    packer = zlib.compressobj(wbits=_WITH_GZIP_HEADER)
    return packer.compress(raw) + packer.flush()


def read_dump(raw: bytes) -> SnapshotDump:
    """What :func:`write_dump` wrote, compressed or not.

    Raises:
        EncodingError: it is something else, cut off, of another version, or contradicts itself.
    """
    told = _parsed(_unpacked(raw))
    if told.get("format") != FORMAT:
        raise unexpected("format", told.get("format"), f"{FORMAT!r}: this is no dump of a snapshot")
    if told.get("version") != VERSION or isinstance(told["version"], bool):
        raise unexpected("version", told.get("version"), f"{VERSION}, which alone this version of slurm-soda reads")
    for key in _KEYS:
        if key not in told:
            raise EncodingError(f"{key}: it is missing")
    kinds = (("made_by", str, "a text"), ("mode", str, "a text"), ("stand_ins", bool, "true or false"))
    for key, kind, words in kinds:
        if type(told[key]) is not kind:
            raise unexpected(key, told[key], words)
    snapshot = codec_of(ClusterSnapshot).decode(told["snapshot"], "snapshot")
    check_snapshot(snapshot)
    if told.get(_SHARING) is not None:
        snapshot = decode_sharing(snapshot, told[_SHARING])
    plan = None if told["plan"] is None else decode_plan(told["plan"])
    return SnapshotDump(
        snapshot, _policy_read(told["policy"]), plan, told["mode"], told["made_by"], stand_ins=told["stand_ins"]
    )


def _json(told: Any) -> bytes:
    return json.dumps(told, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"


def _unpacked(raw: bytes) -> bytes:
    if not raw.startswith(_GZIP):
        found = raw
    else:
        unpacker = zlib.decompressobj(_WITH_GZIP_HEADER)
        try:
            found = unpacker.decompress(raw, MOST_BYTES + 1)
        except zlib.error as error:
            raise EncodingError(f"it is damaged: {error}") from error
        if len(found) <= MOST_BYTES and not unpacker.eof:
            raise EncodingError("it is cut off: gzip's data do not end")
    if len(found) > MOST_BYTES:
        raise EncodingError(f"it is longer than {MOST_BYTES} bytes")
    return found


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        told = json.loads(raw.decode("utf-8"), parse_constant=_no_number, object_pairs_hook=_without_doubles)
    except EncodingError:
        raise
    except UnicodeDecodeError as error:
        raise EncodingError(f"byte {error.start} = {raw[error.start : error.start + 1]!r}: expected UTF-8") from error
    except RecursionError as error:
        raise EncodingError("it is nested too deeply: expected a dump of a snapshot") from error
    except json.JSONDecodeError as error:
        what = "it is cut off" if error.pos >= len(error.doc.rstrip()) else "it is not JSON"
        raise EncodingError(f"{what}: {error}") from error
    except ValueError as error:  # a number of thousands of digits
        raise EncodingError(f"it is not JSON: {error}") from error
    if not isinstance(told, dict):
        raise unexpected("the file", told, "an object")
    return told


def _no_number(word: str) -> float:
    raise EncodingError(f"{word}: expected a number, or the text nan, inf or -inf")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        double = next(name for name in names if names.count(name) > 1)
        raise EncodingError(f"{double}: it is there more than once in one object")
    return found


def _parameters(policy: Policy) -> Mapping[str, Any]:
    """The types of the policy's parameters, by name; a text is a word from a list that the policy has."""
    hints = get_type_hints(type(policy), include_extras=True)
    kinds = {parameter.name: hints[parameter.name] for parameter in find_entry(policy.name).parameters}
    return {name: Word if kind is str else kind for name, kind in kinds.items()}


def parameters_of(policy: Policy) -> dict[str, Any]:
    """A policy's parameters by name, as :func:`.make_policy` takes them."""
    return {name: getattr(policy, name) for name in _parameters(policy)}


def policy_document(policy: Policy) -> dict[str, Any]:
    """A policy as plain JSON: its name and all of its parameters."""
    told = {name: codec_of(kind).encode(getattr(policy, name)) for name, kind in _parameters(policy).items()}
    return {"name": policy.name, "parameters": told}


def _policy_renamed(policy: Policy, rename: Rename) -> Policy:
    values = {name: codec_of(kind).renamed(getattr(policy, name), rename) for name, kind in _parameters(policy).items()}
    return make_policy(policy.name, values)


def _policy_read(told: Any) -> Policy:
    if not isinstance(told, dict) or set(told) != {"name", "parameters"} or not isinstance(told["parameters"], dict):
        raise unexpected("policy", told, "an object with name and parameters")
    name, parameters = told["name"], told["parameters"]
    if not isinstance(name, str):
        raise unexpected("policy.name", name, "a text")
    try:
        kinds = _parameters(make_policy(name))
        known = {
            key: codec_of(kinds[key]).decode(each, f"policy.parameters.{key}") if key in kinds else each
            for key, each in parameters.items()
        }
        return make_policy(name, known)
    except EncodingError:
        raise
    except PolicyError as error:
        raise EncodingError(f"policy: {error}") from error
