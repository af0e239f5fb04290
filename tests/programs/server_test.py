#!/usr/bin/env python3
"""Lab 11's server and workers as processes: workers that are killed, stopped and started at random moments, and
everything that ends a worker or the server.

The judge is gradients.jsonl, which the server writes from the tickets that it really handed out, together with the
losses: every item counts exactly once, no gradient is staler than allowed, every planned update is made.

Usage: server_test.py FOLDER_OF_PROGRAMS [SCHEDULES [SEED]]
"""
import collections
import concurrent.futures
import contextlib
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import time

from server_run import (GONE, HELLO, LIMIT_S, PATIENCE_S, PULL, PUSH, REFUSED, TAKEN, WELCOME, WORK, Failed, Peer, Run,
                        alive, expect, frame, judge, send, within)
from terminal_screen import Screen

CORPUS = pathlib.Path(__file__).resolve().parents[2] / "data/stories.txt"


class Schedule:
    """A run, and at random moments workers that are killed, that are stopped for a while, and that join."""

    def __init__(self, program, data, cleanup, chance):
        self.run = Run(program, data, cleanup, gradients=chance.choice((1, 2, 3, 5)),
                       staleness=chance.choice((0, 1, 3, "any")))
        self.events = sorted(  # when, what, to whom, for how many seconds, the new worker's options
            (chance.uniform(0, 0.6) * self.run.items, chance.choice(("kill", "stop", "join")), chance.random(),
             chance.choice((0.05, 0.2, 1.5)) * PATIENCE_S,
             # The number of a worker may be that of another: then it takes its place.
             (*chance.choice(((), (), ("--worker", chance.randrange(8)))), "--pace", chance.choice((1, 3))))
            for _ in range(chance.randint(5, 9)))
        self.stopped, self.did = {}, collections.Counter()
        self.run.serve("--workers", chance.randint(2, 4), "--slow", "1:3", "--patience", PATIENCE_S)

    def do(self, what, whom, seconds, options):
        workers = list(self.run.own_workers().values())
        workers += [worker.pid for worker in self.run.joined if worker.process.poll() is None]
        if what != "join" and workers:
            pid = workers[int(whom * len(workers))]
            send(pid, signal.SIGKILL if what == "kill" else signal.SIGSTOP)
            if what == "stop":
                self.stopped[pid] = time.monotonic() + seconds
            else:
                within(LIMIT_S, f"the end of worker {pid}", lambda: not alive(pid))
        if what == "join" or (what == "kill" and len(workers) < 2):
            self.run.work(*options)
        self.did[what] += 1

    def wake(self, now):
        for pid in [pid for pid, end in self.stopped.items() if end <= now]:
            del self.stopped[pid]
            send(pid, signal.SIGCONT)

    def go(self):
        """What was done, and what came of it."""
        deadline = time.monotonic() + LIMIT_S
        while self.run.server.process.poll() is None:
            expect(time.monotonic() < deadline, f"the run never ends: {self.run.server.said()}")
            self.wake(time.monotonic())
            while self.events and self.run.count() >= self.events[0][0]:
                self.do(*self.events.pop(0)[1:])
            time.sleep(0.01)  # not a wait for something: between two looks
        self.wake(float("inf"))
        self.run.finish()
        self.did["late"] = sum("update" not in line for line in self.run.record())
        self.did["gradients"] = self.run.items
        return self.did


def schedule(program, data, seed, number):
    with contextlib.ExitStack() as cleanup:
        return Schedule(program, data, cleanup, random.Random(f"{seed}/{number}")).go()


def refuse_foreign_workers(run):
    corpus = run.folder / "corpus.txt"
    corpus.write_text("Tom had a red ball. He ran to the park with his dog.\n<|endoftext|>\n" * 200)
    for option, value, said in (
            ("--dim", 32, "the server has 'dim 16', the worker 'dim 32'"),
            ("--seed", 2, "the server has 'seed 1', the worker 'seed 2'"),
            ("--batch", 2, "the server has 'batch 1', the worker 'batch 2'"),
            ("--data", corpus, "the server has 'corpus [0-9a-f]{16}', the worker 'corpus [0-9a-f]{16}'")):
        worker = run.start(**{option: value, "--work-for": run.address})
        worker.fails(f"^error: the server at {run.address} computes something other than this "
                     f"worker: {said}; start it with the server's options$")


