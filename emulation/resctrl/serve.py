"""A resctrl file system without the hardware: the model of kernel.py behind a real mount.

A plain directory cannot stand in for resctrl: its mkdir makes files, its writes are commands that may be refused with an
errno. So this speaks FUSE's wire protocol with /dev/fuse itself (no libfuse), mounts in a mount namespace of its own
(as root, or in a user namespace), and is reached at /proc/PID/root/MOUNT. The mount ends with the process, however
that ends.

    python serve.py MOUNT_POINT '{"closids": 4}'

prints ``{"mount": PATH}`` or ``{"refused": WHY}``, then answers one JSON command a line: see ``Control``.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import stat
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path as File

sys.path.insert(0, str(File(__file__).parent))
from kernel import Kernel, Path, Refusal, Setup

CLONE_NEWNS, CLONE_NEWUSER, MS_REC, MS_PRIVATE = 0x00020000, 0x10000000, 1 << 14, 1 << 18
LOOKUP, FORGET, GETATTR, SETATTR, MKDIR, UNLINK, RMDIR = 1, 2, 3, 4, 9, 10, 11
OPEN, READ, WRITE, STATFS, RELEASE, INIT, OPENDIR, READDIR, RELEASEDIR = 14, 15, 16, 17, 18, 26, 27, 28, 29
INTERRUPT, DESTROY, BATCH_FORGET, CREATE, MKNOD = 36, 38, 42, 35, 8
SILENT = {FORGET, BATCH_FORGET, INTERRUPT}
EMPTY = {RELEASE, RELEASEDIR, DESTROY}
DIRECT_IO = 1
BUFFER = 1 << 17


class Mount:
    """Answers the kernel's requests from the model, one at a time."""

    def __init__(self, kernel: Kernel, lock: threading.Lock) -> None:
        self._kernel, self._lock = kernel, lock
        self._paths: dict[int, Path] = {1: ()}
        self._ids: dict[Path, int] = {(): 1}
        self._texts: dict[int, bytes] = {}
        self._fh = 0
        self._answers: dict[int, Callable[[Path, bytes], bytes]] = {
            INIT: self._init,
            LOOKUP: lambda path, body: self._entry((*path, _name(body))),
            GETATTR: lambda path, body: struct.pack("<QII", 0, 0, 0) + self._attr(path),
            SETATTR: lambda path, body: struct.pack("<QII", 0, 0, 0) + self._attr(path),
            MKDIR: self._mkdir,
            RMDIR: self._rmdir,
            OPEN: self._open,
            OPENDIR: self._open,
            READ: self._read,
            READDIR: self._readdir,
            WRITE: self._write,
            STATFS: lambda path, body: bytes(80),
        }

    def serve(self, device: int) -> None:
        while True:
            try:
                request = os.read(device, BUFFER + 4096)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return
            _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
            if opcode in SILENT:
                continue
            code, answer = self._answer(opcode, node, request[40:])
            os.write(device, struct.pack("<IiQ", 16 + len(answer), -code, unique) + answer)

    def _answer(self, opcode: int, node: int, body: bytes) -> tuple[int, bytes]:
        if opcode in EMPTY:
            return 0, b""
        if opcode in (CREATE, MKNOD):
            return errno.EACCES, b""
        if opcode == UNLINK:
            return errno.EPERM, b""
        take = self._answers.get(opcode)
        if take is None:
            return errno.ENOSYS, b""
        with self._lock:
            try:
                return 0, take(self._paths.get(node, ("?",)), body)
            except Refusal as refusal:
                return refusal.code, b""

    def _init(self, path: Path, body: bytes) -> bytes:
        return struct.pack("<IIIIHHIIHHI", 7, 31, 0, 0, 1, 1, BUFFER, 1, 0, 0, 0).ljust(64, b"\0")

    def _attr(self, path: Path) -> bytes:
        kernel = self._kernel
        if kernel.is_dir(path):
            mode = stat.S_IFDIR | 0o755
        elif kernel.is_file(path):
            mode = stat.S_IFREG | (0o644 if path[-1] in ("tasks", "schemata", "mode", "cpus", "cpus_list") else 0o444)
        else:
            raise Refusal(errno.ENOENT)
        return struct.pack("<6Q10I", self._id(path), 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _entry(self, path: Path) -> bytes:
        attr = self._attr(path)
        return struct.pack("<QQQQII", self._id(path), 0, 0, 0, 0, 0) + attr

    def _id(self, path: Path) -> int:
        if path not in self._ids:
            self._ids[path] = len(self._ids) + 1
            self._paths[self._ids[path]] = path
        return self._ids[path]

    def _mkdir(self, path: Path, body: bytes) -> bytes:
        self._kernel.mkdir((*path, _name(body[8:])))
        return self._entry((*path, _name(body[8:])))

    def _rmdir(self, path: Path, body: bytes) -> bytes:
        self._kernel.rmdir((*path, _name(body)))
        return b""

    def _open(self, path: Path, body: bytes) -> bytes:
        self._attr(path)
        self._fh += 1
        return struct.pack("<QII", self._fh, DIRECT_IO, 0)

    def _read(self, path: Path, body: bytes) -> bytes:
        fh, offset, size = struct.unpack_from("<QQI", body)
        if not offset:
            self._texts = {fh: self._kernel.read(path).encode("ascii")}
        return self._texts.get(fh, b"")[offset : offset + size]

    def _readdir(self, path: Path, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        out = b""
        for index, name in enumerate([".", "..", *self._kernel.list(path)]):
            if index < offset:
                continue
            raw = name.encode()
            kind = 4 if name in (".", "..") or self._kernel.is_dir((*path, name)) else 8
            entry = struct.pack("<QQII", self._id((*path, name)), index + 1, len(raw), kind) + raw
            entry += bytes(-len(entry) % 8)
            if len(out) + len(entry) > size:
                break
            out += entry
        return out

    def _write(self, path: Path, body: bytes) -> bytes:
        size = struct.unpack_from("<QQI", body)[2]
        self._kernel.write(path, body[40 : 40 + size])
        return struct.pack("<II", size, 0)


def _name(body: bytes) -> str:
    return body.split(b"\0", 1)[0].decode()


class Control:
    """The machine's side, which no file shows: threads, time, and what goes wrong."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def take(self, command: dict[str, object]) -> object:
        kernel = self._kernel
        do, value = next(iter(command.items()))
        if do == "run":  # {"run": {"TID": {"DOMAIN": bytes/s}}}
            for task, wants in value.items():
                kernel.run(int(task), {int(d): float(v) for d, v in wants.items()})
        elif do == "end":  # {"end": [TID, …]}
            for task in value:
                kernel.end(task)
        elif do == "advance":  # {"advance": seconds}
            kernel.advance(value)
        elif do == "say":  # {"say": {"GROUP PATH": "Unavailable"}}, "" for numbers again
            for path, word in value.items():
                kernel.groups[tuple(filter(None, path.split("/")))].said = word
        elif do in (
            "vanish",
            "vanish_read",
        ):  # {"vanish": NAME}: that group goes at the next write to it, or reading of it
            (kernel.vanish if do == "vanish" else kernel.vanish_read).add(value)
        elif do == "limbo":  # {"limbo": true}
            kernel.limbo = value
        elif do == "restart_counters":  # {"restart_counters": "GROUP PATH"}
            group = kernel.groups[tuple(filter(None, value.split("/")))]
            group.counted = dict.fromkeys(group.counted, 0.0)
        elif do == "reset":  # {"reset": {SETUP}}: a fresh machine under the same mount
            kernel.__init__(Setup(**value))
        elif do == "look":  # {"look": null}: everything
            return {
                "log": kernel.log,
                "groups": {
                    "/".join(p): {"tasks": sorted(g.tasks), "mb": list(g.mb.values()), "l3": list(g.l3.values())}
                    for p, g in kernel.groups.items()
                },
            }
        return None


def attach(point: str) -> int:
    """Mount in namespaces of our own; returns the device to serve."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.geteuid(), os.getegid()
    _check(libc.unshare(CLONE_NEWNS | (CLONE_NEWUSER if uid else 0)), "unshare")
    if uid:
        File("/proc/self/setgroups").write_text("deny")
        File("/proc/self/uid_map").write_text(f"0 {uid} 1")
        File("/proc/self/gid_map").write_text(f"0 {gid} 1")
    _check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "private mounts")
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    _check(libc.mount(b"resctrl", point.encode(), b"fuse", 0, options), "mount")
    return device


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def _say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Mount, then take commands until the input ends."""
    point = str(File(sys.argv[1]).resolve())
    kernel = Kernel(Setup(**json.loads(sys.argv[2] if len(sys.argv) > 2 else "{}")))
    lock = threading.Lock()
    try:
        device = attach(point)
    except OSError as error:
        _say({"refused": f"no FUSE mount here: {error}"})
        return
    threading.Thread(target=Mount(kernel, lock).serve, args=(device,), daemon=True).start()
    _say({"mount": f"/proc/{os.getpid()}/root{point}"})
    control = Control(kernel)
    for line in sys.stdin:
        with lock:
            answer = control.take(json.loads(line))
        _say(answer)


if __name__ == "__main__":
    main()
