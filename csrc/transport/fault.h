// A fault: why a call failed at one rank, told to the others so that all of them stop and name the same
// culprit.
#pragma once

#include <cstdint>
#include <string>

namespace pycomm {

struct Fault {
  std::uint32_t kind = 0;  // what went wrong, in the caller's own numbering
  int culprit = -1;        // rank in the job, or -1 where nobody is to blame
  std::uint32_t communicator = 0;
  std::uint64_t sequence = 0;  // of the call, within its communicator
  std::string text;            // UTF-8, for the user
};

}  // namespace pycomm
