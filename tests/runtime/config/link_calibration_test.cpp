#include "mfsdp/runtime/config/link_calibration.h"

#include "mfsdp/base/error.h"

#include "runtime/config/config_files.h"

using config_test::TemporaryFile;
using mfsdp::runtime::LinkCalibration;
using mfsdp::runtime::read_link_calibration;

namespace {

/// The message about a file with this content, its path replaced by FILE.
std::string message_about(const std::string& content) {
    const TemporaryFile file(content, "links.json");
    try {
        static_cast<void>(read_link_calibration(file.path().string()));
    } catch (const mfsdp::ConfigError& error) {
        std::string text = error.what();
        for (auto at = text.find(file.path().string()); at != std::string::npos; at = text.find(file.path().string())) {
            text.replace(at, file.path().string().size(), "FILE");
        }
        return text;
    }
    return "none";
}

const std::string kHead = R"({"format": "mfsdp-links", "format_version": 1, )";

}  // namespace

TEST_CASE("a calibration file reads back what was written") {
    for (const bool two_nodes : {false, true}) {
        LinkCalibration written;
        written.local_bytes_per_second = 1.25e10;
        written.within_node = {3.25e-6, 4.5e9};
        if (two_nodes) written.between_nodes = {2.5e-5, 1.1e9};
        const TemporaryFile file(print_link_calibration(written, {{"host", "n1"}}), "links.json");
        const LinkCalibration read = read_link_calibration(file.path().string());
        CHECK(read.local_bytes_per_second == written.local_bytes_per_second);
        REQUIRE(read.within_node);
        CHECK(read.within_node->latency_seconds == 3.25e-6);
        CHECK(read.within_node->bytes_per_second == 4.5e9);
        REQUIRE(read.between_nodes.has_value() == two_nodes);
        if (two_nodes) CHECK(read.between_nodes->bytes_per_second == 1.1e9);
    }
}

TEST_CASE("errors of a calibration file name the file, the key and what is wanted") {
    CHECK(message_about(kHead + R"("local": {"bytes_per_second": 1e10}, "within_node": null})") == "none");
    CHECK(message_about("[]") == "config: FILE: expected object, got list");
    CHECK(message_about("{").starts_with("config: FILE: line 1, column 2: syntax error"));
    CHECK(message_about(R"({"format": "x", "format_version": 2, "local": {"bytes_per_second": 1}})") ==
          "config: FILE: format: must be \"mfsdp-links\", as written by mfsdp-bench calibrate\n"
          "config: FILE: format_version: must be 1");
    CHECK(message_about(kHead + R"("locals": {}})") ==
          "config: FILE: locals: unknown key, did you mean \"local\"?\nconfig: FILE: local: required");
    CHECK(message_about(kHead + R"("local": {"bytes_per_second": 0}})") ==
          "config: FILE: local.bytes_per_second = 0: must be > 0");
    CHECK(message_about(kHead + R"("local": {"bytes_per_second": "fast"}, "between_nodes": 7})") ==
          "config: FILE: local.bytes_per_second: expected number, got string\n"
          "config: FILE: between_nodes: expected object, got integer");
    CHECK(message_about(kHead + R"("local": {"bytes_per_second": 1}, "within_node": {"latency_seconds": 1e-6}})") ==
          "config: FILE: within_node.bytes_per_second: required");
    CHECK_THROWS_AS(read_link_calibration("/nowhere/links.json"), mfsdp::ConfigError);
}

TEST_CASE("link costs of a mesh are measured ones or an error, never mixed with built-in figures") {
    LinkCalibration one_node;
    one_node.local_bytes_per_second = 1e10;
    one_node.within_node = {1e-6, 2e9};
    const mfsdp::comm::Mesh alone = mfsdp::comm::Mesh::single_node(1), pair = mfsdp::comm::Mesh::single_node(2);
    const mfsdp::comm::Mesh apart{1, 2, {0, 1}};
    CHECK(link_model(one_node, pair, "f").bytes_per_second_within_node == 2e9);
    CHECK_THROWS_AS(link_model(one_node, apart, "f"), mfsdp::ConfigError);
    LinkCalibration rank;
    rank.local_bytes_per_second = 1e10;
    CHECK(link_model(rank, alone, "f").bytes_per_second_local == 1e10);
    CHECK_THROWS_AS(link_model(rank, pair, "f"), mfsdp::ConfigError);
    CHECK(link_model(rank, alone, "f").text() != link_model(one_node, alone, "f").text());
}
