"""What the numbers in the texts are made of: the model's sizes, the costs of steps and messages,
and schedules in simulated time. `numbers.txt` uses these names; `numbers_test.py` compares.

The simulations are independent of common/pipeline/simulate.h, so they check its results, too.
"""
import functools
import json
import math
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# --- The workbook's model: the defaults of LlamaConfig.

_CONFIG = (ROOT / "common/model/config.h").read_text(encoding="utf-8")


def _default(name):
    return int(re.search(rf"int64_t {name} = (\d+);", _CONFIG)[1])


V, C, H = _default("vocab_size"), _default("dim"), _default("hidden_dim")
L, T, HEADS = _default("layers"), _default("context"), _default("heads")
B = 3  # sequences in a microbatch of labs 01 and 04
LARGE_V = 32000  # LLaMA's vocabulary

KB, MB, GB = 1e3, 1e6, 1e9

layer_weights = 4 * C * C + 3 * C * H + 2 * C
embedding = V * C
tensors = 9 * L + 3  # four of attention, three of the MLP, two norms; embedding, norm, head


def stage_weights(layers, embeds=False, head=False):
    """Weights of a stage of so many layers; the final norm belongs to the head."""
    return layers * layer_weights + embeds * embedding + head * (embedding + C)


P = stage_weights(L, True, True)
STAGES = [stage_weights(2, True), stage_weights(2), stage_weights(2, False, True)]

# LLaMA 7B, Llama 2 70B and Llama 3.1 405B: layers, width, that of keys and values, of the MLP; V.


def llama(n, width, kv_width, hidden, vocabulary):
    layer = 2 * width * width + 2 * width * kv_width + 3 * width * hidden + 2 * width
    return n * layer + 2 * vocabulary * width + width


P_7B = llama(32, 4096, 4096, 11008, 32000)
P_70B = llama(80, 8192, 1024, 28672, 32000)
P_405B = llama(126, 16384, 1024, 53248, 128256)

# --- FLOPs per token of the forward pass, and the head's cost in layers.

matrix_flops = 2 * (4 * C * C + 3 * C * H)
attention_flops = 4 * C * T // 2
layer_flops = matrix_flops + attention_flops


def head_flops(vocabulary=V):
    return 2 * vocabulary * C


h = head_flops() / layer_flops
h_large = head_flops(LARGE_V) / layer_flops

# --- Memory.

layer_numbers = 6 * C + 2 * H + HEADS + 2  # that a layer keeps per token, common/model/layer.h
layer_numbers_7b = 6 * 4096 + 2 * 11008 + 32 + 2


def activations_7b(tokens):
    """Bytes that LLaMA 7B keeps for so many tokens in float32."""
    return 4 * tokens * (32 * layer_numbers_7b + 4096 + 32000 + 1)


def activations(layers, head, sequences=1):
    """Bytes that a stage keeps for the backward pass of so many sequences."""
    return 4 * sequences * T * (layers * layer_numbers + C + head * (V + 1))


def devices(weights, memory=80 * GB):
    """How many devices hold 16 bytes for each weight."""
    return math.ceil(16 * weights / memory)


# --- Messages.

def ring(size, ranks):
    """Bytes that each rank sends for an all-reduce of `size` bytes in a ring."""
    return 2 * (ranks - 1) / ranks * size


gradients = 4 * P
boundary = 4 * T * C  # one sequence's activation between two stages
averages = {k: math.ceil(700 / k) for k in (1, 2, 8, 50, 700)}  # lab 03: of 700 steps


def adam_without_correction(step, beta1=0.9, beta2=0.999):
    """Learning rates that Adam moves a weight in a step, for a constant gradient."""
    return (1 - beta1**step) / math.sqrt(1 - beta2**step)


# --- Pipelines.

def bubble(p, m):
    """Percent of the time of p equal stages with m microbatches, for GPipe and 1F1B."""
    return 100 * (p - 1) / (m + p - 1)


def gpipe(p, m):
    return [[("F", k) for k in range(m)] + [("B", k) for k in range(m)] for _ in range(p)]


def one_f_one_b(p, m, warm_up=lambda p, s: p - 1 - s):
    """For each stage the list of its passes."""
    schedule = []
    for s in range(p):
        ahead = min(warm_up(p, s), m)
        passes = [("F", k) for k in range(ahead)]
        for k in range(m):
            if ahead + k < m:
                passes.append(("F", ahead + k))
            passes.append(("B", k))
        schedule.append(passes)
    return schedule


def long_warm_up(p, s):
    return 2 * (p - 1 - s)


def no_warm_up(p, s):
    return 0


