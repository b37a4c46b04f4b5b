"""The training batches of a configuration, and its learning rates, written anew in plain Python.

Nothing here is taken from the C++ program, so that agreement means something. Every rule is that of
docs/determinism.md; tests/runtime/bench/parity_test.cpp compares both programs' batches and rates.
"""

import array
import glob
import math
import os
import struct
import sys

MASKED = -100  # a target that has no part in loss and gradient
END_OF_DOCUMENT = 256  # follows each file of raw bytes
WORD = (1 << 64) - 1


class TokenFile:
    """One file of tokens: where its ids begin, how wide they are, whether it has mask bits."""

    def __init__(self, path, data_format):
        self.path = path
        self.raw = data_format == "bytes"
        self.masked = False
        size = os.path.getsize(path)
        if self.raw:
            self.header, self.width, self.tokens = 0, 1, size + 1
            return
        with open(path, "rb") as file:
            head = file.read(1024)
        if len(head) < 1024:
            raise ValueError(f"{path}: {len(head)} bytes, shorter than the 1024-byte header")
        words = struct.unpack("<256i", head)
        self.header = 1024
        if words[0] == 20240520 and words[1] == 1:
            self.width, self.tokens = 2, words[2]
        elif words[0] == 20240801 and words[1] == 7:
            self.width, self.tokens = 4, words[2]
        elif head[:8] == b"BIN.TOK\n" and words[2] == 2:
            self.width, self.tokens, self.masked = words[3], words[4], words[6] == 1
        else:
            raise ValueError(f"{path}: unknown magic {words[0]}")
        expected = 1024 + self.width * self.tokens + ((self.tokens + 7) // 8 if self.masked else 0)
        if size != expected:
            raise ValueError(f"{path}: {size} bytes, but the header asks for {expected}")

    def read(self, begin, count):
        """Tokens [begin, begin + count) of this file."""
        if self.raw:
            with open(self.path, "rb") as file:
                file.seek(begin)
                ids = list(file.read(count))
            return ids + [END_OF_DOCUMENT] * (count - len(ids))
        with open(self.path, "rb") as file:
            file.seek(self.header + begin * self.width)
            ids = array.array({2: "H", 4: "i"}[self.width], file.read(count * self.width))
        if sys.byteorder == "big":
            ids.byteswap()
        return ids.tolist()

    def read_masks(self, begin, count):
        """Mask bits of the same positions; 1 where the file has none."""
        if not self.masked:
            return [1] * count
        with open(self.path, "rb") as file:
            file.seek(self.header + self.width * self.tokens + begin // 8)
            bits = file.read((begin + count + 7) // 8 - begin // 8)
        first = begin // 8 * 8
        return [bits[(i - first) // 8] >> ((i - first) % 8) & 1 for i in range(begin, begin + count)]


class TokenStream:
    """Files in the order of their patterns, each pattern's matches sorted bytewise, as one stream."""

    def __init__(self, patterns, data_format):
        paths = []
        for pattern in patterns:
            matches = sorted(glob.glob(pattern), key=os.fsencode)
            if not matches:
                raise ValueError(f"pattern '{pattern}' matches no file")
            paths += matches
        self.files = [TokenFile(path, data_format) for path in paths]
        self.tokens = sum(file.tokens for file in self.files)

    def _pieces(self, begin, count):
        first = 0
        for file in self.files:
            low, high = max(begin, first), min(begin + count, first + file.tokens)
            if low < high:
                yield file, low - first, high - low
            first += file.tokens

    def read(self, begin, count):
        return [token for file, at, part in self._pieces(begin, count) for token in file.read(at, part)]

    def read_masks(self, begin, count):
        return [bit for file, at, part in self._pieces(begin, count) for bit in file.read_masks(at, part)]


def _mix(z):
    """The finaliser of SplitMix64."""
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & WORD
    return z ^ z >> 31


def shuffled(place, samples, seed, epoch):
    """The sample at a place of an epoch: a Feistel network of twelve rounds, walked until it lands in the range."""
    golden = 0x9E3779B97F4A7C15
    half = 1
    while 4**half < samples:
        half += 1
    base = _mix((_mix((seed + golden) & WORD) + epoch * golden) & WORD)
    x = place
    while True:
        left, right = x >> half, x & ((1 << half) - 1)
        for i in range(1, 13):
            key = _mix((base + i * golden) & WORD)
            left, right = right, left ^ (_mix((right + key) & WORD) >> (64 - half))
        x = left << half | right
        if x < samples:
            return x


class Batches:
    """Global batches of a resolved configuration."""

    def __init__(self, config):
        data, train = config["data"], config["train"]
        self.length = train["seq_len"]
        self.micro, self.batch = train["micro_batch_size"], train["global_batch_size"]
        self.shuffle, self.seed = data["shuffle"], data["seed"]
        self.by_token = data["mask_alignment"] == "token"
        self.stream = TokenStream(data["train"], data["format"])
        self.samples = (self.stream.tokens - 1) // self.length
        if self.samples < 1:
            raise ValueError(f"{self.stream.tokens} tokens in all, one sample needs {self.length + 1}")

    def sample(self, index):
        """Inputs and targets of one sample; a masked target is MASKED."""
        begin = index * self.length
        tokens = self.stream.read(begin, self.length + 1)
        masks = self.stream.read_masks(begin + (1 if self.by_token else 0), self.length)
        targets = [token if bit else MASKED for token, bit in zip(tokens[1:], masks)]
        return tokens[:-1], targets

    def step(self, number):
        """Micro-batches of step 1, 2, ...: lists of (inputs, targets), one of each per sequence."""
        first = (number - 1) * self.batch
        sequences = []
        for g in range(first, first + self.batch):
            epoch, place = divmod(g, self.samples)
            sequences.append(self.sample(shuffled(place, self.samples, self.seed, epoch) if self.shuffle else place))
        return [sequences[i : i + self.micro] for i in range(0, self.batch, self.micro)]


def rate_factor(config, step):
    """The factor of all learning rates at step 1, 2, ..."""
    optimizer, steps = config["optimizer"], config["train"]["steps"]
    warmup, decay, style = optimizer["warmup_steps"], optimizer["decay_steps"], optimizer["decay_style"]
    low = optimizer["min_lr"] / optimizer["lr"]
    if step <= warmup:
        return step / warmup
    if style == "constant" or decay < 1 or step <= steps - decay:
        return 1.0
    if step >= steps:
        return low
    x = (step - steps + decay) / decay
    if style == "linear":
        return 1.0 - (1.0 - low) * x
    if style == "cosine":
        return low + (1.0 - low) * (1.0 + math.cos(math.pi * x)) / 2.0
    return 1.0 - (1.0 - low) * math.sqrt(x)
