#include "mfsdp/runtime/telemetry/run_directory.h"

#include "mfsdp/base/error.h"
#include "mfsdp/base/host_name.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>

#include <sys/file.h>
#include <unistd.h>

namespace mfsdp::runtime {
namespace {

using base::FileDescriptor;
using base::FileMode;
using base::FileUse;

// The folders first: opening the lock file needs them, and it happens while members are initialised.
std::string make_folders(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) throw ConfigError("config: telemetry.run_dir = " + path + ": cannot be created: " + error.message());
    return path;
}

std::string holder(const FileDescriptor& lock) {
    std::string text(static_cast<std::size_t>(lock.size()), '\0');
    lock.read_exact(std::as_writable_bytes(std::span(text)), 0);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.empty() ? "another process" : text;
}

std::string own_name() { return "process " + std::to_string(::getpid()) + " on " + base::host_name(); }

// The files that a run leaves; read before this one opens any of them.
bool holds_files_of_a_run(const std::string& path) {
    return std::filesystem::exists(path + "/metrics.jsonl") || std::filesystem::exists(path + "/model");
}

}  // namespace

RunDirectory::RunDirectory(const std::string& path)
    : path_(make_folders(path)), lock_(path_ + "/.lock", FileMode::update, FileUse::configuration) {
    // flock, not fcntl: the lock belongs to this descriptor and is not lost when other code closes the same file.
    if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
        const int reason = errno;
        const std::string what = reason == EWOULDBLOCK ? "in use by " + holder(lock_)
                                                       : std::string("cannot be locked: ") + std::strerror(reason);
        throw ConfigError("config: telemetry.run_dir = " + path_ + ": " + what);
    }
    const std::string name = own_name() + "\n";
    lock_.resize(0);
    lock_.write_exact(std::as_bytes(std::span(name)), 0);
    had_a_run_ = holds_files_of_a_run(path_);
}

void RunDirectory::write_resolved_config(std::string_view json) const {
    const std::string final_path = path_ + "/config.resolved.json";
    FileDescriptor file(final_path + ".tmp", FileMode::create, FileUse::configuration);
    file.write_exact(std::as_bytes(std::span(json)), 0);
    file.sync();
    file.close();
    base::rename_durably(final_path + ".tmp", final_path, FileUse::configuration);
}

std::string rank_log_path(const std::string& run_dir, std::int64_t rank) {
    std::string number = std::to_string(rank);
    if (number.size() < 5) number.insert(0, 5 - number.size(), '0');
    return make_folders(run_dir + "/logs") + "/rank_" + number + ".log";
}

}  // namespace mfsdp::runtime
