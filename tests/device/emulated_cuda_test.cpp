#ifdef MFSDP_EMULATED_CUDA_MODULE

#include "support/catch.h"
#include "support/process.h"

#include <string>

namespace mfsdp::device {

namespace {

constexpr int kAnyFailure = -1;

struct Check {
    const char* name;
    const char* sentence;
    int exit_code;
};

}  // namespace

TEST_CASE("the emulated CUDA device notices every planted mistake") {
    const auto check = GENERATE(values<Check>({
        {"nothing", "", 0},
        {"leaked_memory", "48 bytes of device memory were not freed", 1},
        {"leaked_pinned_memory", "48 bytes of pinned memory were not freed", 1},
        {"leaked_event", "a cudaEvent_t was not destroyed", 1},
        {"leaked_handle", "a cublasLtHandle_t was not destroyed", 1},
        {"freed_twice", "freed twice, or never allocated", 1},
        {"freed_as_another_kind", "is not the begin of living memory of this kind", 1},
        {"event_destroyed_twice", "is no living cudaEvent_t", 1},
        {"fresh_memory_read", "noticed\n", 0},
        {"fresh_shared_memory_read", "noticed\n", 0},
        {"missing_barrier", "noticed\n", 0},
        {"barrier", "noticed\n", 0},
        {"missing_event", "noticed\n", 0},
        {"event", "noticed\n", 0},
        {"missing_synchronize", "noticed\n", 0},
        {"divergent_barrier", "the threads of block (0, 0, 0) wait for each other at different barriers", 1},
        {"partial_mask", "only full masks of warps are emulated, got 0000ffff", 1},
        {"absent_lane", "reads from lane 16, which takes no part", 1},
        {"too_many_threads", "invalid configuration argument", 1},
        {"stack_overflow", "", kAnyFailure},  // a signal, or a report of AddressSanitizer
        {"copy_beyond_the_end", "does not lie in one allocation of device memory", 1},
        {"copy_from_ordinary_memory", "host memory that is not pinned makes the copy block the host", 1},
        {"copy_of_unknown_kind", "kind 4 is not emulated", 1},
        {"default_stream", "the default stream is not emulated", 1},
        {"blocking_stream", "only cudaStreamNonBlocking is emulated", 1},
        {"unknown_attribute", "cublasLtMatmulDescSetAttribute: attribute", 1},
        {"unknown_epilogue", "epilogue 2 is not emulated", 1},
        {"odd_auxiliary_rows", "has a leading dimension of 12 for 8 rows, wanted a multiple of 8", 1},
    }));
    const test::ProcessResult result = test::run_command(std::string(MFSDP_EMULATED_CUDA_CHECKS " ") + check.name);
    INFO(check.name << ": " << result.output);
    CHECK((result.exit_code == check.exit_code || (check.exit_code == kAnyFailure && result.exit_code != 0)));
    CHECK(result.output.find(check.sentence) != std::string::npos);
    CHECK(result.output.find("not noticed") == std::string::npos);
}

TEST_CASE("every planted mistake has its row") {
    const test::ProcessResult listed = test::run_command(MFSDP_EMULATED_CUDA_CHECKS);
    CHECK(test::count_of(listed.output, "\n") == 28);
}

TEST_CASE("settings that the emulated CUDA device does not know end the program") {
    const auto run = [](const std::string& settings) {
        return test::run_command("MFSDP_EMULATED_CUDA=" + settings + " " MFSDP_EMULATED_CUDA_CHECKS " nothing").output;
    };
    CHECK(run("devices=2,workers=1") == "");
    CHECK(run("device=2") == "emulated cuda: there is no setting 'device'\n");
    CHECK(run("devices=two") == "emulated cuda: the setting 'devices' is no number: 'two'\n");
    CHECK(run("devices") == "emulated cuda: a setting is name=value, got 'devices'\n");
}

}  // namespace mfsdp::device

#endif
