#include "mfsdp/runtime/config/link_calibration.h"

#include "mfsdp/base/error.h"

#include "runtime/config/document.h"
#include "runtime/config/json_value.h"

#include <algorithm>

namespace mfsdp::runtime {

namespace {

using Kind = JsonValue::Kind;

constexpr std::string_view kFormat = "mfsdp-links";
constexpr std::int64_t kFormatVersion = 1;

/// Reads the values of one file and notes what is wrong with it.
class CalibrationReader {
  public:
    CalibrationReader(const JsonValue& root, std::string path) : root_(root), path_(std::move(path)) {}

    LinkCalibration run() {
        check_format();
        check_names(root_, "", {"format", "format_version", "measured", "local", "within_node", "between_nodes"});
        LinkCalibration result;
        if (const JsonValue* local = section("local")) {
            check_names(*local, "local.", {"bytes_per_second"});
            result.local_bytes_per_second = positive(*local, "local.", "bytes_per_second");
        } else {
            report("local", "required");
        }
        result.within_node = cost("within_node");
        result.between_nodes = cost("between_nodes");
        if (!errors_.empty()) throw ConfigError(join(errors_, "\n"));
        return result;
    }

  private:
    void report(const std::string& key, const std::string& reason) {
        errors_.push_back("config: " + message_text(path_) + ": " + key + ": " + reason);
    }

    void check_format() {
        const JsonValue* format = root_.find("format");
        if (format == nullptr || format->text != kFormat) {
            report("format", "must be \"" + std::string(kFormat) + "\", as written by mfsdp-bench calibrate");
        }
        const JsonValue* version = root_.find("format_version");
        if (version == nullptr || !version->is(Kind::integer) || version->integer != kFormatVersion) {
            report("format_version", "must be " + std::to_string(kFormatVersion));
        }
    }

    void check_names(const JsonValue& object, const std::string& prefix, const std::vector<std::string>& known) {
        for (const JsonMember& member : object.members) {
            if (std::find(known.begin(), known.end(), member.name) != known.end()) continue;
            report(prefix + message_text(member.name), "unknown key, " + suggestion(member.name, known));
        }
    }

    /// An object under this name; nullptr if it is absent, null, or no object, which is an error.
    const JsonValue* section(const std::string& name) {
        const JsonValue* value = root_.find(name);
        if (value == nullptr || value->is(Kind::null)) return nullptr;
        if (value->is(Kind::object)) return value;
        report(name, "expected object, got " + std::string(kind_name(*value)));
        return nullptr;
    }

    double positive(const JsonValue& object, const std::string& prefix, const std::string& name) {
        const JsonValue* value = object.find(name);
        if (value == nullptr) {
            report(prefix + name, "required");
        } else if (!value->is(Kind::number) && !value->is(Kind::integer)) {
            report(prefix + name, "expected number, got " + std::string(kind_name(*value)));
        } else if (!(value->number > 0.0)) {
            report(prefix + name + " = " + message_text(*value), "must be > 0");
        } else {
            return value->number;
        }
        return 1.0;
    }

    std::optional<LinkCost> cost(const std::string& name) {
        const JsonValue* value = section(name);
        if (value == nullptr) return std::nullopt;
        check_names(*value, name + '.', {"latency_seconds", "bytes_per_second"});
        return LinkCost{positive(*value, name + '.', "latency_seconds"),
                        positive(*value, name + '.', "bytes_per_second")};
    }

    const JsonValue& root_;
    std::string path_;
    std::vector<std::string> errors_;
};

JsonValue cost_value(const std::optional<LinkCost>& cost) {
    JsonValue value;
    if (!cost) return value;
    value.set("latency_seconds", JsonValue::from_number(cost->latency_seconds));
    value.set("bytes_per_second", JsonValue::from_number(cost->bytes_per_second));
    return value;
}

}  // namespace

std::string print_link_calibration(const LinkCalibration& calibration,
                                   const std::vector<std::pair<std::string, std::string>>& measured) {
    JsonValue root, local, where;
    root.set("format", JsonValue::from_string(kFormat));
    root.set("format_version", JsonValue::from_integer(kFormatVersion));
    for (const auto& [name, value] : measured) where.set(name, JsonValue::from_string(value));
    root.set("measured", std::move(where));
    local.set("bytes_per_second", JsonValue::from_number(calibration.local_bytes_per_second));
    root.set("local", std::move(local));
    root.set("within_node", cost_value(calibration.within_node));
    root.set("between_nodes", cost_value(calibration.between_nodes));
    return pretty_text(root);
}

LinkCalibration read_link_calibration(const std::string& path) {
    std::vector<std::string> errors;
    const auto root = read_json_file(path, errors);
    if (root && errors.empty() && !root->is(Kind::object)) {
        errors.push_back("config: " + message_text(path) + ": expected object, got " + std::string(kind_name(*root)));
    }
    if (!errors.empty()) throw ConfigError(join(errors, "\n"));
    return CalibrationReader(*root, path).run();
}

comm::LinkModel link_model(const LinkCalibration& calibration, const comm::Mesh& mesh, const std::string& path) {
    comm::LinkModel model;
    model.bytes_per_second_local = calibration.local_bytes_per_second;
    if (calibration.within_node) {
        model.latency_seconds_within_node = calibration.within_node->latency_seconds;
        model.bytes_per_second_within_node = calibration.within_node->bytes_per_second;
    } else if (mesh.ranks() > mesh.nodes()) {
        throw ConfigError("config: parallel.calibration: " + message_text(path) +
                          " has no within_node, but ranks share a node; calibrate with several ranks on a node");
    }
    if (calibration.between_nodes) {
        model.latency_seconds_between_nodes = calibration.between_nodes->latency_seconds;
        model.bytes_per_second_between_nodes = calibration.between_nodes->bytes_per_second;
    } else if (mesh.nodes() > 1) {
        throw ConfigError("config: parallel.calibration: " + message_text(path) +
                          " has no between_nodes, but there are " + std::to_string(mesh.nodes()) +
                          " nodes; calibrate on several nodes");
    }
    return model;
}

}  // namespace mfsdp::runtime
