// A lane of a TCP connection: credit and order for one channel of one communicator.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "transport/lane.h"
#include "transport/tcp/coverage.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/window.h"

namespace pycomm::tcp {

class Connection;
class Link;

// The overrides lock the connection; everything else is for the connection, which holds its lock then.
class TcpLane final : public Lane {
 public:
  TcpLane(Connection& connection, std::uint32_t communicator, std::uint16_t channel)
      : connection_(connection), communicator_(communicator), channel_(channel) {}

  bool begin(const Envelope& envelope) override;
  std::size_t push(const std::byte* data, std::size_t bytes) override;
  bool released() override;
  std::uint64_t mark() const override { return charged_; }  // written by this lane's thread only
  bool released_before(std::uint64_t mark) override;
  void recall() override;
  const Envelope* head() override;
  std::span<const std::byte> peek() override;
  void pop(std::size_t bytes) override;
  std::size_t pull(std::byte* to, std::size_t bytes) override;
  void finish() override;

  // -- For the connection: a frame's way out.
  FrameHeader next_header(std::size_t length) const;
  // A frame that begins at a position was accepted by a link, for the first time.
  void sent(std::uint64_t begin, const Link& link, bool until_acknowledged);
  // So many more bytes were accepted.
  void pushed(std::size_t bytes);
  // It was acknowledged; its link was lost before that; it was sent again.
  void acknowledged_frame(std::uint64_t begin);
  void orphaned(std::uint64_t begin);
  void resent(std::uint64_t begin, const Link& link);

  // -- For the connection: a frame's way in.
  // Enters a data frame, before its payload. Says what is wrong with it; empty if nothing. With one link
  // everything comes once and in order.
  std::string enter(const FrameHeader& header, bool in_order);
  // Takes note of what the peer has taken from this lane. False if that cannot be.
  bool acknowledge(std::uint64_t acknowledged);
  // True if payload for a position may skip the window: the user has taken everything before it.
  bool direct(std::uint64_t position) const {
    return !closed_ && has_head() && position == reading() && waiting() == 0;
  }
  const Coverage& coverage() const { return coverage_; }
  // Room in the window for payload.
  std::span<std::byte> room(std::uint64_t position, std::size_t bytes);
  // So many bytes of a frame's payload have come, to where `room` said or to the user. False if there are
  // too many gaps now.
  bool stored(const FrameHeader& header, std::uint64_t position, std::size_t bytes);
  // Bytes of the head message have reached the user.
  void take(std::size_t bytes);

  // The communicator is closed: drops what is here, and what will come.
  void close();
  bool closed() const { return closed_; }
  // True if there is something that the user has not yet taken, and can take.
  bool undelivered() const;

  bool asked_for = false;      // by the user; else made when a frame came
  bool eager = false;          // its user is reading: `poll` leaves a large payload for a direct read, once
  Link* link = nullptr;        // that small frames go over
  std::uint64_t switched = 0;  // position from which on they do

 private:
  struct Message {
    std::uint64_t begin;  // position
    Envelope envelope;
    std::uint64_t payload() const { return begin + kMessageCharge; }
    std::uint64_t payload_end() const { return payload() + envelope.bytes; }
    std::uint64_t end() const { return begin + charge_of(envelope.bytes); }
  };
  struct Unreleased {
    std::uint64_t begin;      // position
    const Link* link;         // or null while it has none
    std::uint64_t place;      // in that link's stream, behind it
    bool until_acknowledged;  // else until the socket has taken it
  };

  FrameHeader credit_header() const;
  std::size_t credit() const;
  bool gone(const Unreleased& frame) const;
  Unreleased* find_unreleased(std::uint64_t begin);
  void need_no_memory();  // of the caller's, for what is not yet released

  bool has_head() const { return !messages_.empty() && messages_.front().begin == head_; }
  const Message& head_message() const { return messages_.front(); }
  // Position of the next byte of the head message that the user will take.
  std::uint64_t reading() const { return head_ + kMessageCharge + taken_; }
  // Bytes of the head message that are here for the user.
  std::uint64_t waiting() const;
  bool head_complete() const { return coverage_.next() >= head_message().payload_end(); }
  std::string enter_message(std::uint64_t begin, const Envelope& envelope);
  std::span<const std::byte> whole_elements();
  std::size_t copy_out(std::byte* to, std::size_t bytes);
  void end_message();
  void report_credit();

  Connection& connection_;
  const std::uint32_t communicator_;
  const std::uint16_t channel_;
  bool closed_ = false;

  // Sending, in positions.
  std::optional<Envelope> sending_;    // begun and not yet complete
  std::uint64_t offset_ = 0;           // accepted bytes of it
  std::uint64_t charged_ = 0;          // for what was begun and accepted
  std::uint64_t acknowledged_ = 0;     // of that, taken by the peer's user
  std::deque<Unreleased> unreleased_;  // in order

  // Receiving, in positions.
  std::deque<Message> messages_;  // that have begun to come, in order
  Coverage coverage_;
  std::uint64_t head_ = 0;      // where the head message begins
  std::uint64_t taken_ = 0;     // bytes of it that the user has taken
  std::uint64_t consumed_ = 0;  // all before it is done with
  std::uint64_t reported_ = 0;  // of that, made known to the peer
  Window window_;
};

}  // namespace pycomm::tcp
