#include "mfsdp/base/file_descriptor.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

#include <array>
#include <filesystem>
#include <utility>

using mfsdp::base::FileDescriptor;
using mfsdp::base::FileMode;
using mfsdp::base::FileUse;
using mfsdp::test::message_of;
using mfsdp::test::TemporaryDirectory;

TEST_CASE("a short read names file, bytes and offset") {
    const TemporaryDirectory folder;
    const std::string path = folder / "ten";
    mfsdp::test::write_file(path, "0123456789");
    const FileDescriptor file(path, FileMode::read, FileUse::data);
    CHECK(file.size() == 10);
    CHECK(file.is_regular_file());
    std::array<std::byte, 4> four{};
    file.read_exact(four, 6);
    CHECK(four[0] == std::byte{'6'});
    CHECK(message_of<mfsdp::DataError>([&] { file.read_exact(four, 7); }) ==
          "data: " + path + ": read 3 of 4 bytes at offset 7");
    CHECK(message_of<mfsdp::DataError>([&] { file.read_exact(four, 50); }) ==
          "data: " + path + ": read 0 of 4 bytes at offset 50");
}

TEST_CASE("the use of a file decides the type of its errors") {
    const TemporaryDirectory folder;
    const std::string path = folder / "absent";
    const std::string rest = path + ": cannot open: No such file or directory";
    const auto open_as = [&](FileUse use) { return [&path, use] { FileDescriptor(path, FileMode::read, use); }; };
    CHECK(message_of<mfsdp::ConfigError>(open_as(FileUse::configuration)) == "config: " + rest);
    CHECK(message_of<mfsdp::DataError>(open_as(FileUse::data)) == "data: " + rest);
    CHECK(message_of<mfsdp::CheckpointError>(open_as(FileUse::checkpoint)) == "checkpoint: " + rest);
}

TEST_CASE("pieces written at their offsets make the file, and a rename gives it its name") {
    const TemporaryDirectory folder;
    FileDescriptor file(folder / "part", FileMode::create, FileUse::checkpoint);
    file.resize(6);
    const std::string word = "abc";
    file.write_exact(std::as_bytes(std::span(word)), 3);
    file.sync();
    file.close();
    mfsdp::base::rename_durably(folder / "part", folder / "whole", FileUse::checkpoint);
    CHECK(mfsdp::test::read_file(folder / "whole") == std::string("\0\0\0abc", 6));
    CHECK_FALSE(std::filesystem::exists(folder / "part"));
}

TEST_CASE("a full device is an error and not a shorter file") {
    const FileDescriptor file("/dev/full", FileMode::update, FileUse::checkpoint);
    const std::string word = "abc";
    CHECK(message_of<mfsdp::CheckpointError>([&] { file.write_exact(std::as_bytes(std::span(word)), 0); }) ==
          "checkpoint: /dev/full: wrote 0 of 3 bytes at offset 0: No space left on device");
}

TEST_CASE("a moved descriptor is closed once, by its new owner") {
    const TemporaryDirectory folder;
    mfsdp::test::write_file(folder / "a", "a");
    mfsdp::test::write_file(folder / "bb", "bb");
    FileDescriptor first(folder / "a", FileMode::read, FileUse::data);
    FileDescriptor second(folder / "bb", FileMode::read, FileUse::data);
    first = std::move(second);
    CHECK(first.size() == 2);
    CHECK(first.path() == folder / "bb");
}
