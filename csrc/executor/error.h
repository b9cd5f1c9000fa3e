// Why a call failed.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace pycomm {

// The numbers travel between ranks in fault records: never change one.
enum class ErrorKind : std::uint32_t {
  kInvalid = 1,  // the caller's mistake; nothing was sent
  kTimedOut = 2,
  kPeerLost = 3,
  kMismatch = 4,
  kInterrupted = 5,  // by a signal handler of the caller
};

struct CallError : std::runtime_error {
  CallError(ErrorKind kind, int culprit, const std::string& text)
      : std::runtime_error(text), kind(kind), culprit(culprit) {}
  ErrorKind kind;
  int culprit;  // rank in the job, or -1
};

}  // namespace pycomm