def makespan(schedule, costs=None, message=0):
    """When the last pass ends. costs[s]: forward and backward of stage s; a message arrives so long
    after its pass, and holds up neither side."""
    costs = costs or [(1, 2)] * len(schedule)
    now, ends, at = [0.0] * len(schedule), {}, [0] * len(schedule)
    progress = True
    while progress:
        progress = False
        for s, passes in enumerate(schedule):
            while at[s] < len(passes):
                kind, k = passes[at[s]]
                source = s - 1 if kind == "F" else s + 1
                if 0 <= source < len(schedule):
                    if (kind, k, source) not in ends:
                        break
                    now[s] = max(now[s], ends[kind, k, source] + message)
                now[s] += costs[s][kind == "B"]
                ends[kind, k, s] = now[s]
                at[s], progress = at[s] + 1, True
    assert at == [len(passes) for passes in schedule], "a circle"
    return max(now)


def split_costs(layers, head=h):
    """Costs of stages with so many layers, in forwards and backwards of a layer that take 1."""
    times = [n + (s == len(layers) - 1) * head for s, n in enumerate(layers)]
    return [(t / 3, 2 * t / 3) for t in times]


def split_time(layers, m, schedule=one_f_one_b, head=h):
    return makespan(schedule(len(layers), m), split_costs(layers, head))


def idle(layers, m, head=h):
    """Percent of the time of all stages in which they wait, under 1F1B."""
    total = split_time(layers, m, head=head) * len(layers)
    return 100 * (1 - m * (sum(layers) + head) / total)


def one_batch_idle(layers):
    """Percent of a step of lab 04 in which each rank waits, and all of them."""
    total = sum(layers) + h
    times = [n + (s == len(layers) - 1) * h for s, n in enumerate(layers)]
    return [100 * (1 - t / total) for t in times] + [100 * (1 - 1 / len(layers))]


def peak(schedule, s):
    """Microbatches in flight on stage s, at most."""
    now = most = 0
    for kind, _ in schedule[s]:
        now += 1 if kind == "F" else -1
        most = max(most, now)
    return most


# --- Programs: schedules with their messages.

def with_messages(schedule, how):
    """For each stage a list of passes and of (">" or "<", kind, k, posted).

    how: "posted" (sends posted, receives just before the pass), "ahead" (receives posted one pass
    early, as well), "early" (receives posted at the start), "ordered" and "fused" (the cures of
    lab 05, 5.5, for 1F1B)."""
    programs = []
    for s, passes in enumerate(schedule):
        def needs(action, s=s):
            return 0 <= (s - 1 if action[0] == "F" else s + 1) < len(schedule)

        def sends(action, s=s):
            return 0 <= (s + 1 if action[0] == "F" else s - 1) < len(schedule)

        program, received = [], set()
        if how == "early":
            program += [("<", *action, True) for action in passes if needs(action)]
            received.update(passes)
        for i, action in enumerate(passes):
            if how == "ahead":
                program += [("<", *a, True) for a in passes[i:i + 2] if needs(a) and a not in received]
                received.update(passes[i:i + 2])
            if needs(action) and action not in received:
                program.append(("<", *action, False))
            program.append(action)
            following = passes[i + 1] if i + 1 < len(passes) else None
            swap = following and needs(following) and following[0] != action[0]
            if sends(action) and swap and how == "ordered" and action[0] == "B":
                program.append(("<", *following, False))
                received.add(following)
            if sends(action) and swap and how == "fused":
                program.append(("<", *following, True))
                received.add(following)
            if sends(action):
                program.append((">", *action, how in ("posted", "ahead", "early")))
        programs.append(program)
    return programs


def program_time(programs, message, costs=(1, 2)):
    """When the last action ends. A message begins when both sides have begun it; one that is not
    posted holds its stage until it is done, and a pass waits for the receive that it reads."""
    now, at, begun = [0.0] * len(programs), [0] * len(programs), {}
    end = 0.0
    progress = True

    def done(kind, k, receiver):
        sides = [begun.get((side, kind, k, receiver)) for side in "<>"]
        return None if None in sides else max(sides) + message

    while progress:
        progress = False
        for s, program in enumerate(programs):
            while at[s] < len(program):
                action = program[at[s]]
                if len(action) == 2:
                    kind, k = action
                    if ("<", kind, k, s) in begun:
                        arrival = done(kind, k, s)
                        if arrival is None:
                            break
                        now[s] = max(now[s], arrival)
                    now[s] += costs[kind == "B"]
                else:
                    side, kind, k, posted = action
                    receiver = s if side == "<" else s + (1 if kind == "F" else -1)
                    begun.setdefault((side, kind, k, receiver), now[s])
                    if not posted:
                        completion = done(kind, k, receiver)
                        if completion is None:
                            break
                        now[s] = max(now[s], completion)
                at[s], progress = at[s] + 1, True
                end = max(end, now[s])
    assert at == [len(program) for program in programs], "a deadlock"
    return end


# --- Lab 05, 5.8: three stages share two cores; when more could compute, all share them equally.

