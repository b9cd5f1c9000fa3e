// A request: what one rank asks of one call, packed so that peers can compare it and print it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "program/collective.h"
#include "reduce/dtype.h"

namespace pycomm {

struct Request {
  std::uint8_t collective = 0;  // Collective, or kBarrier
  std::uint8_t reduction = 0;   // Reduction; 0 where the collective has none
  std::uint8_t dtype = 0;       // Dtype
  std::uint8_t version = 1;
  std::int32_t root = 0;
  std::uint64_t count = 0;  // elements of a block
  std::uint64_t plan = 0;   // digest of the chosen plan, so that ranks that chose unlike ones find out
  std::uint32_t communicator = 0;
  std::uint32_t size = 0;  // of the communicator

  static constexpr std::uint8_t kBarrier = 255;

  // 64 bits that differ, but for a chance of 2^-64, where two requests do. Never 0.
  std::uint64_t fingerprint() const;
  // The arrival line's payload, and back.
  std::array<std::uint64_t, 6> pack() const;
  static Request parse(const std::array<std::uint64_t, 6>& words);

  // Such as "all_reduce", without anything else.
  std::string verb() const;
  // Such as "all_reduce #1042 [float32 × 16777216, sum]".
  std::string text(std::uint64_t sequence) const;
};

}  // namespace pycomm
