#include "runtime/config/document.h"

#include <cstdint>
#include <limits>
#include <optional>

namespace mfsdp::runtime {

namespace {

/// Reads the document for checks of two keys: a key that is absent or was wrong makes its checks say nothing.
class PairCheck {
  public:
    PairCheck(const Document& document, std::vector<std::string>& errors) : document_(document), errors_(errors) {}

    void run() {
        check_batch();
        check_heads("model.hidden_size", "model.num_attention_heads");
        check_heads("model.n_embd", "model.n_head");
        check_key_value_heads();
        check_sequence("model.max_position_embeddings");
        check_sequence("model.n_positions");
        check_bytes_vocabulary();
        check_rates();
        check_sums();
        check_heads_as_matrices();
        check_gram();
        check_clipped_heads();
        check_tokens();
        check_validation();
        check_device();
    }

  private:
    [[nodiscard]] std::optional<std::int64_t> integer(std::string_view path) const {
        const JsonValue* value = document_.find(path);
        if (value == nullptr || !value->is(JsonValue::Kind::integer)) return std::nullopt;
        return value->integer;
    }

    [[nodiscard]] bool is_name(std::string_view path, std::string_view name) const {
        const JsonValue* value = document_.find(path);
        return value != nullptr && value->text == name;
    }

    /// `a.b = 5`, the value as it was written.
    [[nodiscard]] std::string shown(std::string_view path) const {
        return std::string(path) + " = " + message_text(*document_.find(path));
    }

    /// The same without the section, for the second key of a message.
    [[nodiscard]] std::string shown_name(std::string_view path) const {
        return shown(path).substr(path.rfind('.') + 1);
    }

    void report(const std::string& text) { errors_.push_back("config: " + text); }

    void check_batch() {
        const auto global = integer("train.global_batch_size");
        const auto micro = integer("train.micro_batch_size");
        if (!global || !micro || *global % *micro == 0) return;
        const std::int64_t next = (*global / *micro + 1) * *micro;
        report(shown("train.global_batch_size") + ": must be a multiple of " + shown_name("train.micro_batch_size") +
               " (next: " + std::to_string(next) + ')');
    }

    void check_heads(std::string_view size_path, std::string_view heads_path) {
        const auto size = integer(size_path);
        const auto heads = integer(heads_path);
        if (!size || !heads || integer("model.head_dim")) return;
        const bool llama = document_.find("model.head_dim") != nullptr;
        if (*size % *heads != 0) {
            report(shown(size_path) + ": must be a multiple of " + shown_name(heads_path) +
                   (llama ? ", or set head_dim" : ""));
        } else if (llama && (*size / *heads) % 2 != 0) {
            // Rotary embedding turns pairs.
            report(shown(size_path) + ": with " + shown_name(heads_path) + " head_dim would be " +
                   std::to_string(*size / *heads) + ", must be even");
        }
    }

    void check_key_value_heads() {
        const auto key_value = integer("model.num_key_value_heads");
        const auto heads = integer("model.num_attention_heads");
        if (!key_value || !heads || *heads % *key_value == 0) return;
        report(shown("model.num_key_value_heads") + ": must divide " + shown_name("model.num_attention_heads"));
    }

    void check_sequence(std::string_view positions_path) {
        const auto length = integer("train.seq_len");
        const auto positions = integer(positions_path);
        if (!length || !positions || *length <= *positions) return;
        report(shown("train.seq_len") + ": the model has " + shown_name(positions_path));
    }

    void check_bytes_vocabulary() {
        const auto vocabulary = integer("model.vocab_size");
        if (!vocabulary || *vocabulary >= 257 || !is_name("data.format", "bytes")) return;
        report(shown("model.vocab_size") + ": the byte tokenizer needs >= 257");
    }

