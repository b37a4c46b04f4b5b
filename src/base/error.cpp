#include "mfsdp/base/error.h"

namespace mfsdp {

void raise_internal_error(const char* condition, const char* file, int line, const std::string& reason) {
    throw InternalError(std::string("internal error: ") + file + ":" + std::to_string(line) + ": " + condition +
                        " does not hold: " + reason);
}

}  // namespace mfsdp
