#pragma once

#include <string>

namespace mfsdp::base {

/// A JSON value that reads back to the same bits: the shortest decimal text of a finite number. JSON has no NaN, so a
/// non-finite number becomes the string "nan", "inf" or "-inf", quotes included.
[[nodiscard]] std::string json_number(double value);
[[nodiscard]] std::string json_number(float value);

}  // namespace mfsdp::base
