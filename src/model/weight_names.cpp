#include "model/weight_names.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace mfsdp::model {

namespace {

constexpr std::string_view kGpt2Prefix = "transformer.";
constexpr std::size_t kMostNames = 10;

std::string describe(const std::string& dtype, const std::vector<std::int64_t>& shape) {
    std::string text = dtype;
    text.append(" [");
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (i > 0) text.append(",");
        text.append(std::to_string(shape[i]));
    }
    return text.append("]");
}

/// The causal masks that published gpt2 files hold as buffers: h.<i>.attn.bias and h.<i>.attn.masked_bias.
bool is_mask_buffer(std::string_view name) {
    if (name.starts_with(kGpt2Prefix)) name.remove_prefix(kGpt2Prefix.size());
    if (!name.starts_with("h.")) return false;
    name.remove_prefix(2);
    const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    if (digits == 0) return false;
    name.remove_prefix(digits);
    return name == ".attn.bias" || name == ".attn.masked_bias";
}

/// Collects everything that is wrong, so that one message tells all of it.
class Differences {
  public:
    void add_missing(const std::string& name) { missing_.push_back(name); }
    void add_unexpected(const std::string& name) { unexpected_.push_back(name); }
    void compare(const SafetensorsEntry& entry, const ParameterSpec& parameter) {
        const std::vector<std::int64_t> wanted = stored_shape(parameter);
        const bool is_number = entry.dtype == "F32" || entry.dtype == "BF16" || entry.dtype == "F16";
        if (is_number && entry.shape == wanted) return;
        std::string text = entry.name;
        text.append(": ").append(describe(entry.dtype, entry.shape)).append(", expected ");
        differing_.push_back(text.append(describe(is_number ? entry.dtype : "F32, BF16 or F16", wanted)));
    }
    /// Empty if there are none.
    [[nodiscard]] std::string message() const {
        std::string text;
        for (const auto& [what, names, separator] :
             {List{"missing", missing_, ", "}, List{"unexpected", unexpected_, ", "},
              List{"tensor", differing_, "; "}}) {
            if (names.empty()) continue;
            text.append(text.empty() ? "" : "; ").append(what);
            for (std::size_t i = 0; i < std::min(names.size(), kMostNames); ++i) {
                text.append(i == 0 ? " " : separator).append(names[i]);
            }
            if (names.size() > kMostNames) {
                text.append(" and ").append(std::to_string(names.size() - kMostNames)).append(" more");
            }
        }
        return text;
    }

  private:
    struct List {
        const char* what;
        const std::vector<std::string>& names;
        const char* separator;
    };
    std::vector<std::string> missing_, unexpected_, differing_;
};

}  // namespace

std::vector<std::int64_t> stored_shape(const ParameterSpec& parameter) {
    std::vector<std::int64_t> shape = parameter.shape;
    if (shape.size() > 1) shape[0] = parameter.stored_rows();
    if (parameter.stored_transposed) std::swap(shape[0], shape[1]);
    return shape;
}

std::string WeightNames::stored(const ParameterSpec& parameter) const {
    return without_prefix && parameter.name.starts_with(kGpt2Prefix) ? parameter.name.substr(kGpt2Prefix.size())
                                                                     : parameter.name;
}

WeightNames match_weights(const ModelSpec& spec, const WeightFiles& files, const std::string& directory) {
    const bool gpt2 = spec.config.family == ModelFamily::gpt2;
    WeightNames names;
    names.without_prefix = gpt2 && !files.contains(spec.parameters.front().name);
    names.has_tied_head = spec.config.tie_word_embeddings && files.contains(kHeadName);

    Differences differences;
    std::set<std::string> known;
    for (const ParameterSpec& parameter : spec.parameters) {
        const std::string stored = names.stored(parameter);
        known.insert(stored);
        if (files.contains(stored)) {
            differences.compare(files.entry(stored), parameter);
        } else {
            differences.add_missing(stored);
        }
    }
    if (names.has_tied_head) {
        known.insert(kHeadName);
        differences.compare(files.entry(kHeadName), spec.parameters.front());
    }
    for (const std::string& name : files.names()) {
        if (known.contains(name)) continue;
        if (gpt2 && is_mask_buffer(name)) {
            names.passed_over.push_back(name);
        } else {
            differences.add_unexpected(name);
        }
    }
    std::string message = differences.message();
    if (message.empty()) return names;
    message.append(" (wanted the tensors of a ").append(name(spec.config.family));
    message.append(spec.config.tie_word_embeddings ? " model with a tied head)" : " model with a head of its own)");
    base::raise_file_error(base::FileUse::data, directory, message);
}

}  // namespace mfsdp::model
