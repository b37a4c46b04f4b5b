#include "mfsdp/runtime/telemetry/metrics_writer.h"

#include "mfsdp/base/error.h"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iostream>
#include <span>

#include <unistd.h>

namespace mfsdp::runtime {
namespace {

using base::FileDescriptor;
using base::FileMode;
using base::FileUse;

bool ends_inside_a_line(const std::string& path) {
    const FileDescriptor file(path, FileMode::read, FileUse::configuration);
    const std::int64_t bytes = file.is_regular_file() ? file.size() : 0;
    if (bytes == 0) return false;
    std::byte last{};
    file.read_exact(std::span(&last, 1), bytes - 1);
    return last != std::byte{'\n'};
}

}  // namespace

MetricsWriter::MetricsWriter(const std::string& path) : MetricsWriter(path, std::cerr) {}

MetricsWriter::MetricsWriter(const std::string& path, std::ostream& errors)
    : file_(std::in_place, path, FileMode::append, FileUse::configuration),
      errors_(errors),
      line_is_cut_(ends_inside_a_line(path)) {}

void MetricsWriter::write_line(std::string line) {
    if (!file_) return;
    line += '\n';
    if (line_is_cut_) line.insert(line.begin(), '\n');
    line_is_cut_ = false;
    std::string_view rest = line;
    while (!rest.empty()) {
        const ssize_t count = ::write(file_->get(), rest.data(), rest.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            errors_ << "telemetry: " << file_->path() << ": " << (count < 0 ? std::strerror(errno) : "no progress")
                    << "; no more metrics are written, training goes on" << std::endl;
            file_.reset();
            return;
        }
        rest.remove_prefix(static_cast<std::size_t>(count));
    }
}

}  // namespace mfsdp::runtime
