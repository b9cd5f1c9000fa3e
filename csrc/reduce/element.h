// Elements as they lie in memory, at any address, and the rounding of the 16-bit floats.
//
// This header and those that include it are compiled once for each instruction set, so everything in them is
// in an unnamed namespace, and they call no inline function of the standard library: the linker keeps one
// copy of a function that several files share, and it may be the one that this CPU cannot run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pycomm {
namespace {

template <class T>
struct Element {
  unsigned char bytes[sizeof(T)];

  T get() const {
    T value;
    __builtin_memcpy(&value, bytes, sizeof value);
    return value;
  }
  void set(T value) { __builtin_memcpy(bytes, &value, sizeof value); }
};

struct Float16 : Element<std::uint16_t> {};
struct Bfloat16 : Element<std::uint16_t> {};
using Float32 = Element<float>;

// The bits of x as a bfloat16: rounded to nearest even; a NaN is made quiet, lest the rounding carry it to
// infinity. For a float and std::uint32_t, or for vectors of them.
template <class Bits, class Float>
Bits bfloat16_bits(Float x) {
  const Bits bits = __builtin_bit_cast(Bits, x);
  const Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Bits quiet = (bits >> 16) | 0x40u;
  return x != x ? quiet : rounded;
}

}  // namespace
}  // namespace pycomm
