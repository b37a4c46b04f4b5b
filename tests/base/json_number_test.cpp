#include "mfsdp/base/json_number.h"

#include "support/catch.h"

#include <cmath>
#include <cstdlib>
#include <limits>

using mfsdp::base::json_number;

TEST_CASE("a number has the shortest text that reads back to the same bits") {
    CHECK(json_number(0.1) == "0.1");
    CHECK(json_number(0.1F) == "0.1");
    CHECK(json_number(3.0) == "3");
    CHECK(json_number(-0.0) == "-0");
    CHECK(json_number(1e300) == "1e+300");
    for (const double value : {1.0 / 3.0, 2.0 / 3.0e-7, 5e-324, 1.7976931348623157e308, 123456789.123456789}) {
        CHECK(std::strtod(json_number(value).c_str(), nullptr) == value);
    }
    CHECK(std::strtof(json_number(1.0F / 3.0F).c_str(), nullptr) == 1.0F / 3.0F);
}

TEST_CASE("a non-finite number becomes a string because JSON has none") {
    CHECK(json_number(std::nan("")) == "\"nan\"");
    CHECK(json_number(std::numeric_limits<double>::infinity()) == "\"inf\"");
    CHECK(json_number(-std::numeric_limits<float>::infinity()) == "\"-inf\"");
}
