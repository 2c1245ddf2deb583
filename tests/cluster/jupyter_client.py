"""A client of Jupyter, run with its own packages: HOST TOKEN CODE. It prints what the code prints in a new kernel."""

import json
import sys
import urllib.request
import uuid
from typing import Any

import websocket  # type: ignore[import-not-found]

host, token, code = sys.argv[1:]
headers = {"Authorization": f"token {token}"}
request = urllib.request.Request(f"http://{host}/api/kernels", data=b"{}", headers=headers, method="POST")
with urllib.request.urlopen(request) as answer:  # noqa: S310
    kernel = json.load(answer)["id"]
session = uuid.uuid4().hex
channels = websocket.create_connection(f"ws://{host}/api/kernels/{kernel}/channels", header=headers)
header = {
    "msg_id": uuid.uuid4().hex,
    "username": "",
    "session": session,
    "msg_type": "execute_request",
    "version": "5.3",
}
content = {"code": code, "silent": False}
message: dict[str, Any] = {
    "header": header,
    "parent_header": {},
    "metadata": {},
    "content": content,
    "channel": "shell",
}
channels.send(json.dumps(message))
while (said := json.loads(channels.recv())).get("msg_type") != "execute_reply":
    if said["msg_type"] == "stream":
        sys.stdout.write(said["content"]["text"])