def send_garbage(run):
    """Returns the greeting that the server wants, and a gradient of zeros."""
    for message in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"LBPS", frame(HELLO)[:20],
                    frame(HELLO, size=1 << 62), frame(PULL), frame(77), b""):
        Peer(run).send(message)  # and leaves the connection open
    foreign = Peer(run)
    foreign.send(frame(HELLO, payload=b"lab 11\nprotocol 2\n"))
    kind, _, work = foreign.receive()
    expect(kind == REFUSED, "a worker with another protocol was not refused")
    gradient = b""
    for make_garbage in (lambda: b"", lambda: b"garbage", lambda: frame(HELLO),
                         lambda: frame(PUSH, (0, 1, 0), payload=b"1234"),
                         lambda: frame(PUSH, (0, -1, 0), payload=gradient)):
        peer = Peer(run)  # gets a ticket first
        peer.send(frame(HELLO, payload=work) + frame(PULL))
        expect(peer.receive()[0] == WELCOME, "no welcome")
        kind, _, weights = peer.receive()
        expect(kind == WORK, "no work")
        gradient = bytes(len(weights))
        if (garbage := make_garbage()):
            peer.send(garbage)
            expect(not peer.socket.recv(1), "the server goes on with garbage")
        peer.socket.close()
    return frame(HELLO, payload=work), gradient


def push_invalid_tickets(run, hello, gradient):
    peer = Peer(run)
    never_handed_out = frame(PUSH, (1 << 40, 31, 0), payload=gradient)
    peer.send(hello + never_handed_out + frame(PULL))
    expect([peer.receive()[0] for _ in range(2)] == [WELCOME, TAKEN], "no answer to a push")
    _, numbers, _ = peer.receive()
    before = run.count()
    peer.send(2 * frame(PUSH, (numbers[0], 31, 0), payload=gradient))
    expect([peer.receive()[0] for _ in range(2)] == [TAKEN, TAKEN], "no answer to a push")
    expect(run.count() == before + 1, "a push that was sent twice does not count once")
    peer.socket.close()


def strangers(program, data):
    """They disturb nobody: the run, whose only worker is stopped meanwhile, comes to its end."""
    with contextlib.ExitStack() as cleanup:
        run = Run(program, data, cleanup).serve("--workers", 1)
        run.until_counted(3)
        worker = run.own_workers()[0]
        os.kill(worker, signal.SIGSTOP)
        refuse_foreign_workers(run)
        push_invalid_tickets(run, *send_garbage(run))
        for note in ("closed: the data is not from a parameter server",
                     "closed: the first frame is not a greeting",
                     "closed: a frame of the unknown kind 77", f"closed: a frame of {1 << 62} bytes",
                     "refused a worker that computes something else: the server has 'dim 16', the worker 'dim 32'",
                     "the server has 'protocol 1', the worker 'protocol 2'",
                     "worker 1 is gone: the data is not from a parameter server",
                     "gone: a push with -1 samples",
                     "gone: a tensor of 4 bytes", "gone: a frame that no worker sends"):
            within(LIMIT_S, lambda: f"'{note}' in {run.server.said()}", lambda: note in run.server.said())
        os.kill(worker, signal.SIGCONT)
        run.finish()


