#pragma once

namespace mfsdp::device {

// When the coupled Newton iteration of NewtonRoot ends, on every backend alike.

inline constexpr int kNewtonRounds = 100;         ///< of the iteration, at most
inline constexpr int kPowerSteps = 100;           ///< of the estimate of the largest eigenvalue
inline constexpr double kNewtonConverged = 1e-6;  ///< max|Y - I| that float32 still reaches
inline constexpr double kNewtonUseless = 0.1;     ///< max|Y - I| above which the result is no root
inline constexpr double kNewtonGrowth = 1.2;      ///< an error that grew by this factor only grows further

}  // namespace mfsdp::device
