#include "executor/channel.h"

#include <cstring>

namespace pycomm {
namespace {

constexpr std::size_t kQueuedSends = 16;  // a plain send waits when as many are on their way
constexpr std::size_t kTileBytes = 8192;  // sums that are divided at once pass through a tile on the stack

}  // namespace

void Channel::reset(const Bound& bound, std::size_t index, const Areas& areas,
                    const std::vector<Lane*>& lanes, const Envelope& call, const Streaming& streaming) {
  bound_ = &bound;
  areas_ = &areas;
  steps_ = &bound.channels()[index];
  lanes_ = &lanes;
  call_ = call;
  slice_bytes_ = streaming.slice_bytes;
  lends_ = streaming.lends;
  step_ = 0;
  started_ = false;
  sends_.clear();
}

bool Channel::advance() {
  bool moved = false;
  budget_ = slice_bytes_;
  while (budget_ > 0 && step_ < steps_->size() && run_step()) moved = true;
  return (!sends_.empty() && push_sends()) || moved;
}

void Channel::ring() {
  for (Lane* lane : silent_) lane->ring();
  silent_.clear();
}

// Where an operand in one piece lies.
std::byte* Channel::at(const Operand& operand) const {
  if (operand.extents == 0) return nullptr;
  const Extent& extent = bound_->extent(operand.first_extent);
  return (*areas_)[static_cast<std::size_t>(extent.area)] + extent.first * operand.element_bytes;
}

// A step on little data is done at once: kNothing while it cannot be, kStream where it has to go the long
// way.
Channel::Outcome Channel::run_whole(const BoundStep& step) {
  if (step.op == Op::kSend) {
    Envelope envelope = call_;
    envelope.bytes = step.elements * step.wire_bytes;
    Lane& to = lane(step.peer);
    if (!sends_.empty() || !to.send(envelope, at(step.src))) return Outcome::kStream;
    if (std::find(silent_.begin(), silent_.end(), &to) == silent_.end()) silent_.push_back(&to);
    return Outcome::kDone;
  }
  if (!may_write(step)) return Outcome::kNothing;
  if (step.op == Op::kRecv || step.op == Op::kRecvReduce) return take_whole(step);
  if (step.elements == 0) return Outcome::kDone;
  if (step.op == Op::kReduce)
    step.kernel(at(step.dst), at(step.src), at(step.addend), step.elements);
  else if (at(step.dst) != at(step.src))
    std::memcpy(at(step.dst), at(step.src), step.elements * step.dst.element_bytes);
  return Outcome::kDone;
}

Channel::Outcome Channel::take_whole(const BoundStep& step) {
  Lane& from = lane(step.peer);
  const Envelope* const found = from.head();
  if (found == nullptr) return Outcome::kNothing;
  check(*found, step);
  if (step.elements == 0) {
    from.finish();
    return Outcome::kDone;
  }
  const auto there = from.peek();
  const std::uint64_t bytes = step.elements * step.wire_bytes;
  if (there.size() < bytes) return Outcome::kStream;
  if (step.op == Op::kRecvReduce)
    step.kernel(at(step.dst), at(step.src), there.data(), step.elements);
  else
    std::memcpy(at(step.dst), there.data(), bytes);
  from.pop(bytes);
  return Outcome::kDone;
}

// The message is the one that the step is for.
void Channel::check(const Envelope& found, const BoundStep& step) const {
  Envelope wanted = call_;
  wanted.bytes = step.elements * step.wire_bytes;
  if (!(found == wanted)) throw UnlikeMessage{step.peer};
}

bool Channel::run_step() {
  const BoundStep& step = current();
  if (step.whole && !started_) {
    const Outcome outcome = run_whole(step);
    if (outcome == Outcome::kNothing) return false;
    if (outcome == Outcome::kDone) {
      budget_ -= std::min(budget_, step.elements * step.dst.element_bytes);
      ++step_;
      return true;
    }
  }
  if (!started_ && !start(step)) return false;
  if (!started_) return true;  // a plain send: queued, and done with
  switch (step.op) {
    case Op::kRecv:
      return receive(step);
    case Op::kRecvReduce:
      return receive_reduce(step);
    case Op::kCopy:
      return copy();
    case Op::kReduce:
      return reduce(step);
    case Op::kSend:
      break;
  }
  return false;
}

bool Channel::may_write(const BoundStep& step) const {
  return step.after_send < 0 || sends_.empty() ||
         static_cast<std::int32_t>(sends_.front().step) > step.after_send;
}

// True when the step has begun: a plain send is then behind us, anything else is under way.
bool Channel::start(const BoundStep& step) {
  if (step.op == Op::kSend) {
    if (sends_.size() >= kQueuedSends) return false;
    queue_send(step, step.peer, step.src);
    ++step_;
    return true;
  }
  if (!may_write(step)) return false;
  if (step.op == Op::kRecv || step.op == Op::kRecvReduce) {
    const Envelope* found = lane(step.peer).head();
    if (found == nullptr) return false;
    check(*found, step);
  }
  dst_ = Cursor(*bound_, step.dst, *areas_);
  src_ = Cursor(*bound_, step.src, *areas_);
  addend_ = Cursor(*bound_, step.addend, *areas_);
  moved_ = 0;
  total_ = step.elements * step.dst.element_bytes;
  started_ = true;
  for (int target : step.to)
    if (target >= 0) queue_send(step, target, step.dst);
  return true;
}

void Channel::queue_send(const BoundStep& step, int peer, const Operand& from) {
  sends_.push_back({static_cast<std::uint32_t>(step_), peer, false, step.elements * from.element_bytes, 0, 0,
                    Cursor(*bound_, from, *areas_)});
}

void Channel::count(std::uint64_t bytes) {
  moved_ += bytes;
  budget_ -= std::min(budget_, bytes);
}

// Goes on to the next step when the current one has written all it will.
bool Channel::finish_if_moved() {
  if (moved_ < total_) return false;
  ++step_;
  started_ = false;
  return true;
}

bool Channel::receive(const BoundStep& step) {
  Lane& from = lane(step.peer);
  const std::uint64_t before = moved_;
  if (total_ == 0) from.finish();
  while (moved_ < total_ && budget_ > 0) {
    const std::size_t got = from.pull(dst_.at(), std::min(dst_.run(), slice_bytes_));
    if (got == 0) break;
    dst_.advance(got);
    count(got);
  }
  const bool moved = moved_ > before;
  return finish_if_moved() || moved;
}

bool Channel::receive_reduce(const BoundStep& step) {
  Lane& from = lane(step.peer);
  const std::uint64_t before = moved_;
  if (total_ == 0) from.finish();
  while (moved_ < total_ && budget_ > 0) {
    const auto there = from.peek();
    const std::uint64_t elements =
        std::min({there.size() / step.wire_bytes, dst_.run_elements(), src_.run_elements()});
    if (elements == 0) break;
    combine(step, there.data(), elements);
    from.pop(elements * step.wire_bytes);
  }
  const bool moved = moved_ > before;
  return finish_if_moved() || moved;
}

bool Channel::copy() {
  while (moved_ < total_ && budget_ > 0) {
    const std::uint64_t bytes = std::min({dst_.run(), src_.run(), slice_bytes_});
    if (dst_.at() != src_.at()) std::memcpy(dst_.at(), src_.at(), bytes);
    dst_.advance(bytes);
    src_.advance(bytes);
    count(bytes);
  }
  finish_if_moved();
  return true;
}

bool Channel::reduce(const BoundStep& step) {
  while (moved_ < total_ && budget_ > 0) {
    const std::uint64_t slice = std::max<std::uint64_t>(1, slice_bytes_ / step.dst.element_bytes);
    const std::uint64_t elements =
        std::min({dst_.run_elements(), src_.run_elements(), addend_.run_elements(), slice});
    combine(step, addend_.at(), elements);
    addend_.advance_elements(elements);
  }
  finish_if_moved();
  return true;
}

// dst = src (+) other on the next `elements`; where the sum is complete under avg, divided as well.
void Channel::combine(const BoundStep& step, const std::byte* other, std::uint64_t elements) {
  if (!step.divides) {
    step.kernel(dst_.at(), src_.at(), other, elements);
  } else {
    alignas(64) std::byte tile[kTileBytes];
    const std::uint64_t most = kTileBytes / sizeof(std::uint64_t);
    for (std::uint64_t i = 0; i < elements; i += most) {
      const std::uint64_t n = std::min(most, elements - i);
      step.kernel(tile, src_.at() + i * src_.element_bytes(), other + i * step.wire_bytes, n);
      step.finish(dst_.at() + i * dst_.element_bytes(), tile, n, bound_->goal().world_size);
    }
  }
  dst_.advance_elements(elements);
  src_.advance_elements(elements);
  count(elements * dst_.element_bytes());
}

// Messages to one peer go in order, each when the lane has taken the one before; those to others pass by.
bool Channel::push_sends() {
  bool moved = false;
  for (std::size_t i = 0; i < sends_.size();) {
    Send& send = sends_[i];
    bool first = true;
    for (std::size_t j = 0; j < i && first; ++j) first = sends_[j].peer != send.peer || sends_[j].mark != 0;
    moved |= first && push(send);
    if (first && released(send)) {
      sends_.erase(sends_.begin() + static_cast<std::ptrdiff_t>(i));
      moved = true;
    } else {
      ++i;
    }
  }
  return moved;
}

bool Channel::push(Send& send) {
  if (send.mark != 0) return false;
  Lane& to = lane(send.peer);
  const std::uint64_t before = send.pushed;
  const bool current = send.step == step_;
  const std::uint64_t ready = current ? moved_ : send.bytes;
  bool moved = false;
  if (!send.begun) {
    if (ready == 0 && send.bytes > 0) return false;
    Envelope envelope = call_;
    envelope.bytes = send.bytes;
    if (!to.begin(envelope)) return false;
    send.begun = moved = true;
  }
  while (send.pushed < ready && send.pushed - before < slice_bytes_) {
    const std::uint64_t run = std::min(send.from.run(), ready - send.pushed);
    std::size_t pushed = lends_ ? to.lend(send.from.at(), run) : 0;
    if (pushed == 0) pushed = to.push(send.from.at(), std::min(run, slice_bytes_));
    if (pushed == 0) break;
    send.from.advance(pushed);
    send.pushed += pushed;
    moved = true;
  }
  if (send.pushed == send.bytes) send.mark = to.mark();
  return moved;
}

bool Channel::released(const Send& send) const {
  if (!send.begun || send.pushed != send.bytes) return false;
  return send.mark != 0 ? lane(send.peer).released_before(send.mark) : lane(send.peer).released();
}

int Channel::waits_for() const {
  if (step_ < steps_->size() && current().peer >= 0 && current().op != Op::kSend) return current().peer;
  return sends_.empty() ? -1 : sends_.front().peer;
}

}  // namespace pycomm
