// What went through one direction of one lane. One thread writes, any thread reads.
#pragma once

#include <atomic>
#include <cstdint>

namespace pycomm {

class LaneTraffic {
 public:
  void add_message() { bump(messages_, 1); }
  void add_bytes(std::uint64_t bytes) { bump(bytes_, bytes); }
  std::uint64_t messages() const { return messages_.load(std::memory_order_relaxed); }
  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  static void bump(std::atomic<std::uint64_t>& count,
                   std::uint64_t by) {  // one writer: no locked instruction
    count.store(count.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  std::atomic<std::uint64_t> messages_{0};
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace pycomm
