#include "mfsdp/base/error.h"
#include "mfsdp/model/huggingface.h"

#include "model/text_file.h"
#include "model/transposed.h"
#include "model/weight_files.h"
#include "model/weight_names.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace mfsdp::model {

namespace {

ModelSpec read_description(const std::filesystem::path& directory) {
    const std::filesystem::path path = directory / "config.json";
    return describe_model(parse_huggingface_config(read_text_file(path), path.string()));
}

}  // namespace

struct HuggingFaceReader::State {
    State(const std::filesystem::path& path, ModelSpec description)
        : directory(path.string()),
          spec(std::move(description)),
          files(path),
          names(match_weights(spec, files, directory)) {}

    /// Rows that are in the files.
    void read(const ParameterSpec& parameter, std::int64_t row_begin, std::span<float> out) const {
        const std::string stored = names.stored(parameter);
        if (parameter.stored_transposed) {
            std::vector<float> all(static_cast<std::size_t>(parameter.count()));
            files.file(stored).read_widened_rows(stored, 0, all);
            const std::vector<float> turned = transposed(all, parameter.columns(), parameter.rows());
            std::copy_n(turned.begin() + row_begin * parameter.columns(), out.size(), out.begin());
            return;
        }
        files.file(stored).read_widened_rows(stored, row_begin, out);
        if (names.has_tied_head && parameter.name == spec.parameters.front().name) {
            check_tied_head(stored, row_begin, out);
        }
    }

    /// A stored head of a tied model must be the embedding. It is compared where the embedding is read, so that nobody
    /// reads more than twice what it asked for; the readers of all rows have compared all of it.
    void check_tied_head(const std::string& embedding, std::int64_t row_begin, std::span<const float> rows) const {
        std::vector<float> head(rows.size());
        files.file(kHeadName).read_widened_rows(kHeadName, row_begin, head);
        if (files.entry(kHeadName).dtype == files.entry(embedding).dtype &&
            std::memcmp(head.data(), rows.data(), rows.size_bytes()) == 0) {
            return;
        }
        base::raise_file_error(base::FileUse::data, directory,
                               "tensor lm_head.weight differs from the embedding, but tie_word_embeddings is true");
    }

    std::string directory;
    ModelSpec spec;
    WeightFiles files;
    WeightNames names;
};

HuggingFaceReader::HuggingFaceReader(const std::filesystem::path& directory)
    : state_(std::make_unique<State>(directory, read_description(directory))) {}
HuggingFaceReader::HuggingFaceReader(const std::filesystem::path& directory, const ModelSpec& spec)
    : state_(std::make_unique<State>(directory, spec)) {}
HuggingFaceReader::~HuggingFaceReader() = default;

const ModelConfig& HuggingFaceReader::config() const { return state_->spec.config; }

const std::vector<std::string>& HuggingFaceReader::passed_over() const { return state_->names.passed_over; }

std::vector<float> HuggingFaceReader::read(const ParameterSpec& parameter) const {
    std::vector<float> values(static_cast<std::size_t>(parameter.count()));
    read_rows(parameter, 0, parameter.rows(), values);
    return values;
}

void HuggingFaceReader::read_rows(const ParameterSpec& parameter, std::int64_t row_begin, std::int64_t row_count,
                                  std::span<float> out) const {
    MFSDP_ASSERT(row_begin >= 0 && row_count >= 0 && row_begin + row_count <= parameter.rows() &&
                     std::ssize(out) == row_count * parameter.columns(),
                 "the caller asks for rows of " + parameter.name + " that it has, and has room for them");
    const std::int64_t stored = std::clamp(parameter.stored_rows() - row_begin, std::int64_t{0}, row_count);
    const std::span<float> values = out.first(static_cast<std::size_t>(stored * parameter.columns()));
    if (!values.empty()) state_->read(parameter, row_begin, values);
    std::fill(out.begin() + std::ssize(values), out.end(), 0.0F);
}

}  // namespace mfsdp::model
