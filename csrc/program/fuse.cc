#include <utility>
#include <vector>

#include "program/passes.h"

namespace pycomm {
namespace {

// Joins the sends that follow a receive and pass on just what it wrote.
bool join(Step& receive, const Step& next) {
  if (!receive.receives() || next.op != Op::kSend || !(next.src == receive.dst)) return false;
  for (int& target : receive.to)
    if (target < 0) {
      target = next.peer;
      return true;
    }
  return false;
}

}  // namespace

void fuse(Program& program) {
  for (auto& steps : program.channels()) {
    std::vector<Step> fused;
    fused.reserve(steps.size());
    for (Step& step : steps)
      if (fused.empty() || !join(fused.back(), step)) fused.push_back(std::move(step));
    steps = std::move(fused);
  }
}

}  // namespace pycomm
