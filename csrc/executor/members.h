// The members of a communicator: which ranks of the job they are, and what to call them in messages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/fabric.h"

namespace pycomm {

struct Members {
  std::shared_ptr<Fabric> fabric;
  std::uint32_t communicator = 0;   // id, unique in the job
  std::vector<int> ranks;           // of the job, by rank in the communicator
  std::vector<std::string> labels;  // such as "rank 5 (nodeB, pid 812)", by rank in the communicator
  int rank = 0;                     // this one's, in the communicator

  int size() const { return static_cast<int>(ranks.size()); }
  int job_rank(int member) const { return ranks[static_cast<std::size_t>(member)]; }
  const std::string& label(int member) const { return labels[static_cast<std::size_t>(member)]; }
};

}  // namespace pycomm
