#pragma once

#include "mfsdp/device/device.h"
#include "mfsdp/optim/matrix_optimizer.h"
#include "mfsdp/runtime/bench/operations.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace mfsdp::runtime {

/// At which sizes the kinds of optimizer work are timed: those of the work that is to be predicted.
struct WorkSizes {
    std::int64_t shorter = 0, longer = 0;  ///< sides of the matrix
    device::DType product_dtype = device::DType::float32;
    std::int64_t side = 0;   ///< of decompositions, see factor_side
    std::int64_t tasks = 1;  ///< of them that run side by side
    bool eigen = false, orthogonal = false;
    std::int64_t bytes = 0;  ///< that elementwise work goes through before it comes back to the same place
};

/// The longest side of a block of this shape that has a factor, 0 if none has.
[[nodiscard]] std::int64_t factor_side(const optim::MatrixOptimizer& optimizer, std::int64_t rows,
                                       std::int64_t columns);

/// How long a measurement under `options` goes on at least.
[[nodiscard]] inline double least_seconds(const TimingOptions& options) { return std::min(options.seconds, 0.05); }

/// Seconds of one run, of as many as take `least_seconds`: beside other load on the machine what is shorter than a
/// scheduler's slice sees none of it or is all swallowed by it.
[[nodiscard]] double time_of_runs(const std::function<void()>& run, double least_seconds);

/// Times the kinds of optimizer work by themselves, once for each call of measure(), so that it can be called in turn
/// with the work that is to be predicted.
///
/// Products: a symmetric and a plain one of the sizes. Decompositions: those of a random factor, less the products in
/// them. Elementwise work: AdamW steps over buffers of `bytes` in all.
class WorkProbes {
  public:
    WorkProbes(device::Device& device, const WorkSizes& sizes);

    /// Times every kind once more, for `least_seconds` or longer; one that took longer than kLongSeconds is not
    /// repeated.
    void measure(double least_seconds);
    static constexpr double kLongSeconds = 2.0;
    /// From the medians. At least one measurement.
    [[nodiscard]] optim::WorkRates rates() const;

  private:
    struct Probe {
        std::unique_ptr<Workbench> bench;
        std::function<void()> issue;
        double work = 0.0;      // that it is there for, in all its tasks
        double products = 0.0;  // FLOPs of products that come with it
        std::vector<double> seconds{};
    };

    void add_product();
    void add_elements();
    void add_eigen();
    void add_orthogonal();
    Probe& add(Probe& probe);
    [[nodiscard]] double rate(const Probe& probe, double product_rate) const;

    device::Device& device_;
    WorkSizes sizes_;
    Probe product_, elements_, eigen_, orthogonal_;
    std::vector<Probe*> probes_;
};

}  // namespace mfsdp::runtime