def shared_cores_speed(layers, m, cores=2, head=h):
    """Speed of a 1F1B pipeline compared with one process that uses all cores fully."""
    schedule, costs = one_f_one_b(len(layers), m), split_costs(layers, head)
    at, left, ends, now = [0] * len(layers), {}, set(), 0.0
    while True:
        for s, passes in enumerate(schedule):
            if s in left or at[s] == len(passes):
                continue
            kind, k = passes[at[s]]
            source = s - 1 if kind == "F" else s + 1
            if not 0 <= source < len(layers) or (kind, k, source) in ends:
                left[s] = costs[s][kind == "B"]
        if not left:
            break
        rate = min(1, cores / len(left))
        step = min(left.values())
        now += step / rate
        for s in list(left):
            left[s] -= step
            if left[s] < 1e-9:
                ends.add((*schedule[s][at[s]], s))
                del left[s]
                at[s] += 1
    return m * (sum(layers) + head) / cores / now


# --- Lab 06.

SHAPES = {(6, 1): [6], (3, 2): [3, 3], (2, 3): [2, 2, 2], (1, 6): [1] * 6}


def fullest(pp):
    """Weights of the largest of pp stages with equally many layers."""
    n = L // pp
    return max(stage_weights(n, s == 0, s == pp - 1) for s in range(pp))


def sent_by_busiest(dp, pp, sequences):
    """(gradients, activations) in bytes that the busiest of dp x pp ranks sends in a step."""
    m = sequences // dp
    def both(s):
        weights = stage_weights(L // pp, s == 0, s == pp - 1)
        messages = (s > 0) + (s < pp - 1)
        return ring(4 * weights, dp), m * messages * boundary
    return max((both(s) for s in range(pp)), key=sum)


gigabit = 125 * MB  # bytes per second of 1 Gbit/s


def cable(size):
    """Milliseconds that so many bytes take over 1 Gbit/s."""
    return 1000 * size / gigabit


def activations_cross(m):
    """ms of a step of 2 x 3 whose stages have a machine each, at 21 + 42 ms for a microbatch; the
    messages of both pipelines share each cable. Lab 06, 5.7."""
    return makespan(one_f_one_b(3, m), [(21, 42)] * 3, cable(2 * boundary))


def gradients_cross(m):
    """The same with a machine for each pipeline: three all-reduces take turns on one cable, and the
    first one begins two backwards before the pipeline ends."""
    return 63 * (m + 2) - 2 * 42 + sum(cable(ring(4 * weights, 2)) for weights in STAGES)


# --- What ./workbook plan prints.

PLAN = None  # the program, if numbers_test.py has been given it


@functools.lru_cache(maxsize=None)
def _estimates(options):
    done = subprocess.run([PLAN, "--json", *options.split()], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def plan(options, dp=None, pp=None, m=None):
    """The best estimate, or the best one with this dp, pp and m."""
    wanted = {"dp": dp, "pp": pp, "m": m}
    for estimate in _estimates(options)["estimates"]:  # the best comes first
        if all(estimate[key] == number for key, number in wanted.items() if number):
            return estimate
    raise ValueError(f"{options}: no estimate for {wanted}")


def shape(options):
    """dp, pp and m of the best."""
    best = plan(options)
    return best["dp"], best["pp"], best["m"]


def line(options, dp=None, pp=None, m=None, unit=GB):
    """Memory of the fullest rank, percent of bubble, communication and update, tokens/s."""
    e = plan(options, dp, pp, m)
    percent = [100 * e[part] for part in ("bubble", "communication", "update")]
    return [max(e["memory_bytes"]) / unit, *percent, e["tokens_per_s"]]


def planned(options, dp=None, pp=None, m=None):
    """The same without the update, as docs/planning.md shows it."""
    memory, bubbles, communication, _, speed = line(options, dp, pp, m)
    return memory, bubbles, communication, speed


def ratio(dp, pp, batch, more=""):
    """Speed of dp x pp ranks on two cores, compared with one process on the same batch."""
    common = f"--cores 2 --batch {batch} --microbatch 1{more} --devices "
    many = plan(common + str(dp * pp), dp, pp)["tokens_per_s"]
    return many / plan(common + "1", 1, 1)["tokens_per_s"]


def missing(options, dp, pp):
    return plan(options, dp, pp)["missing_bytes"] / GB


def planned_ms(dp, pp):
    """A step of lab 06, 5.6, over 1 Gbit/s."""
    return 1000 * plan("--cores 1 --devices 6 --per-host 1 --microbatch 1", dp, pp)["step_s"]


SEVEN = "--model 7b --device a100 --memory 24 --length 2048 --batch 8 --microbatch 1 --devices "
H100 = "--model 7b --device h100 --devices 64"
TWO_CORES = "--cores 2 --devices 6 --microbatch 1"
LARGE = "--model 70b --device h100 --devices 1024"
