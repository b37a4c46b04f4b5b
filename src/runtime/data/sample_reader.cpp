#include "mfsdp/runtime/data/sample_reader.h"

#include "mfsdp/base/error.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

namespace mfsdp::runtime {

SampleReader::SampleReader(TokenStream stream, std::int64_t seq_len, MaskAlignment alignment)
    : stream_(std::move(stream)), seq_len_(seq_len), alignment_(alignment) {
    MFSDP_ASSERT(seq_len >= 1, "the configuration refuses train.seq_len < 1");
    if (stream_.tokens() < seq_len + 1) {
        throw DataError("data: " + std::to_string(stream_.tokens()) + " tokens in all, one sample needs " +
                        std::to_string(seq_len + 1));
    }
}

void SampleReader::read(std::int64_t sample, std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const {
    const auto length = static_cast<std::size_t>(seq_len_);
    MFSDP_ASSERT(sample >= 0 && sample < samples(), "a sample lies inside the epoch");
    MFSDP_ASSERT(inputs.size() == length && targets.size() == length, "inputs and targets hold T tokens");
    const std::int64_t begin = sample * seq_len_;
    stream_.read(begin, inputs);
    std::copy(inputs.begin() + 1, inputs.end(), targets.begin());
    stream_.read(begin + seq_len_, targets.last(1));
    if (!stream_.has_masks()) return;

    const std::int64_t first_bit = begin + (alignment_ == MaskAlignment::token ? 1 : 0);
    std::array<std::uint8_t, 4096> bits{};
    for (std::size_t done = 0; done < length;) {
        const auto part = std::span(bits).first(std::min(bits.size(), length - done));
        stream_.read_masks(first_bit + static_cast<std::int64_t>(done), part);
        for (std::size_t i = 0; i < part.size(); ++i) {
            if (part[i] == 0) targets[done + i] = kMaskedTarget;
        }
        done += part.size();
    }
}

}  // namespace mfsdp::runtime
