#include "mfsdp/model/model_config.h"

namespace mfsdp::model {

std::string_view name(ModelFamily family) { return family == ModelFamily::gpt2 ? "gpt2" : "llama"; }

}  // namespace mfsdp::model
