#include "executor/execution.h"

#include <cstdlib>
#include <new>

namespace pycomm {
namespace {

constexpr std::uint64_t kAlignment = 64;

}  // namespace

void Scratch::Free::operator()(std::byte* memory) const { std::free(memory); }

std::byte* Scratch::need(std::uint64_t bytes) {
  if (bytes > bytes_) {
    const std::uint64_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    memory_.reset();
    bytes_ = 0;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
    if (!memory_) throw std::bad_alloc();
    bytes_ = rounded;
  }
  return memory_.get();
}

void Execution::begin(const Bound& bound, const std::byte* input, std::byte* output,
                      const std::vector<std::vector<Lane*>>& lanes, const Envelope& call,
                      const Streaming& streaming) {
  // The input is never written: only steps of `place` read it.
  areas_[static_cast<std::size_t>(Area::kIn)] = const_cast<std::byte*>(input);
  areas_[static_cast<std::size_t>(Area::kOut)] = output;
  for (Area area : {Area::kTmp, Area::kOutPartial, Area::kTmpPartial}) {
    const auto index = static_cast<std::size_t>(area);
    areas_[index] = scratch_[index].need(bound.scratch_bytes(area));
  }
  active_ = bound.channels().size();
  if (channels_.size() < active_) channels_.resize(active_);
  for (std::size_t c = 0; c < active_; ++c) channels_[c].reset(bound, c, areas_, lanes[c], call, streaming);
}

bool Execution::advance() {
  for (std::size_t c = 0; c < active_; ++c)
    if (!channels_[c].done() && channels_[c].advance()) return true;
  return false;
}

bool Execution::done() const {
  for (std::size_t c = 0; c < active_; ++c)
    if (!channels_[c].done()) return false;
  return true;
}

std::size_t Execution::stuck_channel() const {
  std::size_t c = 0;
  while (c + 1 < active_ && channels_[c].done()) ++c;
  return c;
}

}  // namespace pycomm
