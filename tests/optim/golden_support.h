#pragma once

#include "mfsdp/optim/adamw.h"
#include "mfsdp/optim/muon.h"
#include "mfsdp/optim/shampoo.h"
#include "mfsdp/optim/soap.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

#include <nlohmann/json.hpp>

namespace mfsdp::optim::test {

/// Where the golden files lie: MFSDP_GOLDEN_DIR, or the copy in the source tree.
inline std::filesystem::path golden_directory() {
    const char* directory = std::getenv("MFSDP_GOLDEN_DIR");
    return directory != nullptr && *directory != '\0' ? std::filesystem::path(directory)
                                                      : std::filesystem::path(MFSDP_SOURCE_DIR) / "tests" / "golden";
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("golden: " + path.string() + " cannot be opened");
    return nlohmann::json::parse(file);
}

/// Hyperparameters by stem. Every stem must be asked for, so that none is left out of a comparison unseen.
class Hyperparameters {
  public:
    explicit Hyperparameters(const nlohmann::json& values) : values_(values) {}

    template <class T>
    [[nodiscard]] T take(const std::string& stem) {
        const T value = values_.at(stem).get<T>();
        values_.erase(stem);
        return value;
    }
    template <class T>
    [[nodiscard]] T take_or(const std::string& stem, const T& absent) {
        return values_.contains(stem) ? take<T>(stem) : absent;
    }
    template <class T>
    [[nodiscard]] T take_name(const std::string& stem, const std::map<std::string, T>& names) {
        return names.at(take<std::string>(stem));
    }
    void drop(const std::string& stem) { values_.erase(stem); }
    [[nodiscard]] bool empty() const { return values_.empty(); }
    [[nodiscard]] std::string rest() const { return values_.dump(); }

