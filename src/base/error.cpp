#include "mfsdp/base/error.h"

#include <cstdio>

namespace mfsdp {

namespace {

std::string without_controls(const std::string& message) {
    std::string text;
    for (const char character : message) {
        const auto byte = static_cast<unsigned char>(character);
        if ((byte >= 0x20 && byte != 0x7f) || character == '\n') {
            text += character;
        } else {
            char code[8] = {};
            (void)std::snprintf(code, sizeof code, "\\u%04x", unsigned{byte});
            text += code;
        }
    }
    return text;
}

}  // namespace

Error::Error(ExitCode code, const std::string& message) : std::runtime_error(without_controls(message)), code_(code) {}

void raise_internal_error(const char* condition, const char* file, int line, const std::string& reason) {
    throw InternalError(std::string("internal error: ") + file + ":" + std::to_string(line) + ": " + condition +
                        " does not hold: " + reason);
}

}  // namespace mfsdp
