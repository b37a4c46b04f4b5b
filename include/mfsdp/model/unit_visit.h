#pragma once

#include "mfsdp/model/parameter_spec.h"

#include <cstdint>
#include <vector>

namespace mfsdp::model {

/// What a unit does in a visit.
enum class Phase : std::uint8_t {
    forward,   ///< embedding, block: the next residual stream
    score,     ///< head: log Z and target logits over the vocabulary; the loss after the last panel
    backward,  ///< gradients of the unit's parameters and of its input
    logits,    ///< head: the logits themselves
};

/// What a micro-batch is run for.
enum class Purpose : std::uint8_t {
    train,     ///< loss and gradients
    evaluate,  ///< loss alone, in the same bits
    generate,  ///< logits alone
};

/// One use of a unit: the unit's whole work of a phase, or its work on one panel of its vocabulary table.
///
/// "Parameters" of a visit are the unit's parameters other than its table. The flags say what the caller must bring
/// (reads) and take (writes); everything else may be undefined in that visit.
struct UnitVisit {
    std::int64_t unit = 0;
    Phase phase = Phase::forward;
    std::int64_t panel = -1;  ///< of a unit with a table, else -1
    bool reads_parameters = false;
    bool reads_panel = false;
    bool writes_parameters = false;
    bool writes_panel = false;
    Purpose purpose = Purpose::train;  ///< of the micro-batch; decides what is kept for later visits

    bool operator==(const UnitVisit&) const = default;
};

/// The visits of one micro-batch in their order, the same for every micro-batch. P panels, 0 .. P-1:
///
///   embedding  forward over panels up; the positions are added in the last one
///   blocks     forward
///   head       score over panels up (evaluate, train), the final norm runs in panel 0; or logits over panels up
/// and for train
///   head       backward over panels down, so that the one gathered last is used first; the norm's runs in panel 0
///   blocks     backward
///   embedding  backward over panels up, reading nothing; the positions' gradient is written in the last one
[[nodiscard]] std::vector<UnitVisit> unit_visits(const ModelSpec& spec, Purpose purpose);

}  // namespace mfsdp::model
