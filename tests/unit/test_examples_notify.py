"""The examples of programs for `notify`, each against a small server that speaks its protocol."""

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.records import notify
from tests.waiting import until

EXAMPLES = Path(__file__).parents[2] / "examples/notify"
ECC = "slurm_plugin: gpu-ecc: 2 < 3 & more [job 7]"


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    """Run a server in a thread."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Posts:
    """An HTTP server that refuses a body for which `judge` returns a message, as Slack and Alertmanager do."""

    def __init__(self, judge: Callable[[Any], str]) -> None:
        self.bodies: list[Any] = []
        self.refused: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                wrong = judge(body) if self.headers["Content-Type"] == "application/json" else "no JSON"
                (outer.refused if wrong else outer.bodies).append(wrong or body)
                self.send_response(400 if wrong else 200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def copy(directory: Path, name: str, old: str, new: str) -> dict[str, Any]:
    """Copy an example as an admin does, with another value. Return the settings of a site that names it."""
    text = (EXAMPLES / name).read_text()
    assert old in text
    (directory / name).write_text(text.replace(old, new))
    (directory / name).chmod(0o755)
    return {"notify": str(directory / name), "prechecks": {"state": str(directory / "run/state")}}


def slack(body: Any) -> str:
    """Judge a message as an incoming webhook does: an object with a text."""
    fine = isinstance(body, dict) and isinstance(body.get("text"), str) and body["text"]
    return "" if fine else "invalid_payload"


def alertmanager(body: Any) -> str:
    """Judge `postableAlerts` as Alertmanager's API v2 does: string labels, times with a zone, begin before end."""
    for alert in body:
        texts = [*alert["labels"].items(), *alert.get("annotations", {}).items()]
        if not alert["labels"].get("alertname") or not all(isinstance(text, str) for pair in texts for text in pair):
            return "bad labels"
        start, end = (datetime.fromisoformat(alert[key]) if key in alert else None for key in ("startsAt", "endsAt"))
        if (start and not start.tzinfo) or (end and not end.tzinfo) or (start and end and end < start):
            return "bad times"
    return "" if body else "no alerts"


def test_slack(tmp_path: Path) -> None:
    """One message; the characters that Slack interprets are replaced."""
    posts = Posts(slack)
    told = copy(tmp_path, "slack", "https://hooks.example.org", posts.url)
    with serving(posts.server):
        notify.tell(told, "drained", "n2", ECC)
        until(lambda: posts.bodies or posts.refused)
    said = "*n2* drained: slurm_plugin: gpu-ecc: 2 &lt; 3 &amp; more [job 7] (action: replace)"
    assert (posts.refused, posts.bodies) == ([], [{"text": said}])


def test_alertmanager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain raises an alert for a month. The resume has the same labels, and ends it now. A hold is an alert."""
    monkeypatch.setattr(notify, "GROUP_S", 0)
    posts = Posts(alertmanager)
    told = copy(tmp_path, "alertmanager", "http://localhost:9093", posts.url)
    with serving(posts.server):
        for number, event in enumerate(("drained", "resumed"), 1):
            notify.tell(told, event, "n2", ECC)
            until(lambda number=number: len(posts.bodies) == number or posts.refused)  # type: ignore[misc]
        notify.of_job(told["notify"], "hold", 7, "held")
        until(lambda: len(posts.bodies) == 3 or posts.refused)
    assert posts.refused == []
    (raised,), (ended,), (held,) = posts.bodies
    labels = {"alertname": "slurm_plugin_drained", "node": "n2"}
    assert raised["labels"] == ended["labels"] == labels
    assert raised["annotations"] == {"summary": ECC, "action": "replace", "items": "gpu-ecc"}
    assert (datetime.fromisoformat(raised["endsAt"]) - datetime.now(UTC)).days >= 29
    assert datetime.fromisoformat(ended["endsAt"]) <= datetime.now(UTC)
    assert held["labels"] == {"alertname": "slurm_plugin_hold", "job": "7"}


def test_mail(tmp_path: Path) -> None:
    """One mail by SMTP, to the site's address."""
    sent: list[str] = []

    class Smtp(socketserver.StreamRequestHandler):
        """Speak RFC 5321 as far as one mail needs it."""

        def handle(self) -> None:
            self.wfile.write(b"220 mail.example.org\r\n")
            for line in self.rfile:
                verb = line[:4].upper()
                sent.append(line.decode().rstrip())
                if verb == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    while (text := self.rfile.readline()) != b".\r\n":
                        sent.append(text.decode().rstrip())
                self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")
                if verb == b"QUIT":
                    break

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Smtp)
    told = copy(tmp_path, "mail", '"localhost", 25', f'"127.0.0.1", {server.server_address[1]}')
    with serving(server):
        notify.tell(told, "drained", "n2", ECC)
        until(lambda: any(line.upper() == "QUIT" for line in sent))
    assert "Subject: n2: drained, replace" in sent
    assert f"drained: {ECC}" in sent
    assert any(line.lower().startswith("rcpt to:<admins@example.org>") for line in sent)
