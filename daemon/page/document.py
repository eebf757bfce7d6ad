"""The page as one document: HTML, style and script put together once, and the policy by which only these may act.

The policy names the digests of the script and of the style, so a browser runs no other script, whatever a job is called; and
Trusted Types keep the script itself from making HTML of text.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from importlib.resources import files

_PARTS = ("elements.js", "values.js", "queue.js", "timeline.js", "job.js", "gpus.js", "changes.js", "main.js")
"""The script, in the order in which it is one."""


def _content_security_policy(script: str, style: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


def _read(name: str) -> str:
    return (files("slurm_soda.daemon.page") / "static" / name).read_text("utf-8")


def _put_together() -> tuple[bytes, str]:
    script = "'use strict';\n(() => {\n" + "".join(_read(name) for name in _PARTS) + "})();\n"
    style = _read("page.css")
    document = _read("page.html").replace("/*style*/", style).replace("/*script*/", script)
    return document.encode(), _content_security_policy(script, style)


DOCUMENT, CONTENT_SECURITY_POLICY = _put_together()
