// Arrival lines: what a rank last asked for on a communicator, for its peers to compare with their own
// request.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "transport/shm/segment.h"

namespace pycomm {

using ArrivalPayload = std::array<std::uint64_t, 6>;

struct Arrival {
  std::uint64_t epoch = 0;
  std::uint64_t fingerprint = 0;
  ArrivalPayload payload{};

  friend bool operator==(const Arrival&, const Arrival&) = default;
};

// Writes the line; only its owner may. `epoch` is not 0 and grows from call to call.
void announce(ArrivalLine& line, std::uint64_t epoch, std::uint64_t fingerprint,
              const ArrivalPayload& payload);

// The same for a request that the line holds already, which is then one store; false if it holds another.
inline bool announce_again(ArrivalLine& line, std::uint64_t epoch, std::uint64_t fingerprint) {
  if (line.fingerprint.load(std::memory_order_relaxed) != fingerprint) return false;
  line.epoch.store(epoch, std::memory_order_release);  // whatever a reader sees of the rest goes with either
  return true;
}

// What the line says, or nothing when nothing was written yet or it is being written at this moment: look
// again.
std::optional<Arrival> look(const ArrivalLine& line);

}  // namespace pycomm
