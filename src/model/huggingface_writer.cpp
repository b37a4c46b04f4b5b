#include "mfsdp/base/error.h"
#include "mfsdp/model/huggingface.h"
#include "mfsdp/model/safetensors_writer.h"

#include "model/transposed.h"
#include "model/weight_names.h"

#include <set>
#include <system_error>
#include <utility>

namespace mfsdp::model {

namespace {

namespace fs = std::filesystem;

std::vector<SafetensorsTensor> stored_tensors(const ModelSpec& spec, device::DType dtype) {
    const char* name = dtype == device::DType::float32 ? "F32" : "BF16";
    std::vector<SafetensorsTensor> tensors;
    for (const ParameterSpec& parameter : spec.parameters) {
        tensors.push_back({parameter.name, stored_shape(parameter), name});
    }
    return tensors;
}

fs::path beside(const fs::path& directory, const char* suffix) {
    fs::path path = fs::absolute(directory).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();  // a trailing slash
    return path.parent_path() / (path.filename().string() + suffix);
}

/// Makes the empty folder the export grows in; what an interrupted export left there goes.
fs::path make_temporary(const fs::path& directory) {
    require_replaceable(directory);
    fs::path temporary = beside(directory, ".tmp");
    try {
        fs::remove_all(temporary);
        fs::create_directories(temporary);
    } catch (const fs::filesystem_error& error) {
        base::raise_file_error(base::FileUse::checkpoint, temporary.string(), error.what());
    }
    return temporary;
}

}  // namespace

// An existing target is replaced only if it is an earlier export: nothing else of the user's is ever deleted.
void require_replaceable(const fs::path& directory) {
    if (!fs::exists(directory)) return;
    if (!fs::is_directory(directory)) {
        base::raise_file_error(base::FileUse::checkpoint, directory.string(), "is a file, wanted a directory");
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
        const std::string name = entry.path().filename().string();
        if (name != "config.json" && name != "model.safetensors") {
            base::raise_file_error(base::FileUse::checkpoint, directory.string(),
                                   "holds " + name + ", so it is not an earlier export and is not replaced");
        }
    }
}

struct HuggingFaceWriter::State {
    State(const fs::path& target, const ModelSpec& spec, const std::string& bookkeeping, device::DType dtype)
        : directory(beside(target, "")),
          temporary(make_temporary(target)),
          config(huggingface_config(spec.config, bookkeeping, dtype)),
          weights((temporary / "model.safetensors").string(), stored_tensors(spec, dtype)) {}

    fs::path directory;
    fs::path temporary;
    std::string config;
    SafetensorsWriter weights;
    bool finished = false;
};

HuggingFaceWriter::HuggingFaceWriter(const fs::path& directory, const ModelSpec& spec, const std::string& bookkeeping,
                                     device::DType dtype)
    : state_(std::make_unique<State>(directory, spec, bookkeeping, dtype)) {}

HuggingFaceWriter::~HuggingFaceWriter() {
    if (state_->finished) return;
    const fs::path temporary = state_->temporary;
    state_.reset();  // closes and removes its file first
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
}

void HuggingFaceWriter::write(const ParameterSpec& parameter, std::span<const float> values) {
    MFSDP_ASSERT(static_cast<std::int64_t>(values.size()) == parameter.count(),
                 "the whole of " + parameter.name + " is written at once");
    if (!parameter.stored_transposed) {
        state_->weights.write(parameter.name, values.first(static_cast<std::size_t>(parameter.stored_count())));
        return;
    }
    state_->weights.write(parameter.name, transposed(values, parameter.shape[0], parameter.shape[1]));
}

void HuggingFaceWriter::finish() {
    state_->weights.finish();
    {
        const base::FileDescriptor file((state_->temporary / "config.json").string(), base::FileMode::create,
                                        base::FileUse::checkpoint);
        file.write_exact(std::as_bytes(std::span(state_->config)), 0);
        file.sync();
    }
    // An earlier export steps aside first, for a rename does not replace a folder that is not empty.
    const fs::path old = beside(state_->directory, ".old");
    std::error_code ignored;
    if (fs::exists(state_->directory)) {
        fs::remove_all(old, ignored);  // only now: without a directory it is the last export there is
        base::rename_durably(state_->directory.string(), old.string(), base::FileUse::checkpoint);
    }
    base::rename_durably(state_->temporary.string(), state_->directory.string(), base::FileUse::checkpoint);
    state_->finished = true;
    fs::remove_all(old, ignored);
}

}  // namespace mfsdp::model
