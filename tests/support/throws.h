#pragma once

#include <string>

namespace mfsdp::test {

/// The message of the Exception that `action` throws; another exception passes through, none gives a text no test
/// expects.
template <typename Exception, typename Action>
[[nodiscard]] std::string message_of(const Action& action) {
    try {
        action();
    } catch (const Exception& error) {
        return error.what();
    }
    return "<no exception>";
}

}  // namespace mfsdp::test
