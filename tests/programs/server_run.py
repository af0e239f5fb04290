"""What server_test.py builds on: processes of lab 11's program, a run of its server, and the judge of what it has
written.
"""
import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time

LIMIT_S = 120  # for anything that must happen: machines may be busy
PATIENCE_S = 2  # of a server with silent workers; far longer than a gradient takes, on a busy machine, too
ITEMS = 240  # of a run
OPTIONS = {
    "--dim": 16, "--heads": 2, "--layers": 1, "--context": 32, "--threads": 1, "--optimizer": "sgd", "--lr": 0.1,
    "--warmup": 0, "--decay": "constant", "--story-tokens": 0, "--validate-every": 0, "--validation-batches": 1,
    "--checkpoint-every": 5}
GONE = "is gone: start it again with --resume, which continues from its newest checkpoint, and then its workers"


class Failed(Exception):
    pass


def expect(condition, message):
    if not condition:
        raise Failed(message)


def within(seconds, what, happened):
    """Polls until `happened` returns something; that is the result."""
    deadline = time.monotonic() + seconds
    while not (result := happened()):
        expect(time.monotonic() < deadline, f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.01)
    return result


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


class Process:
    """A program that ends with the test, even if that is killed."""

    def __init__(self, folder, cleanup, command, terminal=None):
        self.log = pathlib.Path(tempfile.mkstemp(prefix="log.", dir=folder)[1])
        self.errors = self.log.with_suffix(".errors")
        with open(self.log, "wb") as out, open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *map(str, command)], cwd=folder, stdin=subprocess.DEVNULL,
                stdout=terminal or out, stderr=errors, start_new_session=True)
        self.pid = self.process.pid
        cleanup.callback(self.end)

    def end(self):
        self.process.kill()
        self.process.wait()

    def said(self):
        return self.log.read_text(errors="replace") + self.errors.read_text(errors="replace")

    def ended(self, seconds=LIMIT_S):
        """Its exit code."""
        within(seconds, lambda: f"the end of process {self.pid}: {self.said()}",
               lambda: self.process.poll() is not None)
        return self.process.returncode

    def fails(self, pattern, seconds=LIMIT_S):
        """It ends in time with an error code and one line that says why."""
        status = self.ended(seconds)
        lines = self.errors.read_text(errors="replace").splitlines()
        expect(status == 1 and len(lines) == 1 and re.search(pattern, lines[0]),
               f"expected exit code 1 and one line with '{pattern}', not {status} and {lines}")


class Run:
    """A folder with a run: its server, and the workers that the test adds to those that the server has started."""

    def __init__(self, program, data, cleanup, gradients=2, staleness=2, steps=None):
        self.program, self.cleanup = program, cleanup
        self.gradients, self.staleness, self.steps = gradients, staleness, steps or ITEMS // gradients
        self.items = self.gradients * self.steps
        self.folder = pathlib.Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="server-test.")))
        self.options = {**OPTIONS, "--data": data / "stories.txt", "--cache": data / "cache", "--steps": self.steps,
                        "--gradients": gradients, "--staleness": staleness}
        self.out = self.folder / "run"
        self.server, self.address, self.joined = None, "", []

    def start(self, *flags, terminal=None, **options):
        words = [word for pair in {**self.options, **options}.items() for word in pair]
        return Process(self.folder, self.cleanup, [self.program, *words, *flags], terminal)

    def undisturbed(self):
        """The losses of as many updates in one process, where nobody dies."""
        out = self.folder / "undisturbed"
        process = self.start("--workers", self.gradients, "--out", out)
        expect(process.ended() == 0, process.said())
        return losses(out)

    def serve(self, *flags):
        self.server = self.start("--server", "--out", self.out, *flags)

        def address():
            expect(self.server.process.poll() is None, self.server.said())
            return re.search(r"^server +([\d.]+:\d+);", self.server.log.read_text(errors="replace"), re.M)

        self.address = within(LIMIT_S, "the server's address", address)[1]
        return self

    def work(self, *flags):
        self.joined.append(self.start("--work-for", self.address, *flags))
        return self.joined[-1]

    def own_workers(self):
        """Those that the server has started: their process ids by number."""
        workers = {}
        with contextlib.suppress(OSError):
            for pid in pathlib.Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children").read_text().split():
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
                if "--worker" in words and alive(int(pid)):
                    workers[int(words[words.index("--worker") + 1])] = int(pid)
        return workers

    def recorded(self):
        """The complete lines of the file so far."""
        with contextlib.suppress(OSError):
            return (self.out / "gradients.jsonl").read_text().rpartition("\n")[0]
        return ""

    def record(self):
        return [json.loads(line) for line in self.recorded().splitlines()]

    def count(self):
        """How many gradients have counted so far."""
        return self.recorded().count('"update"')

    def until_counted(self, number):
        within(LIMIT_S, lambda: f"{number} gradients: {self.server.said()}", lambda: self.count() >= number)

    def finish(self):
        """The server ends as it should, its workers too, and what it has written is right."""
        status = self.server.ended()
        expect(status == 0, f"the server ended with {status}: {self.server.said()}")
        expect("\x1b" not in self.server.said(), "control characters in a file")
        for worker in self.joined:
            # One that has started when all was over has found nobody.
            expect(worker.ended() in (0, -signal.SIGKILL) or GONE in worker.said(), worker.said())
        judge(self)


