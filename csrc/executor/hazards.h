// Which sends must be released before a step may write.
#pragma once

#include <vector>

#include "executor/bind.h"

namespace pycomm {

// Sets `after_send` of every bound step: the last earlier step of the channel that sends a chunk this one
// writes. Input and output count as one memory where a call in place makes them so, hence one bound program
// serves both.
void set_hazards(std::vector<BoundStep>& bound, const std::vector<Step>& steps, const Program& program,
                 const Goal& goal);

}  // namespace pycomm
