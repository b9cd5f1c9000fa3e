// What the lanes of one rank share for what they lend and borrow: from which size on, and where to read to.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

namespace pycomm {

// Where lent bytes are read to that are reduced from there, and so never written to memory: small enough to
// stay in the cache of a core, large enough to be worth a system call.
inline constexpr std::size_t kTileBytes = 128 << 10;

struct alignas(64) Tile {
  std::byte data[kTileBytes];
};

// The tile that was given back last is taken first: it is still in the cache. Thread-safe.
class TilePool {
 public:
  std::unique_ptr<Tile> take() {
    const std::scoped_lock lock(mutex_);
    if (free_.empty()) return std::make_unique_for_overwrite<Tile>();
    auto tile = std::move(free_.back());
    free_.pop_back();
    return tile;
  }
  void give(std::unique_ptr<Tile> tile) {
    const std::scoped_lock lock(mutex_);
    free_.push_back(std::move(tile));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Tile>> free_;
};

struct Lending {
  // The least message that is lent; from the profile. Nothing is lent before it is set.
  std::atomic<std::uint64_t> least_bytes{std::numeric_limits<std::uint64_t>::max()};
  TilePool tiles;
};

}  // namespace pycomm
