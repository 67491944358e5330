"""The service and the relay, as processes that a story starts, kills and starts again."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
PATIENCE = 30.0
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


# Ends the started processes if the story itself is killed: only the story holds its stdin open.
CARETAKER = """trap '' INT TERM HUP; while read -r pid; do pids="$pids $pid"; done; kill -9 $pids"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Stage:
    """The service and the relay, while the story runs."""

    def __init__(self, pillarbox: str, python: str = sys.executable) -> None:
        self.pillarbox = pillarbox
        self.python = python
        self.service = f"http://127.0.0.1:{free_port()}"
        self.relay = f"http://127.0.0.1:{free_port()}"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.caretaker = subprocess.Popen(["sh", "-c", CARETAKER], stdin=subprocess.PIPE, bufsize=0)

    def __enter__(self) -> "Stage":
        subprocess.run([self.pillarbox, "migrate"], cwd=HERE, check=True, stdout=subprocess.DEVNULL)
        self.start_service()
        self.start_relay()
        return self

    def start_service(self) -> None:
        port = self.service.rsplit(":", 1)[1]
        # Streams never end by themselves, so uvicorn would wait for them.
        options = ["--port", port, "--log-level", "warning", "--timeout-graceful-shutdown", "1"]
        self.start("service", [self.python, "-m", "uvicorn", *options, "chat.app:app"])
        self.wait_for(f"{self.service}/openapi.json")

    def start_relay(self) -> None:
        self.start("relay", [self.pillarbox, "--log", "warn", "run", "--listen", self.relay.removeprefix("http://")])
        self.wait_for(f"{self.relay}/readyz")

    def start(self, name: str, command: list[str]) -> None:
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "CHAT_RELAYS": self.relay}
        program = subprocess.Popen(
            command, cwd=HERE, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self.running[name] = program
        self.caretaker.stdin.write(f"{program.pid}\n".encode())

    def kill(self, name: str) -> None:
        """As `kill -9` does."""
        program = self.running.pop(name)
        program.kill()
        program.wait()

    def wait_for(self, url: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            if ended := [program for program in self.running.values() if program.poll() is not None]:
                sys.exit(f"{ended[0].args} ended")
            try:
                return urllib.request.urlopen(url, timeout=PATIENCE).close()
            except OSError as error:
                if time.monotonic() > deadline:
                    sys.exit(f"{url} does not answer: {error}")
                time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        for program in self.running.values():
            program.send_signal(signal.SIGTERM)
        for program in self.running.values():
            try:
                program.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                program.kill()
        self.caretaker.kill()

    def send(
        self, session: str, text: str, project: str = "p-1", user: str = "ada", **more: object
    ) -> tuple[int, dict[str, object]]:
        """A user's request, and the service's answer."""
        request = urllib.request.Request(
            f"{self.service}/my/projects/{project}/chat/{session}/message",
            json.dumps({"text": text} | more).encode(),
            {"content-type": "application/json", "x-user-id": user, "x-correlation-id": "c-7", "traceparent": TRACE},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, {"retry_after": refused.headers["Retry-After"], **json.load(refused)}

    def settle(self) -> None:
        """Waits until no event is pending."""
        deadline = time.monotonic() + PATIENCE
        while True:
            status = json.loads(subprocess.check_output([self.pillarbox, "--json", "status"], cwd=HERE))
            if not any(status[state] for state in ("pending", "failed", "held", "delayed")):
                return
            expect(time.monotonic() < deadline, f"everything is delivered: {status}")

    def arrived(self) -> list[dict[str, object]]:
        """Everything in the stream."""
        self.settle()
        # One more event, behind all existing ones.
        self.send("the-end", "that was all")
        events: list[dict[str, object]] = []
        with urllib.request.urlopen(f"{self.relay}/v1/stream?after=0", timeout=PATIENCE) as stream:
            while not events or events[-1]["aggregate_id"] != "the-end":
                events.append(json.loads(stream.readline()))
        return events[:-1]

    def history(self, session: str, project: str = "p-1", user: str = "ada") -> list[dict[str, object]]:
        url = f"{self.service}/my/projects/{project}/chat/{session}/messages"
        with urllib.request.urlopen(urllib.request.Request(url, headers={"x-user-id": user}), timeout=PATIENCE) as answer:
            return json.load(answer)


def expect(kept: bool, promise: str) -> None:
    if not kept:
        sys.exit(f"BROKEN: {promise}")