    void check_rates() {
        const JsonValue* lr = document_.find("optimizer.lr");
        const JsonValue* min_lr = document_.find("optimizer.min_lr");
        if (lr != nullptr && min_lr != nullptr && min_lr->number > lr->number) {
            report(shown("optimizer.min_lr") + ": must be <= " + shown_name("optimizer.lr"));
        }
        const auto steps = integer("train.steps");
        const auto warmup = integer("optimizer.warmup_steps");
        if (!steps || !warmup) return;
        const bool wsd = is_name("optimizer.decay_style", "wsd");
        const auto decay = integer("optimizer.decay_steps").value_or(wsd ? *steps / 5 : 0);
        if (decay == 0 && *warmup > *steps) {
            report(shown("optimizer.warmup_steps") + ": must be <= " + shown("train.steps"));
        } else if (*warmup + decay > *steps) {
            report("optimizer.warmup_steps + decay_steps = " + std::to_string(*warmup + decay) +
                   ": must be <= " + shown("train.steps"));
        }
    }

    /// Shampoo's sums: only the second beta may be 1, and then no graft can take its average with it.
    void check_sums() {
        const JsonValue* betas = document_.find("optimizer.matrix.betas");
        if (betas == nullptr || betas->items.size() != 2 || !is_name("optimizer.matrix.name", "shampoo")) return;
        if (betas->items[0].number == 1.0) {
            report(shown("optimizer.matrix.betas") + ": must be two in [0, 1), the second may be 1");
        }
        const bool averages =
            is_name("optimizer.matrix.grafting", "adam") || is_name("optimizer.matrix.grafting", "rmsprop");
        if (betas->items[1].number == 1.0 && averages) {
            report(shown("optimizer.matrix.grafting") +
                   ": averages squares with betas[1], which must be < 1; sums go with adagrad, sgd or none");
        }
    }

    void check_heads_as_matrices() {
        const JsonValue* heads = document_.find("optimizer.matrix.split_heads");
        const JsonValue* fused = document_.find("optimizer.matrix.split_qkv");
        if (heads == nullptr || fused == nullptr || !heads->boolean || fused->boolean) return;
        report(shown("optimizer.matrix.split_heads") + ": needs split_qkv = true");
    }

    /// Its recurrences lose too much in bfloat16, and float32 is the reference: nothing is gained there.
    void check_gram() {
        if (!is_name("optimizer.matrix.ns_method", "gram") || is_name("optimizer.matrix.ns_dtype", "float16")) return;
        if (document_.find("optimizer.matrix.ns_dtype") == nullptr) return;
        report(shown("optimizer.matrix.ns_method") + ": needs ns_dtype = float16");
    }

    void check_clipped_heads() {
        const JsonValue* threshold = document_.find("optimizer.qk_clip_threshold");
        if (threshold == nullptr || threshold->number == 0.0 || !is_name("model.model_type", "qwen3")) return;
        report(shown("optimizer.qk_clip_threshold") + ": no use with q/k norm (qwen3)");
    }

    void check_tokens() {
        const auto steps = integer("train.steps");
        const auto batch = integer("train.global_batch_size");
        const auto length = integer("train.seq_len");
        if (!steps || !batch || !length) return;
        const double tokens = static_cast<double>(*steps) * static_cast<double>(*batch) * static_cast<double>(*length);
        if (tokens < static_cast<double>(std::numeric_limits<std::int64_t>::max())) return;
        report("train.steps x global_batch_size x seq_len: more tokens than 64 bits count, must be < 2^63");
    }

    void check_validation() {
        const auto interval = integer("train.eval_interval");
        const JsonValue* valid = document_.find("data.valid");
        if (!interval || *interval == 0 || valid == nullptr || !valid->items.empty()) return;
        report(shown("train.eval_interval") + ": needs data.valid");
    }

    void check_device() {
        if (is_name("device", "cpu") && is_name("parallel.transport", "nccl")) {
            report(shown("parallel.transport") + ": needs device = cuda");
        }
    }

    const Document& document_;
    std::vector<std::string>& errors_;
};

}  // namespace

void check_key_pairs(const Document& document, std::vector<std::string>& errors) { PairCheck(document, errors).run(); }

}  // namespace mfsdp::runtime
