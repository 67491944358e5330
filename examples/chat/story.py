"""Runs the chat with Pillarbox and prints what happens. With --once it compares what was committed with what arrived, and
its exit code is the verdict."""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from uuid import UUID, uuid4

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

    def __init__(self, pillarbox: str) -> None:
        self.pillarbox = pillarbox
        self.service = f"http://127.0.0.1:{free_port()}"
        self.relay = f"http://127.0.0.1:{free_port()}"
        self.running: list[subprocess.Popen[bytes]] = []
        self.caretaker = subprocess.Popen(["sh", "-c", CARETAKER], stdin=subprocess.PIPE, bufsize=0)

    def __enter__(self) -> "Stage":
        subprocess.run([self.pillarbox, "migrate"], cwd=HERE, check=True, stdout=subprocess.DEVNULL)
        port = self.service.rsplit(":", 1)[1]
        self.start([sys.executable, "-m", "uvicorn", "--port", port, "--log-level", "warning", "chat.app:app"])
        self.start([self.pillarbox, "--log", "warn", "run", "--listen", self.relay.removeprefix("http://")])
        self.wait_for(f"{self.service}/openapi.json")
        self.wait_for(f"{self.relay}/readyz")
        return self

    def start(self, command: list[str]) -> None:
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
        program = subprocess.Popen(
            command, cwd=HERE, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        self.running.append(program)
        self.caretaker.stdin.write(f"{program.pid}\n".encode())

    def wait_for(self, url: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while True:
            if ended := [program for program in self.running if program.poll() is not None]:
                sys.exit(f"{ended[0].args} ended")
            try:
                return urllib.request.urlopen(url, timeout=PATIENCE).close()
            except OSError as error:
                if time.monotonic() > deadline:
                    sys.exit(f"{url} does not answer: {error}")
                time.sleep(0.05)

    def __exit__(self, *_: object) -> None:
        for program in self.running:
            program.send_signal(signal.SIGTERM)
        for program in self.running:
            try:
                program.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                program.kill()
        self.caretaker.kill()

    def send(self, session: str, text: str, project: str = "p-1", **more: object) -> tuple[int, dict[str, object]]:
        """A user's request, and the service's answer."""
        request = urllib.request.Request(
            f"{self.service}/my/projects/{project}/chat/{session}/message",
            json.dumps({"text": text} | more).encode(),
            {"content-type": "application/json", "x-user-id": "ada", "x-correlation-id": "c-7", "traceparent": TRACE},
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
        with urllib.request.urlopen(f"{self.relay}/v1/stream?from=1", timeout=PATIENCE) as stream:
            while not events or events[-1]["aggregate_id"] != "the-end":
                events.append(json.loads(stream.readline()))
        return events[:-1]

    def history(self, session: str) -> list[dict[str, object]]:
        with urllib.request.urlopen(f"{self.service}/my/projects/p-1/chat/{session}/messages", timeout=PATIENCE) as answer:
            return json.load(answer)


def told(stage: Stage) -> list[str]:
    """Sends messages, some of which are refused. Returns the ids of the committed messages, in order."""
    committed: list[str] = []
    for n in range(5):
        for session in ("s-1", "s-2"):
            status, answer = stage.send(session, f"message {n}: grüß dich")
            expect(status == 201, f"a message is taken: {status} {answer}")
            committed.append(str(answer["id"]))
    print(f"{len(committed)} messages were sent, in two sessions.")

    again = str(uuid4())
    statuses = [stage.send("s-1", "sent twice", id=again)[0] for _ in range(2)]
    expect(statuses == [201, 200], f"a request that is sent again is answered the same: {statuses}")
    committed.append(again)
    print("One request was sent twice, with the same id.")

    status, answer = stage.send("s-1", "a reply to nothing", reply_to=str(UUID(int=0)))
    expect(status == 409, f"the transaction is rolled back: {status} {answer}")
    print("One transaction was rolled back, after its message and its event were written.")

    status, answer = stage.send("s-1", "too long a name", project="p" * 300)
    expect(status == 422, f"an event that can't be sent is refused: {status} {answer}")
    expect(answer["detail"] == "project_id has 300 bytes; 255 are allowed", f"in words: {answer}")
    print(f"One was refused: {answer['detail']}.")
    return committed


def judge(stage: Stage, committed: list[str]) -> None:
    events = stage.arrived()
    count = Counter(str(event["id"]) for event in events)
    expect(count == Counter(committed), f"every committed message arrived once and nothing else did: {count}")
    for session in ("s-1", "s-2"):
        of_session = [event for event in events if event["aggregate_id"] == session]
        expect([e["id"] for e in of_session] == [m["id"] for m in stage.history(session)], f"in order: {session}")
    for event in events:
        payload = event["payload"]
        expect(payload["id"] == event["id"] and payload["session_id"] == event["aggregate_id"], f"the payload: {event}")
        expect((event["event_type"], event["aggregate_type"]) == ("message_created", "chat_session"), f"types: {event}")
        expect((event["project_id"], event["user_id"]) == ("p-1", "ada"), f"its scope: {event}")
        expect(event["headers"] == {"correlation-id": "c-7", "traceparent": TRACE}, f"its headers: {event}")
    print(f"{len(events)} events were committed, and each arrived once, in the order of its session.")


def expect(kept: bool, promise: str) -> None:
    if not kept:
        sys.exit(f"BROKEN: {promise}")


def end_with_stdin() -> None:
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--pillarbox", default="pillarbox", help="the program")
    arguments.add_argument("--once", action="store_true", help="end with a verdict")
    arguments.add_argument("--until-stdin-ends", action="store_true", help="end when whoever started this has ended")
    given = arguments.parse_args()
    # So that the started processes end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if given.until_stdin_ends:
        threading.Thread(target=end_with_stdin, daemon=True).start()
    with Stage(given.pillarbox) as stage:
        committed = told(stage)
        judge(stage, committed)
        if given.once:
            return
        print(f"The service: {stage.service}/docs. Its events: curl -N {stage.relay}/v1/stream (Ctrl-C ends it)", flush=True)
        try:
            while True:
                stage.send("s-1", time.strftime("it is %H:%M:%S"))
                time.sleep(1)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
