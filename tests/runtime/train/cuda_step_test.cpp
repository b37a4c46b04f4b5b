// The engine on the emulated CUDA device: when the host waits, and that a step needs no new memory.
#ifdef MFSDP_EMULATED_CUDA_MODULE

#include "mfsdp/runtime/train/rehearsal.h"

#include "support/catch.h"
#include "support/emulated_cuda.h"
#include "support/training_run.h"

using namespace mfsdp;

namespace {

long long counted(const char* what) {
    return test::emulated_cuda_function<long long(const char*)>("mfsdp_emulated_cuda_count")(what);
}

struct Counts {
    long long waits = 0, allocations = 0;
};

/// The agreement notes how often the host has waited when it is asked.
struct CountingAgreement final : runtime::Agreement {
    explicit CountingAgreement(runtime::Agreement& agreement) : agreement_(agreement) {}
    [[nodiscard]] runtime::GlobalFacts exchange(const runtime::LocalFacts& local) override {
        waits_before = counted("waits");
        return agreement_.exchange(local);
    }
    runtime::Agreement& agreement_;
    long long waits_before = 0;
};

/// Of the fourth step; `waits` of all four.
Counts counts_of_a_later_step(const test::TrainingCase& c, std::uint64_t seed, double& loss, long long& waits) {
    const runtime::RunPlan run = test::training_plan(c);
    const auto device = test::make_emulated_cuda_device("asynchronous=1,workers=1,seed=" + std::to_string(seed));
    const std::unique_ptr<comm::Executor> executor = comm::make_self_executor(*device);
    const std::unique_ptr<comm::Communicator> communicator = comm::make_self_communicator();
    runtime::RankAgreement agreement(*communicator, run.engine.micro_batches);
    CountingAgreement counting(agreement);
    const runtime::Rehearsal rehearsal = runtime::rehearse(run, 0);
    runtime::Engine engine({run.spec, run.plan, run.mesh, 0, *device, *executor, counting}, run.engine,
                           rehearsal.pools);
    engine.weights().initialise(3);
    const runtime::LoadMicroBatch load = [&](std::int64_t micro_batch, std::span<std::int32_t> inputs,
                                             std::span<std::int32_t> targets) {
        test::fill_tokens(c, 1, micro_batch, inputs, targets);
    };
    Counts counts;
    const long long begin = counted("waits");
    for (std::int64_t step = 1; step <= 4; ++step) {
        const Counts before{counted("waits"), counted("allocations")};
        const runtime::StepResult result = engine.step(step, 1.0, load);
        REQUIRE(result.facts.loss.targets > 0);
        loss = result.loss;
        CHECK(counted("waits") == counting.waits_before);  // none behind the agreement
        counts = {counted("waits") - before.waits, counted("allocations") - before.allocations};
    }
    waits = counted("waits") - begin;
    engine.settle();
    std::int64_t total = 0;
    for (std::int64_t category = 0; category < device::kMemoryCategories; ++category) {
        total += engine.memory().peak(static_cast<device::MemoryCategory>(category));
    }
    CHECK(total == rehearsal.total_memory());
    return counts;
}

}  // namespace

TEST_CASE("emulated CUDA: in a step the host waits once, for the agreement, and nothing is allocated") {
    for (const bool gpt2 : {true, false}) {
        test::TrainingCase c;
        c.model = gpt2 ? test::uneven_gpt2() : test::uneven_llama();
        c.micro_batches = 3;
        double loss = 0.0, other = 0.0;
        long long waits = 0;
        const Counts counts = counts_of_a_later_step(c, 1, loss, waits);
        CHECK(counts.waits <= 1);  // none if the device happens to be done already
        CHECK(waits >= 1);
        CHECK(counts.allocations == 0);
        (void)counts_of_a_later_step(c, 2, other, waits);
        CHECK(loss == other);  // whatever the streams' pace
        CHECK(test::emulated_cuda_leaks().empty());
    }
}

#endif
