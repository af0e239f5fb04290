#!/usr/bin/env python3
"""Times the training step of the workbook's model in PyTorch on the CPU, in float32.

    python3 torch_step.py [--vocab 4096] [--batch 3] [--context 256] [--threads 2] [--compile]

Written the way PyTorch is fastest: fused attention (scaled_dot_product_attention), fused Adam,
shifted targets instead of a shifted copy of the logits. Prints one JSON object.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

DIM, HEADS, LAYERS, HIDDEN, THETA, EPSILON = 288, 6, 6, 1152, 10000.0, 1e-6
HEAD_DIM = DIM // HEADS
IGNORED = -100


def rotary_tables(length):
    frequencies = THETA ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.outer(torch.arange(length), torch.cat([frequencies, frequencies]))
    return angles.cos(), angles.sin()  # [T, head_dim]


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.RMSNorm(DIM, eps=EPSILON)
        self.q, self.k, self.v, self.o = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.mlp_norm = nn.RMSNorm(DIM, eps=EPSILON)
        self.gate = nn.Linear(DIM, HIDDEN, bias=False)
        self.up = nn.Linear(DIM, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        normed = self.attention_norm(x)
        q, k, v = (linear(normed).view(batch, length, HEADS, HEAD_DIM).transpose(1, 2)
                   for linear in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v,
                                               is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, DIM))
        normed = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    def __init__(self, vocab, context):
        super().__init__()
        self.embedding = nn.Embedding(vocab, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(DIM, eps=EPSILON)
        self.head = nn.Linear(DIM, vocab, bias=False)
        cos, sin = rotary_tables(context)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x))


def loss_of(model, tokens):
    targets = F.pad(tokens[:, 1:], (0, 1), value=IGNORED)
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def peak_mib():
    """Peak resident memory of this process (Linux)."""
    for line in open("/proc/self/status", encoding="ascii"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=3)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--compile", action="store_true", help="use torch.compile")
    arguments = parser.parse_args()

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    before = peak_mib()
    model = Llama(arguments.vocab, arguments.context)
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-4, fused=True)
    compute_loss = torch.compile(loss_of) if arguments.compile else loss_of

    seconds = []
    for _ in range(arguments.warmup + arguments.steps):
        tokens = torch.randint(0, arguments.vocab, (arguments.batch, arguments.context))
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = compute_loss(model, tokens)
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - start)

    milliseconds = 1e3 * statistics.median(seconds[arguments.warmup:])
    print(json.dumps({
        "program": f"torch {torch.__version__}" + (" compiled" if arguments.compile else ""),
        "vocab": arguments.vocab,
        "batch": arguments.batch,
        "context": arguments.context,
        "threads": arguments.threads,
        "milliseconds_per_step": round(milliseconds, 2),
        "tokens_per_second": round(1e3 * arguments.batch * arguments.context / milliseconds),
        "peak_mib": round(peak_mib()),
        "peak_mib_before_model": round(before),
        "loss": round(loss.item(), 4),
    }))


if __name__ == "__main__":
    main()
