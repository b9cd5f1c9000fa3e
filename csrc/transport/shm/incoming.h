// The receiving half of a shared-memory lane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/lane.h"
#include "transport/shm/directory.h"
#include "transport/shm/lane_traffic.h"
#include "transport/shm/lending.h"
#include "transport/shm/outgoing.h"
#include "transport/shm/peer_memory.h"

namespace pycomm {

// Reads messages out of a block of the peer's segment, found there when the peer has sent the first one, and
// what is lent out of the peer's memory: straight to where it belongs, or for `peek` into a tile.
// Everything that is used as a size is checked: memory that a peer of ours would not write throws
// PeerLostError. For one thread at a time.
class Incoming {
 public:
  // `key.receiver` is this rank; `sender` is named in errors.
  Incoming(Segment& segment, const LaneKey& key, int sender, const PeerBell& peer, const PeerMemory& memory,
           TilePool& tiles)
      : segment_(segment), key_(key), sender_(sender), peer_(peer), memory_(memory), tiles_(tiles) {}

  // As in Lane.
  const Envelope* head();
  std::span<const std::byte> peek();
  void pop(std::size_t bytes);
  std::size_t pull(std::byte* to, std::size_t bytes);
  void finish();

  const LaneTraffic& traffic() const { return traffic_; }

 private:
  bool find();
  bool open_message();
  bool ready();
  void open_slice();
  void open_long();
  void open_loan(std::uint64_t bytes);
  const Slot& slot() const { return use_.block->slots[taken_ % kSlots]; }
  void fill_tile();
  std::size_t pull_lent(std::byte* to, std::size_t bytes);
  void read(std::byte* to, std::size_t bytes);
  bool recalled() const;
  void took(std::size_t bytes);
  void give_back();
  [[noreturn]] void corrupt(std::uint64_t bytes) const;

  Segment& segment_;
  const LaneKey key_;
  const int sender_;
  const PeerBell peer_;
  const PeerMemory& memory_;
  TilePool& tiles_;
  LaneUse use_{};
  bool looked_ = false;          // for the block, in vain
  std::uint32_t looked_at_ = 0;  // the directory's changes before that look
  std::uint32_t taken_ = 0;      // slices read to the end (mod 2^32)
  std::uint32_t returned_ = 0;   // of these, known to the sender
  Stamp stamp_{0};               // of the slice at the head
  bool open_ = false;            // a message is at the head
  Envelope envelope_{};
  std::uint64_t left_ = 0;              // bytes of it that are not taken yet
  bool waited_for_ = false;             // the sender may wait for the slice at the head to be given back
  std::span<const std::byte> slice_{};  // what is left of it; of a lent one, of the tile
  std::uint64_t lent_ = 0;              // bytes of a lent slice that have not been read
  std::uint64_t address_ = 0;           // of the first of them, in the sender's memory
  std::unique_ptr<Tile> tile_;          // while some of it is not taken
  LaneTraffic traffic_;
};

}  // namespace pycomm
