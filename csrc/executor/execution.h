// A running program: all its channels, polled lowest first, one slice at a time.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "executor/channel.h"

namespace pycomm {

// Memory that grows to what was needed most and stays, so that a call in a loop allocates nothing.
class Scratch {
 public:
  std::byte* need(std::uint64_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::uint64_t bytes_ = 0;
};

class Execution {
 public:
  // `lanes[channel][peer]` holds at least what the program's links name. Input and output may be the same
  // memory where the collective allows it in place. Everything outlives the run.
  void begin(const Bound& bound, const std::byte* input, std::byte* output,
             const std::vector<std::vector<Lane*>>& lanes, const Envelope& call, const Streaming& streaming);
  // Moves what can move now, the lowest channel first, and begins with it again after each slice. True if
  // anything moved. Throws UnlikeMessage and whatever lanes throw.
  bool advance();
  // Wakes the peers that were sent something, if they sleep. Before this rank waits, and before the run ends.
  void ring() {
    for (Channel& channel : channels_) channel.ring();
  }
  bool done() const;
  // The lowest channel that is not done.
  std::size_t stuck_channel() const;
  const Channel& channel(std::size_t index) const { return channels_[index]; }
  std::size_t channels() const { return active_; }

 private:
  Areas areas_ = {};
  std::array<Scratch, kAreas> scratch_;
  std::vector<Channel> channels_;
  std::size_t active_ = 0;
};

}  // namespace pycomm
