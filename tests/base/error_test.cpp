#include "mfsdp/base/error.h"

#include "support/catch.h"

TEST_CASE("a message shows control characters of the names it holds, and does not end at a zero byte") {
    const mfsdp::DataError error(std::string("data: a\x1b[31mb\0c\x7f: two\nlines \xc3\xa9", 30));
    CHECK(std::string(error.what()) == "data: a\\u001b[31mb\\u0000c\\u007f: two\nlines \xc3\xa9");
}

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
