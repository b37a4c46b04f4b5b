#include "runtime/config/resolve.h"

#include "mfsdp/base/error.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace mfsdp::runtime {

void resolve_nulls(Document& document, const std::string& config_name) {
    const auto value = [&](std::string_view path) -> const JsonValue& {
        const JsonValue* found = document.find(path);
        MFSDP_ASSERT(found != nullptr, "a key used to derive another has a value: " + std::string(path));
        return *found;
    };
    const auto replace_null = [&](std::string_view path, const std::function<JsonValue()>& derive) {
        const JsonValue* found = document.find(path);
        if (found != nullptr && found->is(JsonValue::Kind::null)) document.set(path, derive());
    };
    const auto integer = [&](std::string_view path) { return value(path).integer; };

    replace_null("model.num_key_value_heads", [&] { return value("model.num_attention_heads"); });
    replace_null("model.head_dim", [&] {
        return JsonValue::from_integer(integer("model.hidden_size") / integer("model.num_attention_heads"));
    });
    replace_null("model.n_inner", [&] { return JsonValue::from_integer(4 * integer("model.n_embd")); });
    replace_null("optimizer.decay_steps", [&] {
        const bool wsd = value("optimizer.decay_style").text == "wsd";
        const std::int64_t steps = integer("train.steps");
        return JsonValue::from_integer(wsd ? steps / 5 : steps - integer("optimizer.warmup_steps"));
    });
    for (const std::string section : {"optimizer.matrix", "optimizer.element"}) {
        replace_null(section + ".lr", [&] { return value("optimizer.lr"); });
        replace_null(section + ".weight_decay", [&] { return value("optimizer.weight_decay"); });
    }
    replace_null("optimizer.matrix.start_preconditioning_step",
                 [&] { return value("optimizer.matrix.precondition_frequency"); });
    replace_null("optimizer.matrix.shampoo_beta", [&] { return value("optimizer.matrix.betas").items.at(1); });
    replace_null("precision.grad_dtype", [&] { return value("precision.param_dtype"); });
    replace_null("telemetry.run_dir", [&] {
        JsonValue run_dir = JsonValue::from_string("runs/" + config_name);
        std::vector<std::string> ill_formed;
        if (!read_json(canonical_text(run_dir), "telemetry.run_dir", ill_formed)) {
            throw ConfigError("config: telemetry.run_dir: required, the name of the configuration file is not UTF-8");
        }
        return run_dir;
    });
}

}  // namespace mfsdp::runtime
