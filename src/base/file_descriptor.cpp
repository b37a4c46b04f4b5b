#include "mfsdp/base/file_descriptor.h"

#include "mfsdp/base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace mfsdp::base {
namespace {

int open_flags(FileMode mode) {
    switch (mode) {
        case FileMode::read:
            return O_RDONLY;
        case FileMode::create:
            return O_RDWR | O_CREAT | O_TRUNC;
        case FileMode::update:
            return O_RDWR | O_CREAT;
        case FileMode::append:
            return O_WRONLY | O_CREAT | O_APPEND;
    }
    raise_internal_error("mode", __FILE__, __LINE__, "every file mode has its flags");
}

std::string reason() { return std::strerror(errno); }

std::string transfer_text(const char* verb, std::size_t done, std::size_t wanted, std::int64_t offset) {
    return std::string(verb) + " " + std::to_string(done) + " of " + std::to_string(wanted) + " bytes at offset " +
           std::to_string(offset);
}

}  // namespace

void raise_file_error(FileUse use, const std::string& path, const std::string& what) {
    const std::string rest = path.empty() ? what : path + ": " + what;
    switch (use) {
        case FileUse::configuration:
            throw ConfigError("config: " + rest);
        case FileUse::data:
            throw DataError("data: " + rest);
        case FileUse::checkpoint:
            throw CheckpointError("checkpoint: " + rest);
    }
    raise_internal_error("use", __FILE__, __LINE__, "every use of a file has its exception");
}

FileDescriptor::FileDescriptor(std::string path, FileMode mode, FileUse use) : path_(std::move(path)), use_(use) {
    // Opening a pipe waits for its writer, perhaps forever; nobody can then say that a pipe is no data file.
    const int flags = open_flags(mode) | (mode == FileMode::read && use == FileUse::data ? O_NONBLOCK : 0);
    do {
        descriptor_ = ::open(path_.c_str(), flags | O_CLOEXEC, 0666);
    } while (descriptor_ < 0 && errno == EINTR);
    if (descriptor_ < 0) fail("cannot open: " + reason());
}

FileDescriptor::~FileDescriptor() {
    if (descriptor_ >= 0 && ::close(descriptor_) != 0) {
        std::fprintf(stderr, "%s: closing failed: %s\n", path_.c_str(), std::strerror(errno));
    }
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept
    : path_(std::move(other.path_)), use_(other.use_), descriptor_(std::exchange(other.descriptor_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(use_, other.use_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

void FileDescriptor::fail(const std::string& what) const { raise_file_error(use_, path_, what); }

std::int64_t FileDescriptor::size() const {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail("cannot read the size: " + reason());
    return status.st_size;
}

bool FileDescriptor::is_regular_file() const {
    struct stat status {};
    if (::fstat(descriptor_, &status) != 0) fail("cannot read the file type: " + reason());
    return S_ISREG(status.st_mode);
}

void FileDescriptor::read_exact(std::span<std::byte> out, std::int64_t offset) const {
    std::size_t done = 0;
    while (done < out.size()) {
        const ssize_t count =
            ::pread(descriptor_, out.data() + done, out.size() - done, offset + static_cast<std::int64_t>(done));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail(transfer_text("read", done, out.size(), offset) + ": " + reason());
        if (count == 0) fail(transfer_text("read", done, out.size(), offset));
        done += static_cast<std::size_t>(count);
    }
}

void FileDescriptor::write_exact(std::span<const std::byte> bytes, std::int64_t offset) const {
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t count =
            ::pwrite(descriptor_, bytes.data() + done, bytes.size() - done, offset + static_cast<std::int64_t>(done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) {
            fail(transfer_text("wrote", done, bytes.size(), offset) + ": " + (count < 0 ? reason() : "no progress"));
        }
        done += static_cast<std::size_t>(count);
    }
}

void FileDescriptor::resize(std::int64_t bytes) const {
    if (::ftruncate(descriptor_, bytes) != 0) fail("cannot set the size to " + std::to_string(bytes) + ": " + reason());
}

void FileDescriptor::sync() const {
    if (::fsync(descriptor_) != 0) fail("fsync failed: " + reason());
}

void FileDescriptor::close() {
    // The number is free again even if close reports an error: closing twice could hit another thread's file.
    if (::close(std::exchange(descriptor_, -1)) != 0) fail("closing failed: " + reason());
}

void rename_durably(const std::string& from, const std::string& to, FileUse use) {
    if (::rename(from.c_str(), to.c_str()) != 0) {
        raise_file_error(use, from, "cannot rename to '" + to + "': " + reason());
    }
    const std::filesystem::path parent = std::filesystem::path(to).parent_path();
    FileDescriptor(parent.empty() ? "." : parent.string(), FileMode::read, use).sync();
}

}  // namespace mfsdp::base
