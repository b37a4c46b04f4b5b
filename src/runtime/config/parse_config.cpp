#include "mfsdp/runtime/config/parse_config.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/hash64.h"

#include "runtime/config/document.h"
#include "runtime/config/hf_config.h"
#include "runtime/config/overrides.h"
#include "runtime/config/resolve.h"

#include <set>
#include <vector>

namespace mfsdp::runtime {

namespace {

[[noreturn]] void raise(const std::vector<std::string>& errors) { throw ConfigError(join(errors, "\n")); }

/// Text that this program wrote itself.
JsonValue read_own(const std::string& text) {
    std::vector<std::string> errors;
    auto value = read_json(text, "configuration", errors);
    MFSDP_ASSERT(value && errors.empty(), "a parsed configuration holds its documents as JSON");
    return *std::move(value);
}

void collect(const JsonValue& section, const std::string& prefix, Document& document) {
    for (const auto& [name, value] : section.members) {
        if (value.is(JsonValue::Kind::object)) {
            collect(value, prefix + name + '.', document);
        } else {
            document.set(prefix + name, value);
        }
    }
}

/// Canonical text has sorted keys; people read the order of the schema.
std::string in_schema_order(const JsonValue& root) {
    Document document;
    collect(root, "", document);
    return pretty_text(document.nested());
}

}  // namespace

TrainConfig parse_train_config(const std::filesystem::path& path, std::span<const std::string> overrides) {
    std::vector<std::string> errors;
    auto root = read_json_file(path.string(), errors);
    if (!root) raise(errors);
    if (!root->is(JsonValue::Kind::object)) {
        errors.push_back("config: " + message_text(path.string()) + ": expected object, got " +
                         std::string(kind_name(*root)));
        raise(errors);
    }
    apply_overrides(*root, overrides, errors);
    ImportedModel imported = import_hf_config(*root, errors);
    std::set<std::string> unread;
    if (!imported.readable) unread.insert("model");
    Document document = check_document(*root, unread, errors);
    check_key_pairs(document, errors);
    if (!errors.empty()) raise(errors);

    const std::string as_given = canonical_text(document.nested());
    resolve_nulls(document, path.stem().string());
    TrainConfig config = bind_document(document);
    config.source_path = path.string();
    config.notices = std::move(imported.notices);
    config.model_bookkeeping =
        imported.bookkeeping.is(JsonValue::Kind::object) ? canonical_text(imported.bookkeeping) : "{}";
    config.document = as_given;
    config.resolved = canonical_text(document.nested());
    return config;
}

std::string print_config(const TrainConfig& config) { return in_schema_order(read_own(config.document)); }

std::string print_resolved_config(const TrainConfig& config, std::span<const std::string> choices) {
    JsonValue root = read_own(config.resolved);
    for (const std::string& choice : choices) {
        const auto key = choice.substr(0, choice.find('='));
        MFSDP_ASSERT(find_path(root, key) != nullptr, "a choice replaces a key that the configuration uses: " + key);
    }
    std::vector<std::string> errors;
    apply_overrides(root, choices, errors);
    MFSDP_ASSERT(errors.empty(), "choices have the form key=value: " + join(errors, "; "));
    return in_schema_order(root);
}

std::string config_hash(const TrainConfig& config) { return base::hash64_text(base::hash64(config.resolved)); }

std::int64_t resolve_shard_size(const MeshConfig& mesh, std::int64_t world_size) {
    MFSDP_ASSERT(world_size >= 1 && mesh.replicate >= 1, "a run has at least one rank and one replica");
    const bool divides = world_size % mesh.replicate == 0;
    if (!mesh.shard && !divides) {
        throw ConfigError("config: parallel.mesh.replicate = " + std::to_string(mesh.replicate) +
                          ": must divide the number of ranks, started with " + std::to_string(world_size));
    }
    const std::int64_t shard = mesh.shard.value_or(world_size / mesh.replicate);
    if (shard * mesh.replicate != world_size) {
        throw ConfigError("config: parallel.mesh: " + std::to_string(mesh.replicate) + " x " + std::to_string(shard) +
                          " needs " + std::to_string(mesh.replicate * shard) + " ranks, started with " +
                          std::to_string(world_size));
    }
    return shard;
}

}  // namespace mfsdp::runtime
