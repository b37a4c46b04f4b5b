#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace mfsdp::base {

/// Whose file it is: decides the exception type and the first word of every message (`data: <file>: ...`).
enum class FileUse {
    configuration,  ///< ConfigError
    data,           ///< DataError
    checkpoint,     ///< CheckpointError
};

enum class FileMode {
    read,    ///< an existing file, read only
    create,  ///< read and write; an existing file is emptied
    update,  ///< read and write; made if absent, content kept
    append,  ///< write at the end; made if absent, content kept
};

/// Throws the exception of `use` with the message `<use>: <path>: <what>`; an empty path leaves that part out.
[[noreturn]] void raise_file_error(FileUse use, const std::string& path, const std::string& what);

/// An open file. Move-only; closed on exec; the destructor closes and reports a failure on stderr.
///
/// Reads and writes name their offset and do not share a position, so several threads may use one descriptor. They
/// move all bytes or throw; a message names file, bytes and offset.
class FileDescriptor {
  public:
    /// Opens `path`; failure throws with the reason of the system.
    FileDescriptor(std::string path, FileMode mode, FileUse use);
    ~FileDescriptor();
    FileDescriptor(FileDescriptor&& other) noexcept;
    FileDescriptor& operator=(FileDescriptor&& other) noexcept;
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] FileUse use() const noexcept { return use_; }
    /// The number for calls this class does not wrap; still owned here.
    [[nodiscard]] int get() const noexcept { return descriptor_; }

    /// Length in bytes now.
    [[nodiscard]] std::int64_t size() const;
    [[nodiscard]] bool is_regular_file() const;

    /// Fills `out` from `offset`; an end of file before that throws `read <b> of <e> bytes at offset <o>`.
    void read_exact(std::span<std::byte> out, std::int64_t offset) const;
    void write_exact(std::span<const std::byte> bytes, std::int64_t offset) const;
    /// Cuts the file, or extends it with zeros that occupy no blocks.
    void resize(std::int64_t bytes) const;
    /// Waits until the content is on the device.
    void sync() const;
    /// Closes now, so that a late write error of the file system is an exception; nothing else may be called after.
    void close();

  private:
    [[noreturn]] void fail(const std::string& what) const;

    std::string path_;
    FileUse use_;
    int descriptor_ = -1;
};

/// Renames within one file system, replacing `to`, and makes the new name durable.
void rename_durably(const std::string& from, const std::string& to, FileUse use);

}  // namespace mfsdp::base
