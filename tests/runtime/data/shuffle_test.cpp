#include "mfsdp/runtime/data/shuffle.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"

#include <set>
#include <vector>

using mfsdp::runtime::Shuffle;

namespace {

std::vector<std::int64_t> order(std::uint64_t seed, std::int64_t epoch, std::int64_t samples, std::int64_t count) {
    const Shuffle shuffle(seed, epoch, samples);
    std::vector<std::int64_t> result;
    for (std::int64_t place = 0; place < count; ++place) result.push_back(shuffle.sample(place));
    return result;
}

}  // namespace

TEST_CASE("the shuffle has its published test vectors") {
    CHECK(order(1234, 0, 10, 10) == std::vector<std::int64_t>{5, 4, 8, 1, 9, 0, 7, 6, 2, 3});
    CHECK(order(1234, 1, 10, 10) == std::vector<std::int64_t>{0, 3, 1, 6, 4, 7, 8, 5, 9, 2});
    CHECK(order(1234, 0, 1000003, 3) == std::vector<std::int64_t>{511934, 99597, 943160});
}

TEST_CASE("every epoch visits every sample once") {
    for (const std::int64_t samples : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097}) {
        for (const std::int64_t epoch : {0, 1, 7}) {
            const std::vector<std::int64_t> visited = order(99, epoch, samples, samples);
            const std::set<std::int64_t> distinct(visited.begin(), visited.end());
            REQUIRE(distinct.size() == static_cast<std::size_t>(samples));
            REQUIRE(*distinct.begin() == 0);
            REQUIRE(*distinct.rbegin() == samples - 1);
        }
    }
}

TEST_CASE("the first place is uniform over seeds") {
    // 6000 draws over 6 samples: each count is within 5 standard deviations (29) of 1000.
    std::vector<int> counts(6, 0);
    for (std::uint64_t seed = 0; seed < 6000; ++seed)
        ++counts.at(static_cast<std::size_t>(Shuffle(seed, 0, 6).sample(0)));
    for (const int count : counts) CHECK(std::abs(count - 1000) < 145);
}

TEST_CASE("the largest range works and a place outside is refused") {
    const std::int64_t largest = std::int64_t{1} << 62;
    const std::int64_t sample = Shuffle(1, 0, largest).sample(largest - 1);
    CHECK((sample >= 0 && sample < largest));
    CHECK_THROWS_AS(Shuffle(1, 0, 10).sample(10), mfsdp::InternalError);
    CHECK_THROWS_AS(Shuffle(1, 0, 0), mfsdp::InternalError);
}
