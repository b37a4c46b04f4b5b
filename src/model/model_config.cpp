#include "mfsdp/model/model_config.h"

namespace mfsdp::model {

std::string_view name(ModelFamily family) {
    switch (family) {
        case ModelFamily::gpt2:
            return "gpt2";
        case ModelFamily::llama:
            return "llama";
        case ModelFamily::qwen3:
            return "qwen3";
    }
    return "?";
}

}  // namespace mfsdp::model
