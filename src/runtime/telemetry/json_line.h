#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mfsdp::runtime {

/// Builds one JSON object whose keys keep the order in which they are added: people read these lines.
class JsonLine {
  public:
    JsonLine& add(std::string_view key, double value);
    JsonLine& add(std::string_view key, std::int64_t value);
    JsonLine& add(std::string_view key, std::string_view value);
    JsonLine& add(std::string_view key, const JsonLine& object);

    /// An unset value leaves the key out.
    template <typename Value>
    JsonLine& add(std::string_view key, const std::optional<Value>& value) {
        return value ? add(key, *value) : *this;
    }
    /// An unset value becomes null.
    JsonLine& add_or_null(std::string_view key, const std::optional<double>& value);

    [[nodiscard]] std::string text() const { return "{" + members_ + "}"; }

  private:
    JsonLine& append(std::string_view key, std::string_view json);

    std::string members_;
};

}  // namespace mfsdp::runtime
