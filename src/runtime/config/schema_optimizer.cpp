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
            .names({"muon", "shampoo", "soap", "none"}),
        of(any, number("optimizer.matrix.lr").meaning("null: the value of `optimizer`").above_zero()),
        of(any, number("optimizer.matrix.weight_decay").meaning("null: the value of `optimizer`").at_least_zero()),
        of(any, string_list("optimizer.matrix.exclude", "[]")
                    .meaning("patterns of matrix names to be handled by the element section")),
        of(any, boolean("optimizer.matrix.split_qkv", "true").meaning("fused q, k, v blocks as separate matrices")),
        of(any, boolean("optimizer.matrix.split_heads", "false").meaning("the heads of q, k, v as separate matrices")),
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
        muon(name("optimizer.matrix.ns_dtype", "\"bfloat16\"")
                 .meaning("type of the iterates (norm and momentum are float32)")
                 .names({"bfloat16", "float16", "float32"})),
        muon(name("optimizer.matrix.ns_method", "\"auto\"")
                 .meaning("auto: by shape and cost; gram needs float16")
                 .names({"auto", "standard", "gram"})),
        muon(boolean("optimizer.matrix.cautious_weight_decay", "false")
                 .meaning("decay only where weight and direction agree in sign")),
        muon(boolean("optimizer.matrix.normuon", "false")
                 .meaning("divide the rows of the direction by the root of their second moment")),
        muon(number("optimizer.matrix.normuon_beta2", "0.95")
                 .meaning("decay of that second moment")
                 .from_zero_below_one()
                 .only("optimizer.matrix.normuon", {"true"})),
        muon(number("optimizer.matrix.normuon_epsilon", "1e-8")
                 .meaning("added to its root")
                 .above_zero()
                 .only("optimizer.matrix.normuon", {"true"})),
    };
    rows.insert(rows.end(), keys.begin(), keys.end());
}

/// Keys that Shampoo and SOAP share, some with defaults of their own.
void append_preconditioner_keys(std::vector<KeyRow>& rows) {
    const std::vector<std::string_view> both = {"shampoo", "soap"};
    // LAPACK counts the elements of a solver's memory, about 2 n^2, with 32 bits.
    constexpr std::int64_t kLargestSide = 32000;
    const std::vector<KeyRow> keys = {
        of(both, integer("optimizer.matrix.precondition_frequency", "10")
                     .meaning("steps between refreshes of roots or bases")
                     .at_least(1)),
        of(both, integer("optimizer.matrix.max_preconditioner_dim", "8192")
                     .meaning("longer sides are left unpreconditioned")
                     .at_least(1)
                     .ceiling(kLargestSide)),
        of(both, boolean("optimizer.matrix.stagger_refresh", "true")
                     .meaning("shift refreshes by matrix number, never by rank, so that no step has all")),
        of(both, integer("optimizer.matrix.max_refresh_failures", "3")
                     .meaning("a failed refresh keeps the old root or basis; more in a row: exit 5")
                     .at_least_zero()),
    };
    rows.insert(rows.end(), keys.begin(), keys.end());
}

void append_shampoo_keys(std::vector<KeyRow>& rows) {
    const auto shampoo = [](KeyBuilder row) { return of({"shampoo"}, std::move(row)); };
    const std::vector<KeyRow> keys = {
        shampoo(number_list("optimizer.matrix.betas", "[0.9,0.95]")
                    .meaning("decay of the averaged gradient, and of factors and graft; a second of 1 sums factors")
                    .from_zero_to_one()
                    .two_entries("two in [0, 1), the second may be 1")),
        shampoo(number("optimizer.matrix.epsilon", "1e-6").meaning("ridge of a root").above_zero()),
        shampoo(name("optimizer.matrix.epsilon_mode", "\"relative\"")
                    .meaning("relative: to the largest eigenvalue")
                    .names({"relative", "absolute"})),
        shampoo(number("optimizer.matrix.inverse_exponent", "0.25")
                    .meaning("exponent of a root, for each side")
                    .one_of({0.125, 0.25, 0.5}, "one of 0.125, 0.25, 0.5")),
        shampoo(name("optimizer.matrix.root_method", "\"eigen\"")
                    .meaning("how roots are computed")
                    .names({"eigen", "coupled_newton"})),
        shampoo(name("optimizer.matrix.grafting", "\"adam\"")
                    .meaning("whose step length is taken")
                    .names({"adam", "rmsprop", "adagrad", "sgd", "none"})),
        shampoo(number("optimizer.matrix.grafting_epsilon", "1e-8").meaning("denominator of the graft").above_zero()),
        shampoo(integer("optimizer.matrix.start_preconditioning_step")
                    .meaning("the graft's own step before it; null: precondition_frequency")
                    .at_least(1)),
    };
    rows.insert(rows.end(), keys.begin(), keys.end());
}

void append_soap_keys(std::vector<KeyRow>& rows) {
    const auto soap = [](KeyBuilder row) { return of({"soap"}, std::move(row)); };
    const std::vector<KeyRow> keys = {
        soap(number_list("optimizer.matrix.betas", "[0.95,0.95]")
                 .meaning("decay of the first and second moments")
                 .from_zero_below_one()
                 .two_entries("two in [0, 1)")),
        soap(number("optimizer.matrix.shampoo_beta")
                 .meaning("decay of the factors; null: betas[1]")
                 .from_zero_below_one()),
        soap(number("optimizer.matrix.eps", "1e-8").meaning("denominator").above_zero()),
        soap(name("optimizer.matrix.epsilon_mode", "\"corrected\"")
                 .meaning("corrected: eps is added after bias correction")
                 .names({"corrected", "uncorrected"})),
        soap(name("optimizer.matrix.weight_decay_order", "\"before\"")
                 .meaning("before or after the update")
                 .names({"before", "after"})),
        soap(boolean("optimizer.matrix.one_sided", "false").meaning("basis on the smaller side only")),
        soap(boolean("optimizer.matrix.normalize_grads", "false").meaning("updates of unit RMS")),
        soap(boolean("optimizer.matrix.skip_first_step", "true").meaning("the first step only fills the factors")),
    };
    rows.insert(rows.end(), keys.begin(), keys.end());
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
            .meaning("scale down query and key rows of heads whose largest logit exceeds it; 0 off")
            .at_least_zero(),
        number("optimizer.qk_clip_alpha", "0.5")
            .meaning("share of that scale taken by the query rows")
            .from_zero_to_one()
            .only("optimizer.qk_clip_threshold", {kAboveZero}),
    };
    append_matrix_keys(rows);
    append_preconditioner_keys(rows);
    append_shampoo_keys(rows);
    append_soap_keys(rows);
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
