#include "mfsdp/base/counted.h"

#include "support/catch.h"

using mfsdp::base::counted;

TEST_CASE("one thing is singular, none and many are plural") {
    CHECK(counted(1, "rank") == "1 rank");
    CHECK(counted(0, "rank") == "0 ranks");
    CHECK(counted(8, "compute thread") == "8 compute threads");
}
