#include "mfsdp/runtime/config/names.h"

namespace mfsdp::runtime {

std::string_view name(Strategy strategy) {
    switch (strategy) {
        case Strategy::matrix_fsdp:
            return "matrix_fsdp";
        case Strategy::fsdp_gather:
            return "fsdp_gather";
        case Strategy::fsdp_gather_once:
            return "fsdp_gather_once";
        case Strategy::zero1_owner:
            return "zero1_owner";
        case Strategy::ddp:
            return "ddp";
    }
    return "?";
}

std::string_view name(PlannerPolicy policy) {
    switch (policy) {
        case PlannerPolicy::balanced:
            return "balanced";
        case PlannerPolicy::bytes:
            return "bytes";
        case PlannerPolicy::flops:
            return "flops";
        case PlannerPolicy::round_robin:
            return "round_robin";
    }
    return "?";
}

std::string_view name(MatrixOptimizerName optimizer) {
    switch (optimizer) {
        case MatrixOptimizerName::none:
            return "none";
        case MatrixOptimizerName::muon:
            return "muon";
        case MatrixOptimizerName::shampoo:
            return "shampoo";
        case MatrixOptimizerName::soap:
            return "soap";
    }
    return "?";
}

std::string_view name(DeviceChoice device) {
    switch (device) {
        case DeviceChoice::automatic:
            return "auto";
        case DeviceChoice::cpu:
            return "cpu";
        case DeviceChoice::cuda:
            return "cuda";
    }
    return "?";
}

}  // namespace mfsdp::runtime
