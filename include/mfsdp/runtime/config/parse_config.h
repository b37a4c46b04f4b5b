#pragma once

#include "mfsdp/runtime/config/train_config.h"

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace mfsdp::runtime {

/// Reads, checks and resolves one configuration file.
///
/// path       JSON with `//` and `/* */` comments (docs/config.md)
/// overrides  `a.b=c` each, applied in order after the file: c is read as JSON, else as a string
/// Reads the file of `model.hf_config` too, but neither data nor environment, and allocates nothing. ConfigError with
/// every problem, one per line, each of the form `config: <key>...`.
[[nodiscard]] TrainConfig parse_train_config(const std::filesystem::path& path,
                                             std::span<const std::string> overrides = {});

/// The configuration with every default filled in, as indented JSON and a valid input again (`--print-config`). `null`
/// and `auto` are kept, so that the choices they ask for are made again.
[[nodiscard]] std::string print_config(const TrainConfig& config);

/// What the run saves as `config.resolved.json`: like print_config, with each `null` replaced that the file decides.
///
/// choices  `a.b=c` each, as for parse_train_config: what only ranks and machine decide, e.g. `parallel.mesh.shard=8`;
///          keys that the configuration does not use are an InternalError
[[nodiscard]] std::string print_resolved_config(const TrainConfig& config, std::span<const std::string> choices = {});

/// hash64 of the canonical JSON of the resolved configuration, 16 hex digits. Files that differ only in order, spelling
/// of numbers, comments or written-out defaults have the same. Source: docs/formats.md, hash64.
[[nodiscard]] std::string config_hash(const TrainConfig& config);

/// The number of ranks in a shard group. ConfigError unless replicate x shard is `world_size` >= 1.
[[nodiscard]] std::int64_t resolve_shard_size(const MeshConfig& mesh, std::int64_t world_size);

}  // namespace mfsdp::runtime
