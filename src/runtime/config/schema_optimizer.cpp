#include "runtime/config/key_row.h"

namespace mfsdp::runtime::rows {

namespace {

KeyBuilder of(std::vector<std::string_view> optimizers, KeyBuilder row) {
    return row.only("optimizer.matrix.name", std::move(optimizers));
}
KeyBuilder muon(KeyBuilder row) { return of({"muon"}, std::move(row)); }

void append_matrix_keys(std::vector<KeyRow>& rows) {
    const std::vector<std::string_view> any = {"muon", "shampoo", "soap"};
    const std::vector<KeyRow> keys = {
        name("optimizer.matrix.name", "\"muon\"")
            .meaning("none: everything by the element section, and no other key of this section")
            .names({"muon", "none"}, {"shampoo", "soap"}),
        of(any, number("optimizer.matrix.lr").meaning("null: the value of `optimizer`").above_zero()),
        of(any, number("optimizer.matrix.weight_decay").meaning("null: the value of `optimizer`").at_least_zero()),
        of(any, string_list("optimizer.matrix.exclude", "[]")
                    .meaning("patterns of matrix names to be handled by the element section")),
        of(any, boolean("optimizer.matrix.split_qkv", "true").meaning("fused q, k, v blocks as separate matrices")),
        of(any, boolean("optimizer.matrix.split_heads", "false")
                    .meaning("the heads of q, k, v as separate matrices")
                    .later({"false"})),
        muon(number("optimizer.matrix.momentum", "0.95").meaning("decay of the momentum").from_zero_below_one()),
        muon(name("optimizer.matrix.momentum_form", "\"ema\"")
                 .meaning("ema: M = beta M + (1 - beta) G; heavy_ball: M = beta M + G")
                 .names({"ema", "heavy_ball"})),
        muon(boolean("optimizer.matrix.nesterov", "true").meaning("look ahead by one step of the momentum")),
        muon(
            integer("optimizer.matrix.num_ns_steps", "5").meaning("Newton-Schulz steps").in(1, 20).allowed("in 1..20")),
        muon(name("optimizer.matrix.coefficient_type", "\"quintic\"")
                 .meaning("table of Newton-Schulz coefficients")
                 .names({"quintic", "simple", "polar_express", "dsv4"})),
        muon(name("optimizer.matrix.scale_mode", "\"match_rms_adamw\"")
                 .meaning("0.2 sqrt(max(r,c)); sqrt(max(1,r/c)); sqrt(r/c); sqrt(max(r,c)); r x c = out x in")
                 .names({"match_rms_adamw", "original", "unit_rms_norm", "spectral"})),
        muon(number("optimizer.matrix.extra_scale_factor", "1").meaning("times that scale").above_zero()),
        // The default stays the page's, so that a file without the key does not change its meaning later.
        muon(name("optimizer.matrix.ns_dtype", "\"bfloat16\"")
                 .meaning("type of the iterates (norm and momentum are float32)")
                 .names({"float32"}, {"bfloat16", "float16"})
                 .hint("set \"float32\"")),
        muon(name("optimizer.matrix.ns_method", "\"auto\"")
                 .meaning("auto: by shape and cost")
                 .names({"auto", "standard"}, {"gram"})),
        muon(boolean("optimizer.matrix.cautious_weight_decay", "false")
                 .meaning("decay only where weight and direction agree")
                 .later({"false"})),
        muon(boolean("optimizer.matrix.normuon", "false").meaning("row-wise second moment").later({"false"})),
        muon(number("optimizer.matrix.normuon_beta2").meaning("decay of the row-wise second moment").later({})),
        muon(number("optimizer.matrix.normuon_epsilon").meaning("added to its root").later({})),
    };
    rows.insert(rows.end(), keys.begin(), keys.end());
}

/// Known so that messages can name the optimizer that has the key; values are not looked at, as the names of both
/// optimizers are refused.
void append_later_optimizers(std::vector<KeyRow>& rows) {
    const auto append = [&rows](const std::vector<std::string_view>& optimizers,
                                const std::vector<std::string_view>& paths) {
        for (const auto path : paths) rows.push_back(of(optimizers, string(path).later({})));
    };
    append({"shampoo", "soap"}, {"optimizer.matrix.betas", "optimizer.matrix.epsilon_mode",
                                 "optimizer.matrix.precondition_frequency", "optimizer.matrix.max_preconditioner_dim",
                                 "optimizer.matrix.stagger_refresh", "optimizer.matrix.max_refresh_failures"});
    append({"shampoo"}, {"optimizer.matrix.epsilon", "optimizer.matrix.inverse_exponent",
                         "optimizer.matrix.root_method", "optimizer.matrix.grafting",
                         "optimizer.matrix.grafting_epsilon", "optimizer.matrix.start_preconditioning_step"});
    append({"soap"},
           {"optimizer.matrix.shampoo_beta", "optimizer.matrix.eps", "optimizer.matrix.weight_decay_order",
            "optimizer.matrix.one_sided", "optimizer.matrix.normalize_grads", "optimizer.matrix.skip_first_step"});
}

}  // namespace

std::vector<KeyRow> optimizer_keys() {
    std::vector<KeyRow> rows = {
        number("optimizer.lr").meaning("peak rate").required().above_zero(),
        number("optimizer.min_lr", "0").meaning("final rate").at_least_zero(),
        integer("optimizer.warmup_steps", "0").meaning("linear warm-up").at_least_zero(),
        integer("optimizer.decay_steps")
            .meaning("the last steps, over which the rate decays; null: steps - warmup_steps, for wsd steps / 5")
            .at_least_zero(),
        name("optimizer.decay_style", "\"cosine\"")
            .meaning("see \"Learning rate\"")
            .names({"constant", "linear", "cosine", "wsd"}),
        number("optimizer.weight_decay", "0.1")
            .meaning("decoupled, times the unscaled rate, applied before the update")
            .at_least_zero(),
        number("optimizer.clip_grad", "1")
            .meaning("limit of the global L2 norm of the raw gradient; 0: none")
            .at_least_zero(),
        number("optimizer.qk_clip_threshold", "0")
            .meaning("scale down query and key rows whose logits exceed it; 0 off")
            .later({"0"}),
        number("optimizer.qk_clip_alpha").meaning("share of that scale taken by the query rows").later({}),
    };
    append_matrix_keys(rows);
    append_later_optimizers(rows);
    const std::vector<KeyRow> element = {
        name("optimizer.element.name", "\"adamw\"")
            .meaning("optimizer of embeddings, head, norms, biases and excluded matrices")
            .names({"adamw"}),
        number("optimizer.element.lr").meaning("null: the value of `optimizer`").above_zero(),
        number("optimizer.element.weight_decay").meaning("null: the value of `optimizer`").at_least_zero(),
        number_list("optimizer.element.betas", "[0.9,0.95]")
            .meaning("decay of the first and second moments")
            .from_zero_below_one()
            .two_entries("two in [0, 1)"),
        number("optimizer.element.eps", "1e-8").meaning("added after bias correction").above_zero(),
        boolean("optimizer.element.decay_vectors", "false").meaning("weight decay on norms and biases too"),
    };
    rows.insert(rows.end(), element.begin(), element.end());
    return rows;
}

}  // namespace mfsdp::runtime::rows
