"""Runs on a node in sodad's place: answers every connection with garbage, or very slowly."""

from __future__ import annotations

import os
import random
import socket
import socketserver
import sys
import time

HOW = sys.argv[1]
ANSWERS = (
    b"",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b'HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n{"orders": [{"kind": "cores"}]}',
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX-Soda-Munge: MUNGE:AwQDAAA=:\r\nContent-Length: 2\r\n\r\n{}",
)


class Impostor(socketserver.BaseRequestHandler):
    """One connection."""

    def handle(self) -> None:
        link: socket.socket = self.request
        link.recv(65536)
        answer = random.choice(ANSWERS) or os.urandom(4000)
        for byte in answer:
            link.sendall(bytes([byte]))
            time.sleep(0.2 if HOW == "slow" else 0)


class Server(socketserver.ThreadingTCPServer):
    """On the port to which the node's connections to sodad are led."""

    allow_reuse_address = daemon_threads = True


Server(("127.0.0.1", 16830), Impostor).serve_forever()
