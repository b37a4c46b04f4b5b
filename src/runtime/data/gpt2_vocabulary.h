#pragma once

#include "runtime/data/byte_pairs.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace mfsdp::runtime {

/// What `vocab.json` and `merges.txt` say, in bytes instead of the letters that stand for them in the files.
struct Gpt2Vocabulary {
    std::vector<std::string> tokens;  ///< by id; empty where the file has a gap
    std::array<std::int32_t, 256> byte_ids{};
    std::vector<BytePairMerge> merges;
    std::int32_t end_of_document = 0;
};

/// Reads both files of `directory`. Broken rules are DataErrors that name file and token or line:
/// vocab.json is one object of names and ids, no name and no id twice, 0 <= id < 2^24, every byte and
/// `end_of_document` among the names; a line of merges.txt (first line `#version...` if it likes) has two names whose
/// bytes together are a name too, no pair twice.
[[nodiscard]] Gpt2Vocabulary read_gpt2_vocabulary(const std::string& directory, const std::string& end_of_document);

}  // namespace mfsdp::runtime
