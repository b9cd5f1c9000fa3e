// A TCP connection as an endpoint: lanes, over one link or several.
//
// Lanes. Each is a row of positions (frame.h), so that frames find their place whatever way they come. A
// frame that continues what its lane has is read from the socket straight into the user's buffer while that
// is being filled; any other goes to its place in the lane's window, which credit keeps large enough.
//
// Links. Several links share the traffic: a message is cut into frames, and each goes to the link that is
// likely to bring it first, by what is under way on the link and how fast it has proved to be. A slow link
// gets less, and none of what would hold up the rest. Small frames of a lane follow each other over one link.
//
// Acknowledgement. A link's frames are counted at both ends. The receiver says how many it has read to their
// end, which is into this process's memory: in whatever it sends over that link, else in a frame of its own,
// once so many bytes are due, when it finds nothing else to do, and when a call ends (`acknowledge`). Until
// then the sender keeps what it needs to send a frame again: a copy of a small one, for a large one the place
// in the caller's memory, which is released only by the acknowledgement. A call that fails takes its memory
// back with `recall`: what is still needed from there is copied.
//
// Resumption. A link is lost when it breaks, when its stream ends without a goodbye, or when nothing gets
// through for a while though the peer is heard over another; a peer that is silent on all links is stopped or
// elsewhere, and nothing is lost. What was not acknowledged is sent again over the links that are left, and
// the receiver drops, to the byte, what it has. With the last link the peer is lost.
//
// With one link there is nothing to resume over. Then nothing is kept or acknowledged, and memory is released
// as soon as the socket has taken the bytes.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "transport/descriptor.h"
#include "transport/endpoint.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/lane.h"
#include "transport/tcp/link.h"

namespace pycomm::tcp {

// The peer is lost when it says goodbye, with its last link, or when what it sends is nonsense. What had come
// before is still handed out by its lanes. `poll` and `check` do not throw after a goodbye: a rank that has
// finished its part of a collective may leave while others still talk; only who needs it is told.
class Connection final : public Endpoint {
 public:
  Connection(int peer, std::vector<Descriptor> sockets, const TcpOptions& options);
  ~Connection() override;

  const char* transport() const override { return "tcp"; }
  Lane& lane(std::uint32_t communicator, std::uint16_t channel) override;
  void forget(std::uint32_t communicator) override;
  bool poll() override;
  void check() override;
  void acknowledge() override;
  std::vector<Watched> descriptors() const override;
  std::uint64_t changes() const override { return changes_.load(std::memory_order_acquire); }
  void post_fault(const Fault& fault) override;
  std::optional<Fault> fault() override;
  Counters counters() const override;
  std::vector<LinkState> links() const override;
  void cut(std::size_t link) override;

  // -- For lanes, with the lock held.
  class Lock {
   public:
    explicit Lock(const Connection& connection) : guard_(connection.mutex_) {}

   private:
    std::lock_guard<std::mutex> guard_;
  };

  // Throws PeerLostError if the peer is lost.
  void must_live() const;
  bool single() const { return links_.size() == 1; }
  // Sends a small frame of a lane, now or, by copying it, soon. False if too much is pending already.
  bool send_small(TcpLane& lane, Frame frame);
  // Sends bytes of the lane's message as frames. Returns how many bytes were accepted.
  std::size_t send_large(TcpLane& lane, std::span<const std::byte> bytes);
  // Sends a frame that is not of a lane's messages, however much is pending.
  void send_control(Frame frame);
  void flush();
  // Copies what would be sent again out of the lane's user's memory.
  void keep_copies(const TcpLane& lane);

  // Reading is: start_reading, advance while there is something next_to_read, settle.
  void start_reading();
  // A link with something to read; first the one that has the lane's next payload.
  Link* next_to_read(const TcpLane& lane);
  // One step: a header, or some payload, into a window, or into `to` if it is what `reader`'s user takes
  // next. Returns the bytes that went into `to`.
  std::size_t advance(Link& link, const TcpLane* reader = nullptr, std::span<std::byte> to = {});
  // Draws the conclusion if a socket broke meanwhile.
  void settle();

 private:
  friend class TcpLane;

  TcpLane& lane_at(std::uint32_t communicator, std::uint16_t channel);

  // connection_sending.cc
  Link& choose(std::size_t bytes);
  Link& link_for(TcpLane& lane, std::uint64_t position, std::size_t bytes);
  std::size_t frame_bytes(const Link& link) const;
  std::size_t send_batch(TcpLane& lane, std::span<const std::byte> bytes);
  void accepted(Link& link, const Frame& frame, TcpLane* lane);
  bool resume();
  void watch_silence();
  void ask_over_others(const Link& silent);

  // connection_receiving.cc
  bool early(const Arriving& frame) const;
  bool leave_for_direct_read(const Link& link);
  std::size_t read_payload(Link& link, const TcpLane* reader, std::span<std::byte> to);
  void enter(Link& link, const FrameHeader& header);
  void enter_lane(Link& link, const FrameHeader& header);
  void enter_loss(const Link& link, std::uint64_t lost);
  void end_fault(Link& link);
  void took(Link& link, const FrameHeader& header);
  void pay();

  // connection.cc
  bool undelivered() const;
  void note_changes();
  void bury(Link& link);
  void drop(Link& link, const std::string& why);
  void lose(const std::string& why);
  void nonsense_came(const std::string& what);
  void leave();
  bool drop_undrained();
  bool drain(Clock::time_point deadline);

  const int peer_;
  const TcpOptions options_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Link>> links_;
  std::atomic<std::uint64_t> changes_{0};

  std::unordered_map<std::uint64_t, std::unique_ptr<TcpLane>> lanes_;  // by communicator and channel
  std::unordered_set<std::uint32_t> closed_;                           // communicators
  std::size_t strange_lanes_ = 0;                                      // made by frames and not yet asked for
  std::array<std::byte, 16 << 10> discarded_;                          // where bytes go that nobody needs

  std::deque<Sent> orphans_;             // unacknowledged frames of lost links, to be sent again
  std::atomic<bool> owes_large_{false};  // some link owes an acknowledgement that somebody waits for
  Clock::time_point looked_{};           // when silence was last looked for

  std::optional<Fault> fault_;
  const TcpLane* last_ = nullptr;     // that sent something large
  const TcpLane* refused_ = nullptr;  // another that found no room since

  std::string lost_;      // why; empty while the peer lives
  bool goodbye_ = false;  // it left in good order
};

}  // namespace pycomm::tcp
