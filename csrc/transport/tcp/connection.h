// One TCP connection as an endpoint: frames in, frames out, and the lanes between them and the user.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "transport/endpoint.h"
#include "transport/tcp/endpoint.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/inbox.h"
#include "transport/tcp/lane.h"
#include "transport/tcp/outbox.h"
#include "transport/tcp/socket.h"

namespace pycomm::tcp {

// The peer is lost when it says goodbye, when the stream ends or breaks, or when what it sends is nonsense.
// What had come before is still handed out by its lanes. `poll` and `check` do not throw after a goodbye: a
// rank that has finished its part of a collective may leave while others still talk; only who needs it is
// told.
class Connection final : public Endpoint {
 public:
  Connection(int peer, int socket_fd, const TcpOptions& options);
  ~Connection() override;

  const char* transport() const override { return "tcp"; }
  Lane& lane(std::uint32_t communicator, std::uint16_t channel) override;
  void forget(std::uint32_t communicator) override;
  bool poll() override;
  void check() override;
  int descriptor() const override { return socket_.fd(); }
  bool wants_write() const override;
  void post_fault(const Fault& fault) override;
  std::optional<Fault> fault() override;
  std::vector<LinkState> links() const override;

  // -- For lanes, with the lock held.
  class Lock {
   public:
    explicit Lock(const Connection& connection) : guard_(connection.mutex_) {}

   private:
    std::lock_guard<std::mutex> guard_;
  };

  // Throws PeerLostError if the peer is lost.
  void must_live() const;
  // Sends a small frame, now or, by copying it, soon. False if too much is pending already.
  bool send_small(const Frame& frame);
  // Sends bytes of the lane's message as frames. Returns how many bytes were accepted.
  std::size_t send_large(const TcpLane& lane, std::span<const std::byte> bytes);
  // Sends a frame however much is pending.
  void send_control(const Frame& frame);
  bool flush();
  std::uint64_t accepted() const { return outbox_.accepted(); }
  std::uint64_t written() const { return outbox_.written(); }

  // Reading is: start_reading, advance while can_read, settle.
  void start_reading();
  bool can_read() const;
  // One step: a header, or some payload, into a window, or into `to` if it is `lane`'s turn and the way is
  // free. Returns the bytes that went into `to`.
  std::size_t advance(TcpLane* lane = nullptr, std::span<std::byte> to = {});
  // Draws the conclusion if the socket broke meanwhile.
  void settle();

 private:
  friend class TcpLane;

  TcpLane& lane_at(std::uint32_t communicator, std::uint16_t channel);
  void enter(const FrameHeader& header);
  void enter_fault(const FrameHeader& header);
  void end_fault();
  std::span<std::byte> room();
  void lose(const std::string& why);
  void nonsense_came(const std::string& what);
  bool undelivered() const;
  void leave();

  const int peer_;
  const TcpOptions options_;
  mutable std::mutex mutex_;
  Socket socket_;
  Outbox outbox_{socket_};
  Inbox inbox_{socket_};

  std::unordered_map<std::uint64_t, std::unique_ptr<TcpLane>> lanes_;  // by communicator and channel
  std::unordered_set<std::uint32_t> closed_;                           // communicators
  std::size_t strange_lanes_ = 0;                                      // made by frames and not yet asked for

  // The frame under way: `left_` bytes of its payload are still to come, for a lane, or if null, for
  // fault_payload_.
  TcpLane* receiving_ = nullptr;
  std::size_t left_ = 0;
  bool large_ = false;  // that frame is large
  int steps_ =
      0;  // that reading may still take, so that a flood on one connection does not starve the others
  std::array<std::byte, 16 << 10> discarded_;  // where bytes of closed lanes go

  FrameHeader fault_header_;
  std::vector<std::byte> fault_payload_;
  std::optional<Fault> fault_;

  const TcpLane* last_ = nullptr;     // that sent something large
  const TcpLane* refused_ = nullptr;  // another that found the socket full since
  bool full_ = false;                 // a lane found the socket full since the last poll
  bool wants_write_ = false;
  mutable bool told_write_ =
      false;  // the last answer of wants_write; it stays when the descriptor is retired

  std::string lost_;      // why; empty while the peer lives
  bool goodbye_ = false;  // it left in good order
};

}  // namespace pycomm::tcp
