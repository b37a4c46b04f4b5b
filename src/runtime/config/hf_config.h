#pragma once

#include "runtime/config/json_value.h"

#include <string>
#include <vector>

namespace mfsdp::runtime {

struct ImportedModel {
    bool readable = true;
    JsonValue bookkeeping;             ///< object: keys that say nothing about the computation, to be written back
    std::vector<std::string> notices;  ///< for the log
};

/// Merges the Hugging Face file named by `model.hf_config`, else that of `model.init_from`, if any, into the `model`
/// section of `root`: keys of the schema that the section lacks are taken over, the rest is kept aside. Keys that would
/// change the computation in a way mfsdp does not know are errors.
[[nodiscard]] ImportedModel import_hf_config(JsonValue& root, std::vector<std::string>& errors);

}  // namespace mfsdp::runtime
