#include "transport/tcp/link.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pycomm::tcp {
namespace {

constexpr std::size_t kPendingLimit = 64 << 10;  // small frames are copied until so much is pending
constexpr int kSteps = 64;                       // of reading, in one call

}  // namespace

void Sent::keep_copy() {
  if (header.length == 0 || copy) return;
  copy = std::make_unique_for_overwrite<std::byte[]>(header.length);
  std::memcpy(copy.get(), payload, header.length);
  payload = copy.get();
}

Link::Link(std::uint16_t index, int socket_fd, const TcpOptions& options, bool resumes)
    : index_(index), resumes_(resumes), socket_(socket_fd, options) {}

void Link::end(const std::string& why) {
  state_.lost = why;
  arriving = {};
  socket_.hang_up();
}

// -- Out.

void Link::stamp(Frame& frame) const {
  frame.header.link = index_;
  frame.header.taken = taken_;
}

void Link::sent(std::span<const Frame> frames) {
  if (frames.empty()) return;
  owed_frames_ = false;
  owed_bytes_ = 0;
  for (const Frame& frame : frames) {
    if (frame.header.kind != FrameKind::kTaken) ++frames_;
    if (frame.header.kind == FrameKind::kData) state_.sent_bytes += frame.header.length;
  }
}

std::size_t Link::write(std::span<Frame> frames) {
  for (Frame& frame : frames) stamp(frame);
  const std::size_t accepted = outbox_.write(frames);
  sent(frames.first(accepted));
  if (accepted < frames.size()) full = true;
  return accepted;
}

bool Link::write_small(Frame& frame) {
  if (write({&frame, 1}) == 1) return true;
  if (outbox_.pending() > kPendingLimit) return false;
  outbox_.append(frame);
  sent({&frame, 1});
  return true;
}

void Link::append(Frame& frame) {
  stamp(frame);
  outbox_.append(frame);
  sent({&frame, 1});
  flush();
}

// -- Acknowledgement.

void Link::remember(Sent frame) {
  if (frame.lane != nullptr && frame.header.length > kCopyBytes) {
    frame.start = pace_.start(unacknowledged_bytes_ == 0);
  } else {
    frame.keep_copy();
  }
  unacknowledged_bytes_ += frame.header.length;
  unacknowledged_.push_back(std::move(frame));
}

void Link::took(const FrameHeader& header) {
  ++taken_;
  if (!resumes_) return;
  owed_frames_ = true;
  if (header.length > kCopyBytes) owed_bytes_ += header.length;
}

void Link::pay() {
  Frame frame;
  frame.header.kind = FrameKind::kTaken;
  append(frame);
}

// -- In.

void Link::start_reading() {
  steps_ = kSteps;
  inbox_.expect_more();
}

bool Link::can_read() const {
  if (steps_ == 0 || !alive()) return false;
  return !inbox_.dry() || inbox_.size() >= (arriving.left != 0 ? 1 : sizeof(FrameHeader));
}

std::size_t Link::read(std::span<std::byte> to) {
  const std::size_t got = inbox_.payload(to, to.size() == arriving.left, arriving.large);
  arriving.left -= got;
  if (arriving.header.kind == FrameKind::kData) state_.received_bytes += got;
  return got;
}

// -- Whether the way is open.

bool Link::stuck() {
  const std::uint64_t in = inbox_.progress();
  const auto waiting = static_cast<std::uint64_t>(socket_.unacknowledged());
  const std::uint64_t out = outbox_.written() - waiting;
  heard_ = in != seen_in_;
  const bool moved = heard_ || out > seen_out_;
  seen_in_ = in;
  seen_out_ = std::max(seen_out_, out);
  const bool now = !moved && (waiting != 0 || !unacknowledged_.empty());
  if (!now) asked_ = false;
  return now;
}

void Link::ask() {
  if (std::exchange(asked_, true)) return;
  Frame frame;
  frame.header.kind = FrameKind::kPing;
  append(frame);
  remember({frame.header, nullptr, nullptr, nullptr, {}});
  seen_out_ += sizeof(FrameHeader);  // that the peer's machine has the question is no news
}

}  // namespace pycomm::tcp
