#include "model/strict_json.h"

#include "mfsdp/base/error.h"

#include <cstddef>
#include <set>
#include <vector>

namespace mfsdp::model {

namespace {

using Json = nlohmann::json;

/// Looks for a key that an object has twice. In a pass of its own: the parser's callback costs time by the square of an
/// object's members.
class RepeatedKeys final : public nlohmann::json_sax<Json> {
  public:
    explicit RepeatedKeys(const std::function<void(const std::string&)>& fail) : fail_(fail) {}

    bool start_object(std::size_t) override {
        keys_.emplace_back();
        return true;
    }
    bool end_object() override {
        keys_.pop_back();
        return true;
    }
    bool key(std::string& name) override {
        if (!keys_.back().insert(name).second) fail_("has the key '" + name + "' twice");
        return true;
    }
    bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
        fail_(std::string("is not UTF-8 JSON: ") + error.what());
        return false;
    }
    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(std::int64_t) override { return true; }
    bool number_unsigned(std::uint64_t) override { return true; }
    bool number_float(double, const std::string&) override { return true; }
    bool string(std::string&) override { return true; }
    bool binary(Json::binary_t&) override { return true; }
    bool start_array(std::size_t) override { return true; }
    bool end_array() override { return true; }

  private:
    const std::function<void(const std::string&)>& fail_;
    std::vector<std::set<std::string>> keys_;
};

}  // namespace

Json parse_strict_json(const std::string& text, const std::function<void(const std::string&)>& fail) {
    // The parser takes a zero byte for the end of its input and would not look at what follows.
    if (text.find('\0') != std::string::npos) fail("contains a zero byte");
    RepeatedKeys repeated(fail);
    const bool parsed = Json::sax_parse(text, &repeated);
    MFSDP_ASSERT(parsed, "fail throws");
    return Json::parse(text);
}

}  // namespace mfsdp::model