def table(program, data):
    """On a terminal, one table shows what the workers do, always at the same place; also if it is too small."""
    for rows, columns in ((30, 100), (5, 40)):
        with contextlib.ExitStack() as cleanup:
            screen = cleanup.enter_context(contextlib.closing(Screen(rows, columns)))
            run = Run(program, data, cleanup, steps=200)
            run.server = run.start("--server", "--out", run.out, "--workers", 4, "--slow", "0:10,1:30,2:10,3:10",
                                   terminal=screen.side)
            states, steps, victim, killed = collections.defaultdict(set), [0], 2, []
            whole, stopped = rows > 4 + 2, []  # whether it shows all workers; the processes that wait meanwhile

            def look(shown):
                expect(shown.count("staleness  gr") <= 1, f"the table is there more than once:\n{shown}")
                for worker, state, step, staleness in re.findall(r"^(\d) +(\w+) +(\d+) +(\d+) ", shown, re.M):
                    states[int(worker)].add(state)
                    steps.append(int(step))
                    expect(int(staleness) <= run.staleness, f"too stale:\n{shown}")
                for worker, state in re.findall(r"^(\d) +(waits|gone) ", shown, re.M):
                    states[int(worker)].add(state)
                seen = not whole or "computes" in states[0]
                if victim in (workers := run.own_workers()) and not killed and seen and run.count() > run.items / 3:
                    killed.append(workers.pop(victim))
                    if whole:  # the run must not end before the table has shown it
                        stopped.extend(workers.values())
                    for process in stopped:
                        os.kill(process, signal.SIGSTOP)
                    os.kill(killed[0], signal.SIGKILL)
                if stopped and "gone" in states[victim]:
                    for process in stopped:
                        os.kill(process, signal.SIGCONT)
                    stopped.clear()

            ended = screen.follow(run.server.process, LIMIT_S, look)
            expect(ended and run.server.ended() == 0, screen.text())
            judge(run)
            expect(killed, f"no worker was killed:\n{screen.text()}")
            expect(not whole or "gone" in states[victim] and "computes" in states[0], states)
            expect(max(steps) > run.steps / 2, f"the table stopped at step {max(steps)}:\n{screen.text()}")
            expect(f"\nstep {run.steps}/{run.steps}  loss" in screen.text() and "largest staleness" in screen.text(),
                   screen.text())


def killed_server(program, data):
    """Its workers end, and the run goes on from the checkpoint, with every item exactly once."""
    with contextlib.ExitStack() as cleanup:
        run = Run(program, data, cleanup, gradients=3, staleness="any").serve("--workers", 2)
        joined = [run.work("--pace", 3) for _ in range(2)]
        within(LIMIT_S, run.server.said, lambda: run.server.said().count("has joined") == 4)
        run.until_counted(20)
        own = run.own_workers().values()
        for worker in own:  # whose items the others overtake, also in the next checkpoint
            os.kill(worker, signal.SIGSTOP)
        run.until_counted(run.count() + 5 * 3)
        os.kill(run.server.pid, signal.SIGKILL)
        for worker in joined:
            worker.fails(f"^error: the server at {run.address} {GONE}$", 10)
        within(10, "the end of the server's own workers", lambda: not any(map(alive, own)))
        expect(run.count() < run.items, "the server was not killed in the middle")
        run.joined = []
        run.serve("--workers", 2, "--resume").finish()


def dead_workers(program, data):
    with contextlib.ExitStack() as cleanup:
        run = Run(program, data, cleanup).serve("--workers", 2)
        run.until_counted(9)
        for pid in run.own_workers().values():
            os.kill(pid, signal.SIGKILL)
        run.server.fails(rf"^error: no worker is left at update \d+ of {run.steps}: continue with --resume --out ")
        run.serve("--workers", 2, "--resume").finish()


def no_worker_at_all(program, data):
    with contextlib.ExitStack() as cleanup:
        run = Run(program, data, cleanup).serve("--workers", 1, "--kill", "0@0")
        run.server.fails("^error: no worker is left before the first update: ")
        expect(not run.out.exists(), "a run without an update has left a folder")


def main():
    program = pathlib.Path(sys.argv[1]).resolve() / "lab11_solution"
    schedules = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    seed = sys.argv[3] if len(sys.argv) > 3 else str(random.SystemRandom().randrange(1_000_000))
    print(f"{schedules} schedules of seed {seed}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    done, failed = collections.Counter(), 0
    with tempfile.TemporaryDirectory(prefix="server-test.") as folder, contextlib.ExitStack() as cleanup:
        data = pathlib.Path(folder)
        (data / "stories.txt").write_bytes(CORPUS.read_bytes()[:100_000])
        Run(program, data, cleanup, steps=1).undisturbed()  # makes the cache, once for all
        jobs = {case.__name__: (case, program, data)
                for case in (no_worker_at_all, dead_workers, killed_server, strangers, table)}
        jobs |= {f"schedule {k} of seed {seed}": (schedule, program, data, seed, k) for k in range(schedules)}
        with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
            for name, job in {name: pool.submit(*job) for name, job in jobs.items()}.items():
                try:
                    done.update(job.result() or {})
                except (Failed, OSError) as error:
                    failed += 1
                    print(f"failed: {name}: {error}", file=sys.stderr, flush=True)
    print(", ".join(f"{what}: {number}" for what, number in sorted(done.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
