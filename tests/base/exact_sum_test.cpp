#include "mfsdp/base/exact_sum.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

using mfsdp::ExactSum;

TEST_CASE("an exact sum has the same words whatever the order and grouping of its terms") {
    std::mt19937_64 random(7);
    std::vector<double> terms;
    for (int i = 0; i < 5000; ++i) {
        const auto x = static_cast<float>(
            std::ldexp(1.0 + static_cast<double>(random() % 1000) / 1000.0, static_cast<int>(random() % 200) - 100));
        terms.push_back(static_cast<double>(x) * static_cast<double>(x));
    }
    ExactSum forward;
    for (const double term : terms) forward.add(term);
    std::shuffle(terms.begin(), terms.end(), random);
    ExactSum left, right;
    for (std::size_t i = 0; i < terms.size(); ++i) (i % 3 == 0 ? left : right).add(terms[i]);
    left.add(right);
    forward.normalise();
    left.normalise();
    REQUIRE(forward.value() > 0.0);
    CHECK(forward.words == left.words);
}

TEST_CASE("an exact sum rounds once, to nearest even") {
    SECTION("integers") {
        ExactSum sum;
        for (int i = 1; i <= 1000; ++i) sum.add(i);
        CHECK(sum.value() == 500500.0);
    }
    SECTION("a term lost by double addition is kept") {
        ExactSum sum;
        sum.add(1.0);
        for (int i = 0; i < 4; ++i) sum.add(std::ldexp(1.0, -54));  // each alone would vanish
        CHECK(sum.value() == 1.0 + std::ldexp(1.0, -52));
    }
    SECTION("ties go to even, a sticky bit far below breaks them") {
        ExactSum tie;
        tie.add(1.0);
        tie.add(std::ldexp(1.0, -53));
        CHECK(tie.value() == 1.0);
        tie.add(std::ldexp(1.0, -298));
        CHECK(tie.value() == 1.0 + std::ldexp(1.0, -52));
    }
    SECTION("extremes") {
        ExactSum smallest;
        smallest.add(std::ldexp(1.0, -298));
        CHECK(smallest.value() == std::ldexp(1.0, -298));
        const double largest = 3.4028234663852886e38 * 3.4028234663852886e38 * 1e9;
        ExactSum large;
        large.add(largest);
        CHECK(large.value() == largest);
        CHECK(ExactSum{}.value() == 0.0);
    }
}

TEST_CASE("an exact sum refuses what it cannot hold") {
    ExactSum sum;
    CHECK_THROWS_AS(sum.add(-1.0), mfsdp::InternalError);
    CHECK_THROWS_AS(sum.add(std::nan("")), mfsdp::InternalError);
    CHECK_THROWS_AS(sum.add(INFINITY), mfsdp::InternalError);
    CHECK_THROWS_AS(sum.add(std::ldexp(1.0, -299)), mfsdp::InternalError);
    CHECK_THROWS_AS(sum.add(std::ldexp(1.0, 345)), mfsdp::InternalError);
}
