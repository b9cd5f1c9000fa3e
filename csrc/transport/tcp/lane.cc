#include "transport/tcp/lane.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "transport/tcp/connection.h"

namespace pycomm::tcp {

// -- Sending.

bool TcpLane::begin(const Envelope& envelope) {
  const Connection::Lock lock(connection_);
  connection_.must_live();
  if (sending_) throw std::logic_error("the message before is not complete");
  if (credit() < kMessageCharge) return false;
  if (envelope.bytes == 0) {
    if (!connection_.send_small({header(envelope, 0, 0), nullptr})) return false;
    reported_ = consumed_;
    end_ = connection_.accepted();
  } else {
    sending_ = envelope;
    offset_ = 0;
  }
  charged_ += kMessageCharge;
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
  std::size_t accepted = 0;
  if (bytes > kCopyBytes) {
    accepted = connection_.send_large(*this, {data, bytes});
  } else if (connection_.send_small({header(*sending_, offset_, bytes), data})) {
    accepted = bytes;
  }
  if (accepted == 0) return 0;
  reported_ = consumed_;
  end_ = connection_.accepted();
  charged_ += accepted;
  offset_ += accepted;
  if (offset_ == sending_->bytes) sending_.reset();
  connection_.counters_.sent_bytes += accepted;
  return accepted;
}

// No byte of the caller is looked at after `push` anyway. What is waited for is that the last one has gone to
// the socket: after that nobody need drive this endpoint for the peer to get it.
bool TcpLane::released() {
  const Connection::Lock lock(connection_);
  if (end_ <= connection_.written()) return true;
  connection_.must_live();
  connection_.flush();
  return end_ <= connection_.written();
}

FrameHeader TcpLane::header(const Envelope& envelope, std::uint64_t offset, std::size_t length) const {
  FrameHeader header = credit_header();
  header.kind = FrameKind::kData;
  header.sequence = envelope.sequence;
  header.fingerprint = envelope.fingerprint;
  header.message_bytes = envelope.bytes;
  header.offset = offset;
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

// -- Receiving, the user's side.

const Envelope* TcpLane::head() {
  const Connection::Lock lock(connection_);
  if (!messages_.empty()) return &messages_.front().envelope;
  connection_.must_live();
  return nullptr;
}

std::span<const std::byte> TcpLane::peek() {
  const Connection::Lock lock(connection_);
  if (messages_.empty()) return {};
  std::span<const std::byte> here = whole_elements();
  if (here.empty()) {
    connection_.start_reading();
    while (here.empty() && connection_.can_read()) {
      connection_.advance();
      here = whole_elements();
    }
    connection_.settle();
    if (here.empty() && messages_.front().envelope.bytes != 0) connection_.must_live();
  }
  return here;
}

void TcpLane::pop(std::size_t bytes) {
  const Connection::Lock lock(connection_);
  if (bytes > waiting()) throw std::logic_error("pop of more bytes than peek has shown");
  if (bytes == 0) return;
  window_.taken(bytes);
  take(bytes);
}

std::size_t TcpLane::pull(std::byte* to, std::size_t bytes) {
  const Connection::Lock lock(connection_);
  if (messages_.empty()) return 0;
  bytes = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, messages_.front().envelope.bytes - taken_));
  if (bytes == 0) return 0;
  eager = true;
  std::size_t got = copy_out(to, bytes);
  connection_.start_reading();
  while (got < bytes && connection_.can_read()) {
    const std::size_t direct = connection_.advance(this, {to + got, bytes - got});
    got += direct != 0 ? direct : copy_out(to + got, bytes - got);
  }
  connection_.settle();
  if (got == 0) connection_.must_live();
  return got;
}

void TcpLane::finish() {
  const Connection::Lock lock(connection_);
  if (messages_.empty() || messages_.front().envelope.bytes != 0)
    throw std::logic_error("finish ends only a message without bytes");
  end_message();
}

// What lies in one piece of the window, cut to whole units of 8 bytes unless it reaches the end of the
// message.
std::span<const std::byte> TcpLane::whole_elements() {
  const std::span<const std::byte> here = window_.next(waiting());
  const std::uint64_t end = taken_ + here.size();
  if (here.empty() || end == messages_.front().envelope.bytes) return here;
  const std::uint64_t cut = end / 8 * 8;
  return here.first(cut > taken_ ? static_cast<std::size_t>(cut - taken_) : 0);
}

std::size_t TcpLane::copy_out(std::byte* to, std::size_t bytes) {
  std::size_t got = 0;
  while (got < bytes && waiting() != 0) {
    const auto piece = window_.next(std::min<std::uint64_t>(bytes - got, waiting()));
    std::memcpy(to + got, piece.data(), piece.size());
    window_.taken(piece.size());
    got += piece.size();
    take(piece.size());
  }
  return got;
}

// Bytes of the head message have reached the user.
void TcpLane::take(std::size_t bytes) {
  taken_ += bytes;
  consumed_ += bytes;
  connection_.counters_.received_bytes += bytes;
  if (taken_ == messages_.front().envelope.bytes) {
    end_message();
  } else {
    report_credit();
  }
}

void TcpLane::end_message() {
  messages_.pop_front();
  window_.end_message();
  taken_ = 0;
  consumed_ += kMessageCharge;
  ++connection_.counters_.received_messages;
  report_credit();
}

// Credit goes back when half of the window is due, so that the peer never has to stop for it; else it rides
// on data.
void TcpLane::report_credit() {
  if (consumed_ - reported_ < kWindow / 2) return;
  reported_ = consumed_;
  connection_.send_control({credit_header(), nullptr});
}

// -- Receiving, the connection's side.

std::string TcpLane::enter(const FrameHeader& header) {
  const Envelope envelope{header.fingerprint, header.sequence, header.message_bytes};
  const bool first = header.offset == 0;
  const std::uint64_t charge = header.length + (first ? kMessageCharge : 0);
  if (charge > kWindow - (arrived_ - consumed_)) return "more bytes than it has credit for";
  if (!closed_) {
    const bool fresh = messages_.empty() || messages_.back().complete();
    if (first != fresh) return fresh ? "a message without its beginning" : "a message inside another";
    if (fresh) {
      messages_.push_back({envelope});
    } else if (messages_.back().envelope != envelope || messages_.back().received != header.offset) {
      return "a frame that does not continue its message";
    }
  }
  arrived_ += charge;
  if (closed_) {
    consumed_ = arrived_;
    report_credit();
  }
  return {};
}

bool TcpLane::acknowledge(std::uint64_t acknowledged) {
  if (acknowledged < acknowledged_ || acknowledged > charged_) return false;
  acknowledged_ = acknowledged;
  return true;
}

void TcpLane::stored(std::size_t bytes) {
  window_.written(bytes);
  messages_.back().received += bytes;
}

void TcpLane::close() {
  closed_ = true;
  messages_.clear();
  window_.clear();
  taken_ = 0;
  consumed_ = arrived_;
  report_credit();
}

bool TcpLane::undelivered() const {
  return messages_.size() > 1 || waiting() != 0 || (!messages_.empty() && messages_.front().complete());
}

}  // namespace pycomm::tcp
