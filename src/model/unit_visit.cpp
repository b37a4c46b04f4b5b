#include "mfsdp/model/unit_visit.h"

#include <utility>

namespace mfsdp::model {

namespace {

class VisitList {
  public:
    VisitList(const ModelSpec& spec, Purpose purpose)
        : purpose_(purpose),
          panels_(spec.panels()),
          positions_(spec.units.front().has_ordinary_parameters()),
          head_(spec.head_unit()) {}

    void embedding_forward() {
        for (std::int64_t panel = 0; panel < panels_; ++panel) {
            add({.unit = 0,
                 .phase = Phase::forward,
                 .panel = panel,
                 .reads_parameters = positions_ && is_last(panel),
                 .reads_panel = true});
        }
    }
    void embedding_backward() {
        for (std::int64_t panel = 0; panel < panels_; ++panel) {
            add({.unit = 0,
                 .phase = Phase::backward,
                 .panel = panel,
                 .writes_parameters = positions_ && is_last(panel),
                 .writes_panel = true});
        }
    }
    void blocks_forward() {
        for (std::int64_t unit = 1; unit < head_; ++unit) {
            add({.unit = unit, .phase = Phase::forward, .reads_parameters = true});
        }
    }
    void blocks_backward() {
        for (std::int64_t unit = head_ - 1; unit > 0; --unit) {
            add({.unit = unit, .phase = Phase::backward, .reads_parameters = true, .writes_parameters = true});
        }
    }
    /// Score or logits.
    void head_forward(Phase phase) {
        for (std::int64_t panel = 0; panel < panels_; ++panel) {
            add({.unit = head_, .phase = phase, .panel = panel, .reads_parameters = panel == 0, .reads_panel = true});
        }
    }
    void head_backward() {
        for (std::int64_t panel = panels_ - 1; panel >= 0; --panel) {
            add({.unit = head_,
                 .phase = Phase::backward,
                 .panel = panel,
                 .reads_parameters = panel == 0,
                 .reads_panel = true,
                 .writes_parameters = panel == 0,
                 .writes_panel = true});
        }
    }
    [[nodiscard]] std::vector<UnitVisit> take() { return std::move(visits_); }

  private:
    [[nodiscard]] bool is_last(std::int64_t panel) const { return panel == panels_ - 1; }
    void add(UnitVisit visit) {
        visit.purpose = purpose_;
        visits_.push_back(visit);
    }

    Purpose purpose_;
    std::int64_t panels_;
    bool positions_;
    std::int64_t head_;
    std::vector<UnitVisit> visits_;
};

}  // namespace

std::vector<UnitVisit> unit_visits(const ModelSpec& spec, Purpose purpose) {
    VisitList visits(spec, purpose);
    visits.embedding_forward();
    visits.blocks_forward();
    visits.head_forward(purpose == Purpose::generate ? Phase::logits : Phase::score);
    if (purpose == Purpose::train) {
        visits.head_backward();
        visits.blocks_backward();
        visits.embedding_backward();
    }
    return visits.take();
}

}  // namespace mfsdp::model
