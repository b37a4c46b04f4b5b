#include "mfsdp/runtime/config/environment.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"

#include <cstdlib>
#include <string>

using namespace mfsdp::runtime;

namespace {

/// Sets a variable for a scope.
class Variable {
  public:
    Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;
    ~Variable() { ::unsetenv(name_); }

  private:
    const char* name_;
};

}  // namespace

TEST_CASE("a launcher is known by its variables, and whether it started one rank only") {
    for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"}) ::unsetenv(name);
    CHECK_FALSE(started_by_launcher());
    CHECK_FALSE(launched_alone());
    {
        const Variable rank("PMIX_RANK", "0");
        CHECK(started_by_launcher());
        CHECK_FALSE(launched_alone());
        const Variable tasks("SLURM_STEP_NUM_TASKS", "1");
        CHECK(launched_alone());
        const Variable size("OMPI_COMM_WORLD_SIZE", "2");
        CHECK(started_by_launcher());
        CHECK_FALSE(launched_alone());
    }
    const Variable tasks("SLURM_STEP_NUM_TASKS", "4");
    CHECK(started_by_launcher());
    CHECK_FALSE(launched_alone());
}

TEST_CASE("Slurm tells how many tasks there are where no mpirun does") {
    for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"}) ::unsetenv(name);
    CHECK(slurm_tasks() == 0);
    const Variable tasks("SLURM_STEP_NUM_TASKS", "4");
    CHECK(slurm_tasks() == 4);
    const Variable size("OMPI_COMM_WORLD_SIZE", "4");
    CHECK(slurm_tasks() == 0);
}

TEST_CASE("MPI is asked to give way, unless the user has decided") {
    constexpr const char* kName = "OMPI_MCA_mpi_yield_when_idle";
    ::unsetenv(kName);
    let_mpi_yield_when_idle();
    CHECK(std::string(std::getenv(kName)) == "1");
    const Variable own(kName, "0");
    let_mpi_yield_when_idle();
    CHECK(std::string(std::getenv(kName)) == "0");
}

TEST_CASE("threads follow the configuration then OMP_NUM_THREADS then cores and ranks of the node") {
    ::unsetenv("OMP_NUM_THREADS");
    TrainConfig config;
    CHECK(resolve_threads(config, 1) >= 1);
    CHECK(resolve_threads(config, 1 << 20) == 1);
    const Variable variable("OMP_NUM_THREADS", "3");
    CHECK(resolve_threads(config, 1) == 3);
    config.threads = 2;
    CHECK(resolve_threads(config, 1) == 2);
    config.threads.reset();
    {
        const Variable list("OMP_NUM_THREADS", "4,2");
        CHECK(resolve_threads(config, 1) == 4);
    }
    for (const char* const wrong : {"0", "-1", "two", "2x", ",2", "0,2", "2 ,2"}) {
        const Variable bad("OMP_NUM_THREADS", wrong);
        CHECK_THROWS_AS(resolve_threads(config, 1), mfsdp::ConfigError);
    }
}

TEST_CASE("MFSDP_LOG_LEVEL takes the place of telemetry.log_level") {
    TrainConfig config;
    config.telemetry.log_level = LogLevel::warn;
    ::unsetenv("MFSDP_LOG_LEVEL");
    CHECK(resolve_log_level(config) == LogLevel::warn);
    const Variable variable("MFSDP_LOG_LEVEL", "debug");
    CHECK(resolve_log_level(config) == LogLevel::debug);
    const Variable bad("MFSDP_LOG_LEVEL", "loud");
    CHECK_THROWS_AS(resolve_log_level(config), mfsdp::ConfigError);
}
