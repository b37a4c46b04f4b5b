#include "mfsdp/runtime/telemetry/log.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"
#include "support/temporary_directory.h"

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

using mfsdp::runtime::Log;
using mfsdp::runtime::LogLevel;
using mfsdp::runtime::LogOptions;
using mfsdp::test::read_file;
using mfsdp::test::TemporaryDirectory;

namespace {

// Sends standard error of this process to a file while it lives.
class CapturedStderr {
  public:
    explicit CapturedStderr(const std::string& path) : saved_(::dup(STDERR_FILENO)) {
        const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
        ::dup2(file, STDERR_FILENO);
        ::close(file);
    }
    ~CapturedStderr() {
        ::dup2(saved_, STDERR_FILENO);
        ::close(saved_);
    }
    CapturedStderr(const CapturedStderr&) = delete;
    CapturedStderr& operator=(const CapturedStderr&) = delete;

  private:
    int saved_;
};

std::vector<std::string> lines_of(const std::string& path) {
    std::istringstream text(read_file(path));
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    return lines;
}

}  // namespace

TEST_CASE("a log file has the messages at or above the level, with rank and level, as they are") {
    const TemporaryDirectory folder;
    LogOptions options;
    options.level = LogLevel::info;
    options.rank = 3;
    options.console = false;
    options.file_path = folder / "rank.log";
    Log log(options);
    log.debug("hidden");
    log.info("100 % {} of {0}");
    log.warn("careful");
    log.error("broken");
    const std::vector<std::string> lines = lines_of(options.file_path);
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].ends_with(" rank 3 info: 100 % {} of {0}"));
    CHECK(lines[1].ends_with(" rank 3 warning: careful"));
    CHECK(lines[2].ends_with(" rank 3 error: broken"));
    Log(options).info("again");
    CHECK(lines_of(options.file_path).size() == 4);
}

TEST_CASE("a message of several lines is logged line by line") {
    const TemporaryDirectory folder;
    LogOptions options;
    options.console = false;
    options.file_path = folder / "rank.log";
    Log(options).info("a table\n  first row\n\n  last row\n");
    const std::vector<std::string> lines = lines_of(options.file_path);
    REQUIRE(lines.size() == 4);
    CHECK(lines[0].ends_with(" rank 0 info: a table"));
    CHECK(lines[1].ends_with(" rank 0 info:   first row"));
    CHECK(lines[2].ends_with(" rank 0 info: "));
    CHECK(lines[3].ends_with(" rank 0 info:   last row"));
}

TEST_CASE("console lines go to standard error and erase a progress bar if told to") {
    const TemporaryDirectory folder;
    {
        const CapturedStderr capture(folder / "stderr");
        LogOptions options;
        options.level = LogLevel::debug;
        options.clears_line = true;
        Log(options).debug("seen");
    }
    const std::vector<std::string> lines = lines_of(folder / "stderr");
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].starts_with("\r\x1b[K"));
    CHECK(lines[0].ends_with("debug: seen"));
}

TEST_CASE("a full disk ends the log file with one message and the program goes on") {
    const TemporaryDirectory folder;
    const std::string path = folder / "full.log";
    std::filesystem::create_symlink("/dev/full", path);
    {
        const CapturedStderr capture(folder / "stderr");
        LogOptions options;
        options.file_path = path;
        Log log(options);
        log.info("one");
        log.info("two");
    }
    const std::vector<std::string> lines = lines_of(folder / "stderr");
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].ends_with("info: one"));
    CHECK(lines[1].starts_with("telemetry: " + path + ": "));
    CHECK(lines[2].ends_with("info: two"));
}

TEST_CASE("a log file that cannot be opened is a configuration error") {
    const TemporaryDirectory folder;
    LogOptions options;
    options.console = false;
    options.file_path = folder.path();
    CHECK_THROWS_AS(Log(options), mfsdp::ConfigError);
}
