// What the reduction kernels should give, one element at a time, by definition.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "reduce/dtype.h"

namespace pycomm {

template <class T>
T get(const unsigned char* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

template <class T>
void put(unsigned char* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

// ---- 16-bit floats by their definition -------------------------------------------------------------------

struct Format {
  int mantissa_bits;
  int bias;
};

inline bool short_float(Dtype dtype) { return dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16; }

inline Format format_of(Dtype dtype) { return dtype == Dtype::kFloat16 ? Format{10, 15} : Format{7, 127}; }

inline float decode(Format format, std::uint16_t bits) {
  const int exponent = (bits & 0x7fff) >> format.mantissa_bits;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  double magnitude;
  if (exponent == 2 * format.bias + 1)
    magnitude = mantissa ? NAN : INFINITY;
  else if (exponent == 0)
    magnitude = std::ldexp(mantissa, 1 - format.bias - format.mantissa_bits);
  else
    magnitude =
        std::ldexp(mantissa + (1 << format.mantissa_bits), exponent - format.bias - format.mantissa_bits);
  return static_cast<float>(bits & 0x8000 ? -magnitude : magnitude);
}

// Counts units in the last place, which are the bits but for the sign.
inline std::uint16_t encode(Format format, float value) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = (2 * format.bias + 1) << format.mantissa_bits;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | 1);
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
  if (value == 0) return static_cast<std::uint16_t>(sign);
  const double magnitude = std::abs(static_cast<double>(value));
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias);
  const int units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent)));
  const int bits = units + ((exponent + format.bias - 1) << format.mantissa_bits);
  return static_cast<std::uint16_t>(sign | std::min(bits, infinity));
}

// ---- the reference: one element --------------------------------------------------------------------------

// f(value of the dtype's C++ type); a 16-bit float's is float.
template <class F>
auto visit(Dtype dtype, F f) {
  switch (dtype) {
    case Dtype::kInt8:
      return f(std::int8_t());
    case Dtype::kInt16:
      return f(std::int16_t());
    case Dtype::kInt32:
      return f(std::int32_t());
    case Dtype::kInt64:
      return f(std::int64_t());
    case Dtype::kUint8:
      return f(std::uint8_t());
    case Dtype::kUint16:
      return f(std::uint16_t());
    case Dtype::kUint32:
      return f(std::uint32_t());
    case Dtype::kUint64:
      return f(std::uint64_t());
    case Dtype::kFloat64:
      return f(double());
    default:
      return f(float());
  }
}

template <class T>
T load(Dtype dtype, const unsigned char* p) {
  return short_float(dtype) ? static_cast<T>(decode(format_of(dtype), get<std::uint16_t>(p))) : get<T>(p);
}

template <class T>
void store(Dtype dtype, unsigned char* p, T value) {
  if (short_float(dtype))
    put(p, encode(format_of(dtype), static_cast<float>(value)));
  else
    put(p, value);
}

template <class T>
T combine(Reduction reduction, T a, T b) {
  using Wide = std::conditional_t<std::is_integral_v<T>, unsigned __int128, T>;
  if (a != a) return a;
  if (b != b) return b;
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAvg:
      return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
    case Reduction::kProduct:
      return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    case Reduction::kMin:
      if constexpr (std::is_floating_point_v<T>)
        if (a == b) return std::signbit(a) ? a : b;  // of -0 and +0 the negative one
      return a < b ? a : b;
    case Reduction::kMax:
      if constexpr (std::is_floating_point_v<T>)
        if (a == b) return std::signbit(a) ? b : a;
      return a > b ? a : b;
  }
  return T();
}

template <class T>
T average(T sum, std::int64_t ranks) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<__int128>(sum) / ranks);
  else
    return sum / static_cast<T>(ranks);
}

}  // namespace pycomm
