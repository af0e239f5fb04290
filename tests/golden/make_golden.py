#!/usr/bin/env python3
"""Golden values of Hugging Face's LlamaForCausalLM, against which the C++ model is tested.

    python3 make_golden.py           writes NAME.safetensors beside this script
    python3 make_golden.py --check   makes them anew and compares with the files

Each file holds, as float32:
    <parameter>             weights under Hugging Face's names
    tokens                  [B, T]; -1 is padding at the end of a row
    logits                  [B, T, V]; rows of padding are zero
    loss                    mean cross-entropy of position t against token t+1, over all targets
    gradient.<parameter>    of that loss
and where training was run:
    training.tokens         [steps, microbatches, B, T]
    training.losses         [steps], each before its update
    training.norms          [steps], of all gradients, before clipping
    final.<parameter>       weights after the last step
Metadata: "settings", the entry of MODELS below as JSON.

Everything is computed in float64 from float32 weights and rounded to float32 at the end, so that
a difference shows the error of the C++ side. (The model's norms, softmax and rotary angles are
float32 even then: that is how LlamaForCausalLM is written.) Weights are drawn ten times larger
than a fresh model's: with those, attention would be nearly uniform and a mistake in it invisible.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

PADDING = -1
IGNORED = -100  # PyTorch's mark of a target that does not count

# Fields are named as in Hugging Face's config.json. `lengths`: tokens per row of the batch.
# `training.lengths`: per microbatch, tokens per row; `max_norm` 0 does not clip.
MODELS = {
    "multi_head": {
        "config": dict(
            vocab_size=48, hidden_size=16, num_attention_heads=2, num_key_value_heads=2,
            num_hidden_layers=3, intermediate_size=32, max_position_embeddings=16,
            rope_theta=10000.0, rms_norm_eps=1e-6, tie_word_embeddings=False),
        "lengths": [12, 12],
        "training": dict(
            steps=10, learning_rate=8e-4, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.0,
            max_norm=0.0, lengths=[[12, 12]]),
    },
    "grouped_query": {
        "config": dict(
            vocab_size=40, hidden_size=32, num_attention_heads=4, num_key_value_heads=2,
            num_hidden_layers=2, intermediate_size=40, max_position_embeddings=16,
            rope_theta=10000.0, rms_norm_eps=1e-6, tie_word_embeddings=False),
        "lengths": [16, 16],
    },
    "tied_head": {  # training: AdamW, an epsilon that shows, clipping, unequal microbatches
        "config": dict(
            vocab_size=64, hidden_size=16, num_attention_heads=4, num_key_value_heads=4,
            num_hidden_layers=2, intermediate_size=48, max_position_embeddings=24,
            rope_theta=10000.0, rms_norm_eps=1e-6, tie_word_embeddings=True),
        "lengths": [17, 11],
        "training": dict(
            steps=10, learning_rate=3e-3, beta1=0.8, beta2=0.99, epsilon=1e-4, weight_decay=0.1,
            max_norm=1.0, lengths=[[13, 13, 9], [13, 2, 1]]),
    },
    "odd_sizes": {
        "config": dict(
            vocab_size=37, hidden_size=30, num_attention_heads=3, num_key_value_heads=1,
            num_hidden_layers=1, intermediate_size=43, max_position_embeddings=9,
            rope_theta=500.0, rms_norm_eps=1e-4, tie_word_embeddings=False),
        "lengths": [9, 5, 1],
    },
}


def make_model(config, generator):
    """A float64 model whose weights are float32 numbers."""
    model = LlamaForCausalLM(LlamaConfig(**config, attn_implementation="eager"))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = 0.2 * torch.randn(weight.shape, generator=generator)
            weight.copy_(1 + noise if name.endswith("norm.weight") else noise)
    return model.double()


def make_tokens(lengths, vocab_size, generator):
    """Random tokens [B, T], T the longest of `lengths`, shorter rows filled up with padding."""
    tokens = torch.randint(0, vocab_size, (len(lengths), max(lengths)), generator=generator)
    for row, length in zip(tokens, lengths):
        row[length:] = PADDING
    return tokens


def logits_of(model, tokens):
    # Causal attention: no real token sees the padding after it, so any token may take its place.
    return model(tokens.clamp(min=0), use_cache=False).logits


def target_count(tokens):
    return int((tokens[..., 1:] != PADDING).sum())


def loss_of(logits, tokens, total_targets):
    """Sum of the cross-entropies of this batch, divided by the targets of the whole step."""
    targets = tokens[:, 1:].masked_fill(tokens[:, 1:] == PADDING, IGNORED)
    vocab_size = logits.shape[-1]
    total = F.cross_entropy(logits[:, :-1].reshape(-1, vocab_size), targets.reshape(-1),
                            ignore_index=IGNORED, reduction="sum")
    return total / total_targets


def snapshot(model, prefix=""):
    return {prefix + name: weight.detach().float().clone()
            for name, weight in model.named_parameters()}


def forward_and_backward(model, tokens):
    logits = logits_of(model, tokens)
    loss = loss_of(logits, tokens, target_count(tokens))
    loss.backward()
    result = {
        "tokens": tokens.float(),
        "logits": logits.detach().masked_fill((tokens == PADDING)[..., None], 0).float(),
        "loss": loss.detach().float().reshape(1),
    }
    for name, weight in model.named_parameters():
        result["gradient." + name] = weight.grad.float()
    return result


def train(model, settings, generator):
    kind = torch.optim.AdamW if settings["weight_decay"] else torch.optim.Adam
    optimizer = kind(model.parameters(), lr=settings["learning_rate"], eps=settings["epsilon"],
                     betas=(settings["beta1"], settings["beta2"]),
                     weight_decay=settings["weight_decay"])
    all_tokens, losses, norms = [], [], []
    for _ in range(settings["steps"]):
        microbatches = torch.stack([make_tokens(lengths, model.config.vocab_size, generator)
                                    for lengths in settings["lengths"]])
        total_targets = target_count(microbatches)
        optimizer.zero_grad()
        loss = 0.0
        for tokens in microbatches:
            part = loss_of(logits_of(model, tokens), tokens, total_targets)
            part.backward()
            loss += part.item()
        limit = settings["max_norm"] or float("inf")
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        optimizer.step()
        all_tokens.append(microbatches)
        losses.append(loss)
    return {"training.tokens": torch.stack(all_tokens).float(),
            "training.losses": torch.tensor(losses), "training.norms": torch.tensor(norms),
            **snapshot(model, "final.")}


def make(name):
    """Tensors and metadata of one golden file."""
    settings = MODELS[name]
    generator = torch.Generator().manual_seed(1 + list(MODELS).index(name))
    model = make_model(settings["config"], generator)
    tensors = snapshot(model)
    tokens = make_tokens(settings["lengths"], model.config.vocab_size, generator)
    tensors |= forward_and_backward(model, tokens)
    if "training" in settings:
        tensors |= train(model, settings["training"], generator)
    return tensors, {"settings": json.dumps(settings)}


def compare(path, tensors, metadata):
    """Largest difference relative to the largest number of its tensor."""
    with safe_open(path, framework="pt") as golden:
        if golden.metadata() != metadata or set(golden.keys()) != set(tensors):
            return float("inf")
        worst = 0.0
        for name, expected in tensors.items():
            stored = golden.get_tensor(name)
            if stored.shape != expected.shape:
                return float("inf")
            largest = expected.abs().max().item() or 1.0
            worst = max(worst, (stored - expected).abs().max().item() / largest)
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--tolerance", type=float, default=1e-5,
                        help="of --check, relative to the largest number of a tensor")
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # one order of summation on every machine
    failed = False
    for name in MODELS:
        path = Path(__file__).with_name(name + ".safetensors")
        tensors, metadata = make(name)
        if arguments.check:
            worst = compare(path, tensors, metadata)
            failed |= not worst <= arguments.tolerance
            print(f"{name}: largest relative difference {worst:.1e}")
        else:
            save_file(tensors, path, metadata)
            print(f"{name}: {path.stat().st_size // 1024} KiB")
    if failed:
        sys.exit("error: the golden files differ from what this PyTorch computes; "
                 "see requirements.txt for the versions they were made with")


if __name__ == "__main__":
    main()