  private:
    nlohmann::json values_;
};

inline CoefficientType take_table(Hyperparameters& values) {
    return values.take_name<CoefficientType>("muon_coefficients", {{"you5", CoefficientType::quintic},
                                                                   {"keller5", CoefficientType::simple},
                                                                   {"polar_express", CoefficientType::polar_express},
                                                                   {"dsv4", CoefficientType::dsv4}});
}

/// Type of the iterates and method, which the files leave to the test: float32 and the plain iteration.
inline device::DType take_ns_dtype(Hyperparameters& values) {
    const std::map<std::string, device::DType> names{{"float32", device::DType::float32},
                                                     {"bfloat16", device::DType::bfloat16},
                                                     {"float16", device::DType::float16}};
    return names.at(values.take_or<std::string>("muon_ns_dtype", "float32"));
}
inline NewtonSchulzMethod take_ns_method(Hyperparameters& values) {
    const std::map<std::string, NewtonSchulzMethod> names{{"standard", NewtonSchulzMethod::standard},
                                                          {"gram", NewtonSchulzMethod::gram}};
    return names.at(values.take_or<std::string>("muon_ns_method", "standard"));
}

/// An optimizer with its rates, as a case or a group gives it.
template <class Options>
struct Rated {
    Options options{};
    double learning_rate = 0.0, weight_decay = 0.0;
};

inline Rated<MuonOptions> take_muon(Hyperparameters& values) {
    Rated<MuonOptions> result{.learning_rate = values.take<double>("muon_lr"),
                              .weight_decay = values.take<double>("muon_weight_decay")};
    MuonOptions& options = result.options;
    options.momentum = values.take<double>("muon_momentum");
    options.momentum_form = values.take_name<MomentumForm>(
        "muon_momentum_form", {{"ema", MomentumForm::ema}, {"heavy_ball", MomentumForm::heavy_ball}});
    options.nesterov = values.take<bool>("muon_nesterov");
    options.num_ns_steps = values.take<std::int64_t>("muon_num_ns_steps");
    options.coefficient_type = take_table(values);
    options.ns_dtype = take_ns_dtype(values);
    options.ns_method = take_ns_method(values);
    options.scale_mode =
        values.take_name<ScaleMode>("muon_scale_mode", {{"match_rms_adamw", ScaleMode::match_rms_adamw},
                                                        {"original", ScaleMode::original},
                                                        {"unit_rms_norm", ScaleMode::unit_rms_norm},
                                                        {"spectral", ScaleMode::spectral}});
    options.extra_scale_factor = values.take_or<double>("muon_extra_scale_factor", 1.0);
    options.normuon = values.take<bool>("muon_normuon");
    options.normuon_beta2 = values.take<double>("muon_normuon_beta2");
    options.normuon_epsilon = values.take<double>("muon_normuon_epsilon");
    options.cautious_weight_decay = values.take<bool>("muon_cautious_weight_decay");
    // The RMS target is the factor 0.2 of match_rms_adamw; another target is reached through the extra factor.
    const double rms_target = values.take_or<double>("muon_rms_target", 0.2);
    if (rms_target != 0.2) options.extra_scale_factor *= rms_target / 0.2;
    return result;
}

inline EpsilonMode take_epsilon_mode(Hyperparameters& values) {
    return values.take_name<EpsilonMode>("shampoo_epsilon_mode",
                                         {{"relative", EpsilonMode::relative}, {"absolute", EpsilonMode::absolute}});
}

inline Rated<ShampooOptions> take_shampoo(Hyperparameters& values) {
    Rated<ShampooOptions> result{.learning_rate = values.take<double>("shampoo_lr"),
                                 .weight_decay = values.take<double>("shampoo_weight_decay")};
    ShampooOptions& options = result.options;
    options.beta1 = values.take<double>("shampoo_beta1");
    options.beta2 = values.take<double>("shampoo_beta2");
    options.graft_beta2 = values.take<double>("shampoo_graft_beta2");
    options.bias_correction = values.take<bool>("shampoo_bias_correction");
    options.epsilon = values.take<double>("shampoo_epsilon");
    options.epsilon_mode = take_epsilon_mode(values);
    options.root_order = values.take<std::int64_t>("shampoo_root");
    options.grafting = values.take_name<Grafting>("shampoo_graft", {{"adam", Grafting::adam},
                                                                    {"rmsprop", Grafting::rmsprop},
                                                                    {"adagrad", Grafting::adagrad},
                                                                    {"sgd", Grafting::sgd},
                                                                    {"none", Grafting::none}});
    options.grafting_epsilon = values.take<double>("shampoo_graft_epsilon");
    options.start_step = values.take<std::int64_t>("shampoo_start_step");
    options.precondition_frequency = values.take<std::int64_t>("shampoo_precondition_frequency");
    options.max_preconditioner_dim = values.take<std::int64_t>("shampoo_max_preconditioner_dim");
    return result;
}

inline Rated<SoapOptions> take_soap(Hyperparameters& values) {
    Rated<SoapOptions> result{.learning_rate = values.take<double>("soap_lr"),
                              .weight_decay = values.take<double>("soap_weight_decay")};
    SoapOptions& options = result.options;
    options.beta1 = values.take<double>("soap_beta1");
    options.beta2 = values.take<double>("soap_beta2");
    options.shampoo_beta = values.take<double>("soap_shampoo_beta");
    options.epsilon = values.take<double>("soap_epsilon");
    options.epsilon_mode = values.take_name<BiasEpsilon>(
        "soap_epsilon_mode", {{"corrected", BiasEpsilon::corrected}, {"uncorrected", BiasEpsilon::uncorrected}});
    options.decay_order = values.take_name<DecayOrder>("soap_weight_decay_order",
                                                       {{"before", DecayOrder::before}, {"after", DecayOrder::after}});
    options.bias_correction = values.take<bool>("soap_bias_correction");
    options.normalize_update = values.take<bool>("soap_normalize_update");
    options.one_sided = values.take<bool>("soap_one_sided");
    options.skip_first_step = values.take<bool>("soap_skip_first_step");
    options.precondition_frequency = values.take<std::int64_t>("soap_precondition_frequency");
    options.max_preconditioner_dim = values.take<std::int64_t>("soap_max_preconditioner_dim");
    return result;
}

inline Rated<AdamWOptions> take_adamw(Hyperparameters& values) {
    return {.options = {.beta1 = values.take<double>("adamw_beta1"),
                        .beta2 = values.take<double>("adamw_beta2"),
                        .epsilon = values.take<double>("adamw_epsilon")},
            .learning_rate = values.take<double>("adamw_lr"),
            .weight_decay = values.take<double>("adamw_weight_decay")};
}

}  // namespace mfsdp::optim::test
