// One channel of a running program: a cursor over its steps, and the sends that it started and that are still
// on their way. Steps start in order; see docs/architecture.md for the semantics, which the verifier shares.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "executor/cursor.h"
#include "transport/lane.h"

namespace pycomm {

// A peer's message does not fit this rank's request: found before any of its bytes are used.
struct UnlikeMessage {
  int peer;  // rank in the communicator
};

// How the bytes of one call move.
struct Streaming {
  std::uint64_t slice_bytes = 0;  // the most at a time
  bool lends = true;              // receivers may read large messages in this rank's memory
};

class Channel {
 public:
  // `lanes` by peer rank in the communicator. All references outlive the channel's run.
  void reset(const Bound& bound, std::size_t index, const Areas& areas, const std::vector<Lane*>& lanes,
             const Envelope& call, const Streaming& streaming);

  // Moves what can move now, at most about one slice. True if anything moved. Throws UnlikeMessage.
  bool advance();
  // Wakes the peers that short messages went to.
  void ring();
  bool done() const { return step_ == steps_->size() && sends_.empty(); }
  // The peer that the channel waits for, or -1; and the step it is at: for messages.
  int waits_for() const;
  std::size_t step() const {
    return sends_.empty() ? step_ : std::min(step_, std::size_t{sends_.front().step});
  }

 private:
  struct Send {
    std::uint32_t step;
    std::int32_t peer;
    bool begun;
    std::uint64_t bytes, pushed;
    std::uint64_t mark;  // of the lane, once it has taken the last byte
    Cursor from;
  };

  const BoundStep& current() const { return (*steps_)[step_]; }
  enum class Outcome : std::uint8_t { kDone, kNothing, kStream };
  Outcome run_whole(const BoundStep& step);
  Outcome take_whole(const BoundStep& step);
  bool run_step();
  bool may_write(const BoundStep& step) const;
  bool start(const BoundStep& step);
  void queue_send(const BoundStep& step, int peer, const Operand& from);
  bool receive(const BoundStep& step);
  bool receive_reduce(const BoundStep& step);
  bool copy();
  bool reduce(const BoundStep& step);
  void combine(const BoundStep& step, const std::byte* other, std::uint64_t elements);
  bool push_sends();
  bool push(Send& send);
  bool released(const Send& send) const;
  void count(std::uint64_t bytes);
  bool finish_if_moved();
  void check(const Envelope& found, const BoundStep& step) const;
  std::byte* at(const Operand& operand) const;
  Lane& lane(int peer) const { return *(*lanes_)[static_cast<std::size_t>(peer)]; }

  const Bound* bound_ = nullptr;
  const Areas* areas_ = nullptr;
  const std::vector<BoundStep>* steps_ = nullptr;
  const std::vector<Lane*>* lanes_ = nullptr;
  Envelope call_;
  std::uint64_t slice_bytes_ = 0;
  bool lends_ = true;
  std::uint64_t budget_ = 0;  // bytes that this advance may still move

  std::vector<Lane*> silent_;  // with short messages whose peers have not been woken
  std::size_t step_ = 0;
  bool started_ = false;     // the current step: its operands are set up, its message has been checked
  std::uint64_t moved_ = 0;  // bytes of dst that the current step has written
  std::uint64_t total_ = 0;  // bytes of dst that it will write
  Cursor dst_, src_, addend_;
  std::vector<Send> sends_;  // in order of their steps
};

}  // namespace pycomm
