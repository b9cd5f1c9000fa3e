#include "transport/tcp/lane.h"

#include <algorithm>
#include <stdexcept>

#include "transport/tcp/connection.h"

namespace pycomm::tcp {

// -- Sending, the user's side.

bool TcpLane::begin(const Envelope& envelope) {
  const Connection::Lock lock(connection_);
  connection_.must_live();
  if (sending_) throw std::logic_error("the message before is not complete");
  if (credit() < kMessageCharge) return false;
  sending_ = envelope;
  offset_ = 0;
  charged_ += kMessageCharge;
  if (envelope.bytes == 0) {
    if (!connection_.send_small(*this, {next_header(0), nullptr})) {
      sending_.reset();
      charged_ -= kMessageCharge;
      return false;
    }
    pushed(0);
  }
  ++connection_.counters_.sent_messages;
  return true;
}

std::size_t TcpLane::push(const std::byte* data, std::size_t bytes) {
  const Connection::Lock lock(connection_);
  connection_.must_live();
  if (bytes > (sending_ ? sending_->bytes - offset_ : 0))
    throw std::logic_error("more bytes than the message has");
  bytes = std::min(bytes, credit());
  if (bytes == 0) return 0;
  if (bytes > kCopyBytes) return connection_.send_large(*this, {data, bytes});
  if (!connection_.send_small(*this, {next_header(bytes), data})) return 0;
  pushed(bytes);
  return bytes;
}

// What is waited for is, at least, that the last byte has gone to the socket: after that nobody need drive
// this endpoint for the peer to get it.
bool TcpLane::released() { return released_before(charged_); }

bool TcpLane::released_before(std::uint64_t mark) {
  const Connection::Lock lock(connection_);
  const auto all_gone = [&] {
    while (!unreleased_.empty() && gone(unreleased_.front())) unreleased_.pop_front();
    return unreleased_.empty() || unreleased_.front().begin >= mark;
  };
  if (all_gone()) return true;
  connection_.must_live();
  connection_.flush();
  return all_gone();
}

void TcpLane::recall() {
  const Connection::Lock lock(connection_);
  need_no_memory();
}

void TcpLane::need_no_memory() {
  connection_.keep_copies(*this);
  for (Unreleased& frame : unreleased_) frame.until_acknowledged = false;
}

std::size_t TcpLane::credit() const {
  const std::uint64_t used = charged_ - acknowledged_;
  return used < kWindow ? static_cast<std::size_t>(kWindow - used) : 0;
}

FrameHeader TcpLane::next_header(std::size_t length) const {
  FrameHeader header = credit_header();
  header.kind = FrameKind::kData;
  header.sequence = sending_->sequence;
  header.fingerprint = sending_->fingerprint;
  header.message_bytes = sending_->bytes;
  header.offset = offset_;
  header.position = charged_;
  header.length = static_cast<std::uint32_t>(length);
  return header;
}

FrameHeader TcpLane::credit_header() const {
  FrameHeader header;
  header.kind = FrameKind::kCredit;
  header.communicator = communicator_;
  header.lane = channel_;
  header.acknowledged = consumed_;
  return header;
}

void TcpLane::pushed(std::size_t bytes) {
  reported_ = consumed_;
  charged_ += bytes;
  offset_ += bytes;
  connection_.counters_.sent_bytes += bytes;
  if (offset_ != sending_->bytes) return;
  sending_.reset();
  charged_ = (charged_ + 7) / 8 * 8;
}

// -- Sending, the connection's side.

void TcpLane::sent(std::uint64_t begin, const Link& link, bool until_acknowledged) {
  if (until_acknowledged || link.pending())
    unreleased_.push_back({begin, &link, link.accepted(), until_acknowledged});
}

bool TcpLane::gone(const Unreleased& frame) const {
  return !frame.until_acknowledged && frame.link != nullptr && frame.link->written() >= frame.place;
}

TcpLane::Unreleased* TcpLane::find_unreleased(std::uint64_t begin) {
  const auto found = std::ranges::lower_bound(unreleased_, begin, {}, &Unreleased::begin);
  return found != unreleased_.end() && found->begin == begin ? &*found : nullptr;
}

void TcpLane::acknowledged_frame(std::uint64_t begin) {
  if (Unreleased* frame = find_unreleased(begin)) frame->until_acknowledged = false;
}

void TcpLane::orphaned(std::uint64_t begin) {
  if (Unreleased* frame = find_unreleased(begin)) frame->link = nullptr;
}

void TcpLane::resent(std::uint64_t begin, const Link& link) {
  Unreleased* frame = find_unreleased(begin);
  if (frame == nullptr) return;
  frame->link = &link;
  frame->place = link.accepted();
}

bool TcpLane::acknowledge(std::uint64_t acknowledged) {
  if (acknowledged > charged_) return false;
  acknowledged_ = std::max(acknowledged_, acknowledged);
  return true;
}

}  // namespace pycomm::tcp
