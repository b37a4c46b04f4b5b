#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace mfsdp::runtime {

// The words of token files' headers. Source: docs/data.md, token files.

inline constexpr std::int64_t kTokenHeaderBytes = 1024;
inline constexpr std::size_t kTokenHeaderWords = 256;
using TokenHeader = std::array<std::int32_t, kTokenHeaderWords>;

inline constexpr std::int32_t kGpt2Magic = 20240520;
inline constexpr std::int32_t kGpt2Version = 1;
inline constexpr std::int32_t kLlama3Magic = 20240801;
inline constexpr std::int32_t kLlama3Version = 7;
inline constexpr std::array<char, 8> kLlmqMagic = {'B', 'I', 'N', '.', 'T', 'O', 'K', '\n'};
inline constexpr std::int32_t kLlmqVersion = 2;
inline constexpr std::int32_t kLlmqTokenBytes = 4;

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read as they lie");

}  // namespace mfsdp::runtime
