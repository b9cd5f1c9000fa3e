#include "transport/shm/arrival.h"

namespace pycomm {

// A sequence lock whose count is the epoch, 0 while the line is being written. Every store is a release and
// every load an acquire, so a reader that saw one new word also sees that the epoch is no longer the one it
// began with.

void announce(ArrivalLine& line, std::uint64_t epoch, std::uint64_t fingerprint,
              const ArrivalPayload& payload) {
  line.epoch.store(0, std::memory_order_relaxed);
  line.fingerprint.store(fingerprint, std::memory_order_release);
  for (std::size_t i = 0; i < payload.size(); ++i) {
    line.payload[i].store(payload[i], std::memory_order_release);
  }
  line.epoch.store(epoch, std::memory_order_release);
}

std::optional<Arrival> look(const ArrivalLine& line) {
  Arrival arrival;
  arrival.epoch = line.epoch.load(std::memory_order_acquire);
  if (arrival.epoch == 0) return std::nullopt;
  arrival.fingerprint = line.fingerprint.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < arrival.payload.size(); ++i) {
    arrival.payload[i] = line.payload[i].load(std::memory_order_acquire);
  }
  if (line.epoch.load(std::memory_order_acquire) != arrival.epoch) return std::nullopt;
  return arrival;
}

}  // namespace pycomm
