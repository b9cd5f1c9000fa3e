#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "transport/tcp/connection.h"
#include "transport/tcp/lane.h"

namespace pycomm::tcp {

// -- The user's side.

const Envelope* TcpLane::head() {
  const Connection::Lock lock(connection_);
  if (has_head()) return &head_message().envelope;
  connection_.must_live();
  return nullptr;
}

std::span<const std::byte> TcpLane::peek() {
  const Connection::Lock lock(connection_);
  if (!has_head()) return {};
  std::span<const std::byte> here = whole_elements();
  if (here.empty()) {
    connection_.start_reading();
    while (here.empty()) {
      Link* from = connection_.next_to_read(*this);
      if (from == nullptr) break;
      connection_.advance(*from);
      here = whole_elements();
    }
    connection_.settle();
    if (here.empty() && head_message().envelope.bytes != 0) connection_.must_live();
  }
  return here;
}

void TcpLane::pop(std::size_t bytes) {
  const Connection::Lock lock(connection_);
  if (bytes > waiting()) throw std::logic_error("pop of more bytes than peek has shown");
  if (bytes != 0) take(bytes);
}

std::size_t TcpLane::pull(std::byte* to, std::size_t bytes) {
  const Connection::Lock lock(connection_);
  if (!has_head()) return 0;
  bytes = static_cast<std::size_t>(std::min(bytes, head_message().envelope.bytes - taken_));
  if (bytes == 0) return 0;
  eager = true;
  std::size_t got = copy_out(to, bytes);
  connection_.start_reading();
  while (got < bytes) {
    Link* from = connection_.next_to_read(*this);
    if (from == nullptr) break;
    got += connection_.advance(*from, this, {to + got, bytes - got});
    got += copy_out(to + got, bytes - got);
  }
  connection_.settle();
  if (got == 0) connection_.must_live();
  return got;
}

void TcpLane::finish() {
  const Connection::Lock lock(connection_);
  if (!has_head() || head_message().envelope.bytes != 0)
    throw std::logic_error("finish ends only a message without bytes");
  end_message();
}

std::uint64_t TcpLane::waiting() const {
  return has_head() ? std::min(coverage_.next(), head_message().payload_end()) - reading() : 0;
}

// What lies in one piece of the window, cut to whole units of 8 bytes unless it reaches the end of the
// message.
std::span<const std::byte> TcpLane::whole_elements() {
  const std::span<const std::byte> here = window_.at(reading(), waiting());
  const std::uint64_t end = taken_ + here.size();
  if (here.empty() || end == head_message().envelope.bytes) return here;
  const std::uint64_t cut = end / 8 * 8;
  return here.first(cut > taken_ ? static_cast<std::size_t>(cut - taken_) : 0);
}

std::size_t TcpLane::copy_out(std::byte* to, std::size_t bytes) {
  std::size_t got = 0;
  while (got < bytes && waiting() != 0) {
    const auto piece = window_.at(reading(), std::min<std::uint64_t>(bytes - got, waiting()));
    std::memcpy(to + got, piece.data(), piece.size());
    got += piece.size();
    take(piece.size());
  }
  return got;
}

void TcpLane::take(std::size_t bytes) {
  taken_ += bytes;
  consumed_ = reading();
  connection_.counters_.received_bytes += bytes;
  if (taken_ == head_message().envelope.bytes) {
    end_message();
  } else {
    report_credit();
  }
}

void TcpLane::end_message() {
  head_ = consumed_ = head_message().end();
  taken_ = 0;
  messages_.pop_front();
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

// -- The connection's side.

std::string TcpLane::enter(const FrameHeader& header, bool in_order) {
  const std::uint64_t limit = consumed_ + kWindow;
  if (header.position > limit || header.length > limit - header.position)
    return "more bytes than it has credit for";
  if (in_order && begin_of(header) != coverage_.next()) return "a frame that does not continue its lane";
  const std::uint64_t begin = header.position - header.offset - kMessageCharge;
  if (!closed_) {
    const Envelope envelope{header.fingerprint, header.sequence, header.message_bytes};
    if (const std::string what = enter_message(begin, envelope); !what.empty()) return what;
  }
  if (!coverage_.add(begin, kMessageCharge)) return "pieces with too many gaps between them";
  if (closed_) {
    consumed_ = coverage_.next();
    report_credit();
  }
  return {};
}

// A message that has not been seen yet takes its place between the others.
std::string TcpLane::enter_message(std::uint64_t begin, const Envelope& envelope) {
  const Message message{begin, envelope};
  if (begin < head_) return message.end() <= head_ ? "" : "a message inside another";
  auto behind = messages_.end();  // most often the frame is of the last one, or of a new one
  while (behind != messages_.begin() && std::prev(behind)->begin > begin) --behind;
  if (behind != messages_.begin()) {
    const Message& before = *std::prev(behind);
    if (before.begin == begin)
      return before.envelope == envelope ? "" : "a frame that does not continue its message";
    if (before.end() > begin) return "a message inside another";
  }
  if (behind != messages_.end() && behind->begin < message.end()) return "a message inside another";
  messages_.insert(behind, message);
  return {};
}

std::span<std::byte> TcpLane::room(std::uint64_t position, std::size_t bytes) {
  if (coverage_.gapless() && coverage_.next() <= reading()) window_.restart(position);
  return window_.room(position, bytes);
}

// With the last byte of a message comes the way to the beginning of the next.
bool TcpLane::stored(const FrameHeader& header, std::uint64_t position, std::size_t bytes) {
  const std::uint64_t left = header.position - header.offset + header.message_bytes - position;
  const bool fits =
      coverage_.add(position, bytes == left ? (position + bytes + 7) / 8 * 8 - position : bytes);
  if (closed_) {
    consumed_ = coverage_.next();
    report_credit();
  }
  return fits;
}

void TcpLane::close() {
  need_no_memory();
  closed_ = true;
  messages_.clear();
  window_.clear();
  head_ = consumed_ = coverage_.next();
  taken_ = 0;
  report_credit();
}

bool TcpLane::undelivered() const { return has_head() && (waiting() != 0 || head_complete()); }

}  // namespace pycomm::tcp
