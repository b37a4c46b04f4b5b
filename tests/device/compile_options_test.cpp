#include "support/catch.h"

#include <fstream>
#include <string>

#include <nlohmann/json.hpp>

// -ffast-math lets the compiler give an element other bits in a loop's vector body than in its tail; the promise of
// equal bits on any number of ranks ends there.
TEST_CASE("no source file is compiled with options that change bits from one element to the next") {
    std::ifstream file(std::string(MFSDP_BINARY_DIR) + "/compile_commands.json");
    REQUIRE(file.good());
    const nlohmann::json commands = nlohmann::json::parse(file);
    REQUIRE_FALSE(commands.empty());
    bool device_sources = false;
    for (const auto& entry : commands) {
        const std::string command = entry.at("command").get<std::string>();
        INFO(command);
        for (const char* option : {"-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-fassociative-math",
                                   "-freciprocal-math", "-ffinite-math-only", "-ffp-contract=fast"}) {
            CHECK(command.find(option) == std::string::npos);
        }
        if (entry.at("file").get<std::string>().find("/src/device/") == std::string::npos) continue;
        device_sources = true;
        CHECK(command.find("-ffp-contract=off") != std::string::npos);
    }
    CHECK(device_sources);
}
