// A lane of a TCP connection: credit and order for one channel of one communicator.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "transport/lane.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/window.h"

namespace pycomm::tcp {

class Connection;

// The overrides lock the connection; everything else is for the connection, which holds its lock then.
class TcpLane final : public Lane {
 public:
  // A piece of up to this size is copied if the socket is full; a larger one waits for room.
  static constexpr std::size_t kCopyBytes = 4 << 10;

  TcpLane(Connection& connection, std::uint32_t communicator, std::uint16_t channel)
      : connection_(connection), communicator_(communicator), channel_(channel) {}

  bool begin(const Envelope& envelope) override;
  std::size_t push(const std::byte* data, std::size_t bytes) override;
  bool released() override;
  const Envelope* head() override;
  std::span<const std::byte> peek() override;
  void pop(std::size_t bytes) override;
  std::size_t pull(std::byte* to, std::size_t bytes) override;
  void finish() override;

  // -- For the connection: a frame's way in.
  // Enters a data frame, before its payload. Says what is wrong with it; empty if nothing.
  std::string enter(const FrameHeader& header);
  // Takes note of what the peer has taken from this lane. False if that cannot be.
  bool acknowledge(std::uint64_t acknowledged);
  // True if the payload under way may skip the window: everything before it has been taken.
  bool direct() const { return !closed_ && messages_.size() == 1 && window_.empty(); }
  // Room in the window for payload of the frame under way.
  std::span<std::byte> room(std::size_t bytes) { return window_.room(messages_.back().received, bytes); }
  // So many bytes came into `room`.
  void stored(std::size_t bytes);

  // The communicator is closed: drops what is here, and what will come.
  void close();
  bool closed() const { return closed_; }
  // True if there is something that the user has not yet taken, and can take.
  bool undelivered() const;

  bool asked_for = false;  // by the user; else made when a frame came
  bool eager = false;      // its user is reading: `poll` leaves a large payload for a direct read, once

 private:
  friend class Connection;
  struct Message {
    Envelope envelope;
    std::uint64_t received = 0;  // of its bytes, so far
    bool complete() const { return received == envelope.bytes; }
  };

  FrameHeader header(const Envelope& envelope, std::uint64_t offset, std::size_t length) const;
  FrameHeader credit_header() const;
  std::size_t credit() const { return kWindow - static_cast<std::size_t>(charged_ - acknowledged_); }
  // Bytes of the head message in the window.
  std::uint64_t waiting() const { return messages_.empty() ? 0 : messages_.front().received - taken_; }
  std::span<const std::byte> whole_elements();
  std::size_t copy_out(std::byte* to, std::size_t bytes);
  void take(std::size_t bytes);
  void end_message();
  void report_credit();

  Connection& connection_;
  const std::uint32_t communicator_;
  const std::uint16_t channel_;
  bool closed_ = false;

  // Sending. Charges count bytes, and kMessageCharge for each message.
  std::optional<Envelope> sending_;  // begun and not yet complete
  std::uint64_t offset_ = 0;         // accepted bytes of it
  std::uint64_t charged_ = 0;        // for what was begun and accepted
  std::uint64_t acknowledged_ = 0;   // of that, taken by the peer's user
  std::uint64_t end_ = 0;            // place in the outgoing stream behind the last accepted frame

  // Receiving.
  std::deque<Message> messages_;
  std::uint64_t taken_ = 0;     // bytes of the head message
  std::uint64_t arrived_ = 0;   // charges of all frames entered
  std::uint64_t consumed_ = 0;  // of that, taken by the user
  std::uint64_t reported_ = 0;  // of that, made known to the peer
  Window window_;
};

}  // namespace pycomm::tcp
