#include "mfsdp/base/error.h"

#include "support/catch.h"

TEST_CASE("a failed assertion names the condition, the place and the reason") {
    try {
        MFSDP_ASSERT(1 == 2, "one is two");
        FAIL("no exception");
    } catch (const mfsdp::InternalError& error) {
        const std::string text = error.what();
        CHECK(text.find("1 == 2") != std::string::npos);
        CHECK(text.find("error_test.cpp") != std::string::npos);
        CHECK(text.find("one is two") != std::string::npos);
        CHECK(error.code() == mfsdp::ExitCode::unexpected);
    }
}
