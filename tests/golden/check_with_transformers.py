#!/usr/bin/env python3
"""Opens a checkpoint with transformers' LlamaForCausalLM and compares its logits with the
workbook's own. Needs PyTorch and transformers (tests/golden/requirements.txt).

    cmake --build --preset student --target logits
    python3 tests/golden/check_with_transformers.py runs/001-train/checkpoint-000700
"""

import argparse
import subprocess
import sys
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

TOLERANCE = 1e-4  # of the largest logit; both sides compute in float32
BUILD = Path(__file__).parents[2] / "build/student/bin/logits"


def our_logits(program, checkpoint, tokens):
    command = [str(program), "--checkpoint", str(checkpoint),
               "--tokens", ",".join(map(str, tokens.tolist()))]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if finished.returncode != 0:
        sys.exit(f"error: {program} ended with code {finished.returncode}")
    return torch.tensor([[float(number) for number in line.split()]
                         for line in finished.stdout.splitlines()])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--program", type=Path, default=BUILD, help="the compiled logits program")
    arguments = parser.parse_args()
    if not (arguments.checkpoint / "config.json").is_file():
        sys.exit(f"error: {arguments.checkpoint} is not a checkpoint: it has no config.json")
    if not arguments.program.is_file():
        sys.exit(f"error: {arguments.program} is missing; "
                 "cmake --build --preset student --target logits makes it")

    model, report = LlamaForCausalLM.from_pretrained(
        arguments.checkpoint, dtype=torch.float32, output_loading_info=True)
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[problem]:
            sys.exit(f"error: transformers reports {problem}: {sorted(report[problem])}")
    model.eval()

    generator = torch.Generator().manual_seed(1)
    worst = 0.0
    for length in (1, 7, min(64, model.config.max_position_embeddings)):
        tokens = torch.randint(0, model.config.vocab_size, (length,), generator=generator)
        with torch.no_grad():
            theirs = model(tokens[None]).logits[0]
        ours = our_logits(arguments.program.resolve(), arguments.checkpoint, tokens)
        if ours.shape != theirs.shape:
            sys.exit(f"error: logits of shape {list(ours.shape)}, transformers has "
                     f"{list(theirs.shape)}")
        difference = ((ours - theirs).abs().max() / theirs.abs().max()).item()
        print(f"{length} tokens: largest difference {difference:.1e} of the largest logit")
        worst = max(worst, difference)
    if not worst <= TOLERANCE:
        sys.exit(f"error: the logits differ by more than {TOLERANCE}")
    print("transformers opens the checkpoint and gives the same logits")


if __name__ == "__main__":
    main()
