#include "mfsdp/base/error.h"

#include "support/catch.h"
#include "support/training_run.h"

#include <string>

using namespace mfsdp;

TEST_CASE("a device without enough memory says what for, and what holds the rest") {
    test::TrainingCase c;
    c.model = test::uneven_llama();
    const runtime::Rehearsal rehearsal = runtime::rehearse(test::training_plan(c), 0);
    REQUIRE(rehearsal.total_memory() > 0);
    c.device.memory_bytes = rehearsal.total_memory() - 1;  // one byte too little
    c.steps = 1;
    try {
        static_cast<void>(test::run_training(c));
        FAIL("the run needs a byte more than there is");
    } catch (const OutOfMemoryError& error) {
        const std::string message = error.what();
        INFO(message);
        CHECK(message.find("do not fit") != std::string::npos);
        CHECK(message.find("bytes in use: weights") != std::string::npos);
        CHECK(message.find("gradients") != std::string::npos);
        CHECK(message.find("activations") != std::string::npos);
    }
    // Rounded up to whole allocations it fits exactly: the rehearsal is not a guess.
    c.device.memory_bytes = rehearsal.total_memory() + 16 * device::kAlignment;
    CHECK(test::run_training(c).losses.size() == 1);
}
