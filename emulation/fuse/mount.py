"""A file system whose files are a model's: FUSE's wire protocol spoken with /dev/fuse itself, without libfuse.

A plain directory cannot stand in for one of the kernel's: there mkdir makes files, and writes are commands that may be
refused with an errno. Mounted privately (in namespaces of our own, reached at /proc/PID/root/MOUNT) or for everybody.
The mount ends with the process, however that ends.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import threading
from collections.abc import Callable
from pathlib import Path as File
from typing import Protocol

CLONE_NEWNS, CLONE_NEWUSER, MS_REC, MS_PRIVATE, MNT_DETACH = 0x00020000, 0x10000000, 1 << 14, 1 << 18, 2
LOOKUP, FORGET, GETATTR, SETATTR, MKDIR, UNLINK, RMDIR = 1, 2, 3, 4, 9, 10, 11
OPEN, READ, WRITE, STATFS, RELEASE, INIT, OPENDIR, READDIR, RELEASEDIR = 14, 15, 16, 17, 18, 26, 27, 28, 29
INTERRUPT, DESTROY, BATCH_FORGET, CREATE, MKNOD = 36, 38, 42, 35, 8
SILENT = {FORGET, BATCH_FORGET, INTERRUPT}
EMPTY = {RELEASE, RELEASEDIR, DESTROY}
DIRECT_IO = 1
BUFFER = 1 << 17


Path = tuple[str, ...]


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """An errno for the caller."""

    def __init__(self, code: int) -> None:
        super().__init__(errno.errorcode[code])
        self.code = code


class Model(Protocol):
    """What is in the file system; each method may raise :class:`Refusal`."""

    writable: frozenset[str]
    """Names of files that root may write."""

    def is_dir(self, path: Path) -> bool: ...
    def is_file(self, path: Path) -> bool: ...
    def list(self, path: Path) -> list[str]: ...
    def read(self, path: Path) -> str: ...
    def write(self, path: Path, data: bytes) -> None: ...
    def mkdir(self, path: Path) -> None: ...
    def rmdir(self, path: Path) -> None: ...


class Mount:
    """Answers the kernel's requests from the model, one at a time."""

    def __init__(self, kernel: Model, lock: threading.Lock) -> None:
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
            mode = stat.S_IFREG | (0o644 if path[-1] in kernel.writable else 0o444)
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


def attach_privately(point: str, name: bytes) -> int:
    """Mount in namespaces of our own; returns the device to serve."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.geteuid(), os.getegid()
    _check(libc.unshare(CLONE_NEWNS | (CLONE_NEWUSER if uid else 0)), "unshare")
    if uid:
        File("/proc/self/setgroups").write_text("deny")
        File("/proc/self/uid_map").write_text(f"0 {uid} 1")
        File("/proc/self/gid_map").write_text(f"0 {gid} 1")
    _check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "private mounts")
    return _mount(libc, point, name, "")


def attach_for_all(point: str, name: bytes) -> int:
    """Mount where this process is, for every user; what a dead server left there is taken away. Returns the device."""
    libc = ctypes.CDLL(None, use_errno=True)
    while libc.umount2(point.encode(), MNT_DETACH) == 0:
        pass
    return _mount(libc, point, name, ",allow_other,default_permissions")


def _mount(libc: ctypes.CDLL, point: str, name: bytes, options: str) -> int:
    device = os.open("/dev/fuse", os.O_RDWR)
    data = f"fd={device},rootmode=40000,user_id=0,group_id=0{options}".encode()
    _check(libc.mount(name, point.encode(), b"fuse", 0, data), "mount")
    return device


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
