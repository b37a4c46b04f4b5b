#include "mfsdp/base/hash64.h"

#include "support/catch.h"

TEST_CASE("hash64 has the published values of FNV-1a") {
    CHECK(mfsdp::base::hash64("") == 0xCBF29CE484222325ULL);
    CHECK(mfsdp::base::hash64("a") == 0xAF63DC4C8601EC8CULL);
    CHECK(mfsdp::base::hash64("foobar") == 0x85944171F73967E8ULL);
    CHECK(mfsdp::base::hash64_text(0x05944171F73967E8ULL) == "05944171f73967e8");
}
