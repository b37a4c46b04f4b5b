#!/usr/bin/env python3
"""Writes vocab.json, merges.txt and vectors.json beside this file.

The encoder here is a plain rendering of the published algorithm of GPT-2 (byte-level BPE): the tests compare the
program's ids with those recorded by it. It shares nothing with the program, neither code nor tables of Unicode: words
are cut by the `regex` module (pip install regex), which the published encoder uses too. The vocabulary is trained here,
on the sentences below, as GPT-2's was: the most frequent pair of neighbours is merged, 200 times.

    make.py           writes the files
    make.py --check   also compares every vector with Hugging Face's encoder (pip install tokenizers)
"""
import collections
import json
import pathlib
import sys

import regex

WORDS = regex.compile(r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+""")
MERGES = 200
END = "<|endoftext|>"

SENTENCES = """
The owner of a matrix holds it whole, and the others hold nothing of it; they'll gather it when they need it.
It isn't the owner's fault that the others've got less to do: we're told that I'm wrong, and he'd agree.
    for (int i = 0; i < 1024; ++i) {
        total += values[i] * 3.14159;   // in order, always in order
    }
In 1999 and 2024 there were 365 and 366 days; 1 234 567 is a number, and so are the others: 12, 123, 1234, 12345.
Die Größe der Änderung überraschte alle, außer die Übrigen. Où est l'école? C'est à côté de l'hôtel, là-bas.
Η μήτρα ανήκει σε έναν. Матрица принадлежит одному владельцу. 行列は一人の所有者に属する。矩阵属于一个所有者。
the then there these they them their the other others order owner over under number numbers gather rather either
""" * 3

TEXTS = [
    "", " ", "  ", "\n", "\n\n", " \n ", "\t\tx", "a", " a", "  a", "   a", "a ", "a  ", "a   b", "\n a", "\n\n a", "\n\na",
    "a\n", "a\n\n\n", "a\r\nb\r\n\r\nc", "x \t y", "the owner's", "they'll they'Ll THEY'LL I'm we've he'd isn't", "'s's's",
    "''s", "'", "'x", "'re", "'r", "'l", "'v", "don't!", "it' s", "o'clock 'twas", "’s it’s",
    "1234567", " 12 345", "3.14159", "x1y2", "1st 2nd 3rd", "½ ¼ Ⅷ ٣٤٥ 五 ①②", "a=b+c; // x", "!!!", " !!! ???", "(a) [b] {c}",
    "hello, world", "the other numbers", "Größe Änderung", "école hôtel", "Матрица", "行列は一人", "矩阵 属于", "e\u0301 vs é",
    "नमस्ते", "ไทย", "한국어 말", "مرحبا", "😀", "👩‍👩‍👧‍👦 ok", "🇩🇪🇫🇷", "a😀b", "👍🏽!", "\u00a0x", "x\u00a0\u00a0y", "\u3000\u3000全", "a\u2028b",
    "\u200bx", "\ufeffx", "a\u0085b", "\x1c\x1d", "\x00\x01\x7f", "\x00", "tab\tsep\x0bvt\x0cff", "<|endoftext|>", "a<|endoftext|>b",
    "\U0001F9D1\u200D\U0001F4BB", "\U00010348 \U0002070E", "ǅ ʰ ª º", "_under_score", "snake_case camelCase", "$100 €50 £5",
    "then" * 40, "o" * 63, "o" * 64, "o" * 65, "o" * 200, "the" * 333, " " * 100, " " * 100 + "x", "\n" * 77, "0" * 129, "é" * 70, "!" * 100,
    "ab" * 50 + "the" * 50, SENTENCES[:600],
]


def alphabet():
    """The printable character that stands for each byte in the files."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


LETTERS = alphabet()


def letters(word):
    return tuple(LETTERS[byte] for byte in word.encode("utf-8"))


def merged(symbols, pair):
    """Every occurrence of the pair becomes one symbol, from left to right."""
    result, at = [], 0
    while at < len(symbols):
        if tuple(symbols[at : at + 2]) == pair:
            result.append(pair[0] + pair[1])
            at += 2
        else:
            result.append(symbols[at])
            at += 1
    return tuple(result)


def train(text):
    words = collections.Counter(letters(word) for word in WORDS.findall(text))
    merges = []
    for _ in range(MERGES):
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        renewed = collections.Counter()
        for word, count in words.items():
            renewed[merged(word, best)] += count
        words = renewed
    return merges


def encode(text, ids, ranks):
    result = []
    for word in WORDS.findall(text):
        symbols = letters(word)
        while True:
            known = [pair for pair in zip(symbols, symbols[1:]) if pair in ranks]
            if not known:
                break
            symbols = merged(symbols, min(known, key=ranks.get))
        result += [ids[symbol] for symbol in symbols]
    return result


def check(folder, vectors):
    import tokenizers

    encoder = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    encoder.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    wrong = [vector["text"] for vector in vectors if encoder.encode(vector["text"]).ids != vector["ids"]]
    print(f"tokenizers {tokenizers.__version__}: {len(vectors)} vectors compared, {len(wrong)} differ {wrong}")
    return not wrong


def main():
    folder = pathlib.Path(__file__).parent
    merges = train(SENTENCES)
    # As in GPT-2's own file: bytes in the order of the alphabet, merges in theirs, the end of a document last.
    order = [LETTERS[byte] for byte in sorted(LETTERS, key=lambda byte: (ord(LETTERS[byte]) > 255, byte))]
    names = order + [left + right for left, right in merges] + [END]
    ids = {name: number for number, name in enumerate(names)}
    assert len(ids) == 256 + MERGES + 1
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    (folder / "vocab.json").write_text(json.dumps(ids, ensure_ascii=False) + "\n", encoding="utf-8")
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    vectors = [{"text": text, "ids": encode(text, ids, ranks)} for text in TEXTS]
    damaged = [b"a\xffb", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xed\xa0\x80", b"x\xe2\x82\xe2\x82\xacy", b"\xf4\x90\x80\x80", b"\x80\x80"]
    replaced = [
        {"bytes": list(raw), "ids": encode(raw.decode("utf-8", "replace"), ids, ranks)} for raw in damaged
    ]
    rows = ",\n".join(json.dumps(row, ensure_ascii=True) for row in vectors)
    more = ",\n".join(json.dumps(row) for row in replaced)
    (folder / "vectors.json").write_text(f'{{"vectors": [\n{rows}\n],\n"replaced": [\n{more}\n]}}\n', encoding="utf-8")
    print(f"{len(names)} tokens, {len(vectors)} vectors")
    if "--check" in sys.argv[1:] and not check(folder, vectors):
        sys.exit(1)


if __name__ == "__main__":
    main()
