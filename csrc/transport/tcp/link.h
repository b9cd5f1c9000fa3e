// One link of a connection: a socket, what is on its way out and in, and what is not yet acknowledged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/endpoint.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/inbox.h"
#include "transport/tcp/outbox.h"
#include "transport/tcp/pace.h"
#include "transport/tcp/socket.h"

namespace pycomm::tcp {

class TcpLane;

// A frame that the peer has not acknowledged. A small one's payload is copied, a large one's is still in the
// caller's memory.
struct Sent {
  FrameHeader header;
  TcpLane* lane = nullptr;  // of a data frame
  const std::byte* payload = nullptr;
  std::unique_ptr<std::byte[]> copy;
  Pace::Start start{};  // of a large one

  void keep_copy();
};

// The frame that is coming in: `left` bytes of its payload are still to come, for a lane, or if null, for
// the link's `control`.
struct Arriving {
  FrameHeader header;
  TcpLane* lane = nullptr;
  std::size_t left = 0;
  bool large = false;

  std::uint64_t position() const { return header.position + header.length - left; }  // of the next byte
};

class Link {
 public:
  // Takes the descriptor, as Socket does. `resumes`: what is not acknowledged is kept, for another link.
  Link(std::uint16_t index, int socket_fd, const TcpOptions& options, bool resumes);

  std::uint16_t index() const { return index_; }
  bool alive() const { return state_.lost.empty(); }
  const LinkState& state() const { return state_; }
  Socket& socket() { return socket_; }
  // Hangs up. What the peer has not acknowledged stays in `unacknowledged`.
  void end(const std::string& why);

  // -- Out. Frames leave in the order in which they were accepted, each with what has come in by then.
  // As Outbox::write.
  std::size_t write(std::span<Frame> frames);
  // Sends a frame now or, by copying it, soon. False if too much is pending already.
  bool write_small(Frame& frame);
  // Sends a frame however much is pending.
  void append(Frame& frame);
  bool flush() { return outbox_.flush(); }
  bool pending() const { return outbox_.pending() != 0; }
  // The peer's machine has all that was accepted.
  bool drained() const { return !pending() && socket_.unacknowledged() == 0; }
  std::uint64_t accepted() const { return outbox_.accepted(); }
  std::uint64_t written() const { return outbox_.written(); }
  bool full = false;         // somebody found no room since the last poll
  bool wants_write = false;  // so it was at the last poll

  // -- Acknowledgement.
  // Keeps an accepted frame until it is acknowledged.
  void remember(Sent frame);
  // The peer has taken so many frames: calls `released` for each that is new. False if that cannot be.
  template <typename Released>
  bool acknowledge(std::uint32_t taken, Released released);
  std::deque<Sent>& unacknowledged() { return unacknowledged_; }
  std::size_t unacknowledged_bytes() const { return unacknowledged_bytes_; }
  double rate(Clock::time_point now) const { return pace_.rate(now); }

  // A frame has come in to its end.
  void took(const FrameHeader& header);
  // What the peer has not been told of: any frames, bytes of large ones.
  bool owes() const { return owed_frames_; }
  std::size_t owed_bytes() const { return owed_bytes_; }
  // Tells it, without waiting for a frame that goes there anyway.
  void pay();

  // -- In. Reading is: start_reading, some steps while can_read.
  Inbox& inbox() { return inbox_; }
  void start_reading();
  bool can_read() const;
  void step() { --steps_; }
  bool spent() const { return steps_ == 0; }
  std::size_t read(std::span<std::byte> to);  // payload of the frame under way
  Arriving arriving;
  std::vector<std::byte> control;  // payload of a fault frame

  // -- Whether the way is open.
  // True if nothing has come through either way since it was last asked, though something is under way. What
  // the peer's machine has may still be stuck: something between us may have taken it in the peer's stead.
  bool stuck();
  // Asks the peer to say something on this link; once, until it was found not to be stuck.
  void ask();
  bool heard() const { return heard_; }        // whether something had come in then
  std::chrono::nanoseconds silent{0};          // stuck for so long, while other links were not
  bool told_alive = true, told_write = false;  // as the endpoint's user knows

 private:
  void stamp(Frame& frame) const;
  void sent(std::span<const Frame> frames);

  const std::uint16_t index_;
  const bool resumes_;
  Socket socket_;
  Outbox outbox_{socket_};
  Inbox inbox_{socket_};
  LinkState state_;

  std::uint32_t frames_ = 0;        // sent and counted (mod 2^32)
  std::uint32_t acknowledged_ = 0;  // of these, taken by the peer
  std::deque<Sent> unacknowledged_;
  std::size_t unacknowledged_bytes_ = 0;
  Pace pace_;
  std::uint32_t taken_ = 0;  // frames that came in
  bool owed_frames_ = false;
  std::size_t owed_bytes_ = 0;

  int steps_ = 0;  // that reading may still take, so that a flood on one link does not starve the others
  std::uint64_t seen_in_ = 0, seen_out_ = 0;  // progress at the last look
  bool heard_ = false;
  bool asked_ = false;
};

template <typename Released>
bool Link::acknowledge(std::uint32_t taken, Released released) {
  std::uint32_t news = taken - acknowledged_;
  if (news == 0) return true;
  if (news > frames_ - acknowledged_) return false;
  acknowledged_ = taken;
  if (!resumes_) return true;
  std::size_t large = 0;
  Pace::Start start{};
  for (; news != 0; --news) {
    const Sent& frame = unacknowledged_.front();
    if (frame.lane != nullptr && frame.header.length > kCopyBytes) {
      start = frame.start;
      large += frame.header.length;
    }
    unacknowledged_bytes_ -= frame.header.length;
    released(frame);
    unacknowledged_.pop_front();
  }
  if (large != 0) pace_.delivered(large, start);
  return true;
}

}  // namespace pycomm::tcp
