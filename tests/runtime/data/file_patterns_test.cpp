#include "mfsdp/runtime/data/file_patterns.h"

#include "mfsdp/base/error.h"

#include "support/catch.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

#include <filesystem>

using mfsdp::DataError;
using mfsdp::runtime::expand_file_patterns;
using mfsdp::test::message_of;
using mfsdp::test::TemporaryDirectory;
using mfsdp::test::write_file;

TEST_CASE("patterns keep their order and the matches of each are sorted by bytes") {
    const TemporaryDirectory folder;
    for (const char* name : {"a10.bin", "a9.bin", "B.bin", "b.bin", "z.txt"}) write_file(folder / name, "x");
    const std::vector<std::string> paths = expand_file_patterns({folder / "z.txt", folder / "*.bin"});
    CHECK(paths == std::vector<std::string>{folder / "z.txt", folder / "B.bin", folder / "a10.bin", folder / "a9.bin",
                                            folder / "b.bin"});
}

TEST_CASE("a pattern without match and a file matched twice are errors") {
    const TemporaryDirectory folder;
    write_file(folder / "a.bin", "x");
    const std::string none = folder / "*.tok";
    CHECK(message_of<DataError>([&] {
              (void)expand_file_patterns({folder / "a.bin", none});
          }) == "data: pattern '" + none + "' matches no file");
    const std::string file = folder / "a.bin";
    const std::string all = folder / "*";
    CHECK(message_of<DataError>([&] {
              (void)expand_file_patterns({file, all});
          }) == "data: " + file + ": matched by '" + file + "' and '" + all + "'");
    const std::string detour = folder.path() + "/./a.bin";
    CHECK(message_of<DataError>([&] {
              (void)expand_file_patterns({file, detour});
          }) == "data: " + detour + ": matched by '" + file + "' and '" + detour + "'");
    std::filesystem::create_symlink(file, folder / "link.bin");
    CHECK(message_of<DataError>([&] { (void)expand_file_patterns({all}); }) ==
          "data: " + (folder / "link.bin") + ": matched by '" + all + "' and '" + all + "'");
}
