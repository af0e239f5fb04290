#!/usr/bin/env python3
"""Times the training step of the workbook's model in PyTorch, on the CPU or a GPU.

    python3 torch_step.py [--vocab 4096] [--batch 3] [--context 256] [--threads 2] [--compile]
                          [--model large] [--device cuda] [--precision bfloat16]
                          [--transformers]

Written the way PyTorch is fastest: fused attention (scaled_dot_product_attention), fused Adam,
shifted targets instead of a shifted copy of the logits. With --transformers the way most people
train a LLaMA: LlamaForCausalLM of that package, and Adam, both as they come. Prints one JSON object.
"""

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn

THETA, EPSILON = 10000.0, 1e-6
IGNORED = -100


@dataclass
class Config:
    dim: int = 288
    heads: int = 6
    layers: int = 6
    hidden: int = 1152
    context: int = 256
    vocab: int = 4096


MODELS = {"seed": Config(), "large": Config(1024, 16, 16, 4096, 1024)}


def rotary_tables(length, head_dim):
    frequencies = THETA ** (-torch.arange(0, head_dim, 2) / head_dim)
    angles = torch.outer(torch.arange(length), torch.cat([frequencies, frequencies]))
    return angles.cos(), angles.sin()  # [T, head_dim]


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        dim, hidden = config.dim, config.hidden
        self.heads = config.heads
        self.attention_norm = nn.RMSNorm(dim, eps=EPSILON)
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.mlp_norm = nn.RMSNorm(dim, eps=EPSILON)
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        normed = self.attention_norm(x)
        q, k, v = (linear(normed).view(batch, length, self.heads, -1).transpose(1, 2)
                   for linear in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v,
                                               is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(x.shape))
        normed = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Llama(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding = nn.Embedding(config.vocab, config.dim)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.dim, eps=EPSILON)
        self.head = nn.Linear(config.dim, config.vocab, bias=False)
        cos, sin = rotary_tables(config.context, config.dim // config.heads)
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


def llama_of_transformers(config):
    """The same model as a LlamaForCausalLM, and its loss as a function of model and tokens."""
    import transformers

    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=config.vocab, hidden_size=config.dim, intermediate_size=config.hidden,
        num_hidden_layers=config.layers, num_attention_heads=config.heads,
        max_position_embeddings=config.context, rms_norm_eps=EPSILON, tie_word_embeddings=False))
    return model, lambda model, tokens: model(input_ids=tokens, labels=tokens).loss


def peak_mib():
    """Peak resident memory of this process (Linux)."""
    for line in open("/proc/self/status", encoding="ascii"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return None


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="seed")
    for size in ("vocab", "dim", "heads", "layers", "hidden", "context"):
        parser.add_argument(f"--{size}", type=int, help="default: that of the model")
    parser.add_argument("--batch", type=int, default=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("float32", "tf32", "bfloat16"), default="float32",
                        help="of matrix products; weights are float32 always (bfloat16: autocast)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--compile", nargs="?", const="default", metavar="MODE",
                        help="use torch.compile, in this mode: default, reduce-overhead "
                        "(which records CUDA graphs), max-autotune")
    parser.add_argument("--transformers", action="store_true",
                        help="LlamaForCausalLM and Adam without options")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit(f"error: this PyTorch ({torch.__version__}) sees no GPU")
    sizes = {name: value for name, value in vars(arguments).items()
             if hasattr(Config, name) and value is not None}
    return arguments, replace(MODELS[arguments.model], **sizes)


def main():
    arguments, config = parse_arguments()
    on_gpu = arguments.device == "cuda"
    torch.set_num_threads(arguments.threads)
    torch.set_float32_matmul_precision("high" if arguments.precision == "tf32" else "highest")
    torch.manual_seed(1)
    before = peak_mib()
    if arguments.transformers:
        model, compute_loss = llama_of_transformers(config)
        options = {}
    else:
        model, compute_loss = Llama(config), loss_of
        options = {"fused": True}
    model.to(arguments.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-4, **options)
    if arguments.compile:
        compute_loss = torch.compile(compute_loss, mode=arguments.compile)

    seconds = []
    for _ in range(arguments.warmup + arguments.steps):
        tokens = torch.randint(0, config.vocab, (arguments.batch, config.context))
        if on_gpu:
            tokens = tokens.pin_memory()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(arguments.device, torch.bfloat16,
                            enabled=arguments.precision == "bfloat16"):
            loss = compute_loss(model, tokens.to(arguments.device, non_blocking=True))
        loss.backward()
        optimizer.step()
        if on_gpu:
            torch.cuda.synchronize()
        loss.item()
        seconds.append(time.perf_counter() - start)

    milliseconds = 1e3 * statistics.median(seconds[arguments.warmup:])
    how = f"compiled ({arguments.compile})" if arguments.compile else "eager"
    if arguments.transformers:
        how = f"LlamaForCausalLM {how}"
    result = {
        "program": f"torch {torch.__version__} {how}",
        "device": torch.cuda.get_device_name() if on_gpu else "CPU",
        "precision": arguments.precision,
        "vocab": config.vocab,
        "batch": arguments.batch,
        "context": config.context,
        "threads": arguments.threads,
        "milliseconds_per_step": round(milliseconds, 4),
        "tokens_per_second": round(1e3 * arguments.batch * config.context / milliseconds),
        "peak_mib": round(peak_mib()),
        "peak_mib_before_model": round(before),
        "loss": round(loss.item(), 4),
    }
    if on_gpu:
        result["gpu_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