def losses(out):
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def judge(run):
    """What the server has written about a complete run."""
    n, items, bound = run.gradients, run.items, run.staleness
    counted = [line for line in run.record() if "update" in line]
    times = collections.Counter(line["item"] for line in counted)
    lost, twice = [i for i in range(items) if not times[i]], [i for i in times if times[i] > 1]
    expect(not lost and not twice and len(counted) == items,
           f"{len(counted)} gradients counted, not {items}; lost: {lost}; twice: {twice}")
    expect(len({line["ticket"] for line in counted}) == items, "a ticket counted twice")
    for place, line in enumerate(counted):
        expect(line["update"] == place // n + 1, f"gradient {place} is part of another update: {line}")
        expect(line["staleness"] == line["update"] - 1 - line["version"], f"another staleness: {line}")
        expect(0 <= line["staleness"] and (bound == "any" or line["staleness"] <= bound), f"too stale: {line}")
    shown = losses(run.out)
    expect(len(shown) == run.steps, f"{len(shown)} updates, not {run.steps}")
    for step, loss in enumerate(shown):
        parts = counted[step * n:(step + 1) * n]
        mean = sum(p["loss"] * p["samples"] for p in parts) / sum(p["samples"] for p in parts)
        expect(abs(loss - mean) < 1e-6, f"step {step + 1} has loss {loss}, and its gradients {mean}")
    expect((run.out / f"checkpoint-{run.steps:06}").is_dir(), "no checkpoint of the last step")
    if bound == 0:  # then it does not matter who computes what
        far = [step for step, (a, b) in enumerate(zip(shown, run.undisturbed()), 1) if abs(a - b) > 1e-4]
        expect(not far, f"other losses than an undisturbed run in steps {far}")


HELLO, WELCOME, REFUSED, PULL, PUSH, WORK, TAKEN, DONE, WAIT = range(1, 10)


def frame(kind, numbers=(-1, 0, 0), size=None, payload=b""):
    return struct.pack("<4sI3qdQ", b"LBPS", kind, *numbers, 0, len(payload) if size is None else size) + payload


class Peer:
    """A connection to the server that speaks the protocol of common/comm/server/wire.h."""

    def __init__(self, run):
        host, port = run.address.split(":")
        self.socket = run.cleanup.enter_context(socket.create_connection((host, int(port)), LIMIT_S))

    def send(self, message):
        self.socket.sendall(message)

    def read(self, size):
        text = b""
        while len(text) < size:
            part = self.socket.recv(size - len(text))
            expect(part, "the server has closed the connection")
            text += part
        return text

    def receive(self):
        """Kind, numbers and payload of the next frame that is more than a sign of life."""
        _, kind, *numbers, _, size = struct.unpack("<4sI3qdQ", self.read(48))
        payload = self.read(size)
        return self.receive() if kind == WAIT else (kind, numbers, payload)
