#pragma once

#include <stdexcept>
#include <string>

namespace mfsdp {

/// Exit codes of all programs (README lists them for users).
enum class ExitCode : int {
    success = 0,
    unexpected = 1,
    configuration = 2,
    data = 3,
    checkpoint = 4,
    numerical = 5,
    communication = 6,
};

/// Base of every exception of this project. The message is a sentence that starts with the place (`config:`,
/// `data: <file>:`) and names the value found and the value wanted. Only `main` turns it into an exit code.
///
/// Names and values come from files: control characters in them are written as \u001b, so that a zero byte does not cut
/// the message and no file commands the terminal that shows it. Lines stay lines.
class Error : public std::runtime_error {
  public:
    Error(ExitCode code, const std::string& message);
    [[nodiscard]] ExitCode code() const noexcept { return code_; }

  private:
    ExitCode code_;
};

/// Anything the user can mend in the configuration file or on the launch line.
class ConfigError : public Error {
  public:
    explicit ConfigError(const std::string& message) : Error(ExitCode::configuration, message) {}
};

/// A data or weight file that breaks a rule of its format.
class DataError : public Error {
  public:
    explicit DataError(const std::string& message) : Error(ExitCode::data, message) {}
};

/// Weights that cannot be written.
class CheckpointError : public Error {
  public:
    explicit CheckpointError(const std::string& message) : Error(ExitCode::checkpoint, message) {}
};

/// A non-finite loss or gradient beyond what the configuration tolerates.
class NumericalError : public Error {
  public:
    explicit NumericalError(const std::string& message) : Error(ExitCode::numerical, message) {}
};

/// A transfer that failed or timed out; the communicator it came from is dead.
class CommunicationError : public Error {
  public:
    explicit CommunicationError(const std::string& message) : Error(ExitCode::communication, message) {}
};

/// A device call that failed.
class DeviceError : public Error {
  public:
    explicit DeviceError(const std::string& message) : Error(ExitCode::unexpected, message) {}
};

/// The device has not as much memory left as was asked for.
class OutOfMemoryError : public DeviceError {
  public:
    using DeviceError::DeviceError;
};

/// A programmer's mistake, checked in release builds too.
class InternalError : public Error {
  public:
    explicit InternalError(const std::string& message) : Error(ExitCode::unexpected, message) {}
};

[[noreturn]] void raise_internal_error(const char* condition, const char* file, int line, const std::string& reason);

}  // namespace mfsdp

/// `MFSDP_ASSERT(condition, "why it holds")`; throws InternalError. The reason is evaluated only on failure.
#define MFSDP_ASSERT(condition, reason)                                                            \
    do {                                                                                           \
        if (!(condition)) ::mfsdp::raise_internal_error(#condition, __FILE__, __LINE__, (reason)); \
    } while (false)
