#!/usr/bin/env python3
"""Times training steps of GPT-2 in PyTorch: compiled, fused attention, bfloat16 by autocast, fused AdamW.

Prints JSON: seconds of a step, tokens per second, and what it ran on. Exit code 77 where torch or a GPU is missing.
"""

import argparse
import json
import statistics
import sys
import time

try:
    import torch
except ImportError:
    print("torch is not installed", file=sys.stderr)
    sys.exit(77)
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.packed = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.packed(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.down(functional.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.tokens = nn.Embedding(options.vocabulary, options.width)
        self.positions = nn.Embedding(options.length, options.width)
        self.blocks = nn.ModuleList(Block(options.width, options.heads) for _ in range(options.layers))
        self.norm = nn.LayerNorm(options.width)
        self.head = nn.Linear(options.width, options.vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, inputs, targets):
        x = self.tokens(inputs) + self.positions.weight[: inputs.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("layers", "width", "heads", "sequences", "micro-batches", "length", "vocabulary"):
        parser.add_argument("--" + name, type=int, required=True)
    parser.add_argument("--steps", type=int, default=8, help="steps to measure, after three to warm up")
    return parser.parse_args()


def main():
    options = parse_arguments()
    if not torch.cuda.is_available():
        print("torch sees no GPU", file=sys.stderr)
        sys.exit(77)
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Model(options).cuda()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    shape = (options.sequences, options.length)
    inputs = torch.randint(options.vocabulary, shape, device="cuda")
    targets = torch.randint(options.vocabulary, shape, device="cuda")

    def step():
        for _ in range(options.micro_batches):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = compiled(inputs, targets) / options.micro_batches
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    seconds = []
    for number in range(options.steps + 3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        if number >= 3:
            seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds)
    tokens = options.sequences * options.length * options.micro_batches
    print(json.dumps({"step_seconds": median, "tokens_per_second": tokens / median, "torch": torch.__version__,
                      "device": torch.cuda.get_device_name(), "memory_bytes": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    main()
