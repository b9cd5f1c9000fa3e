// Element types and reductions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace pycomm {

enum class Dtype : std::uint8_t {
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
};

enum class Reduction : std::uint8_t { kSum, kProduct, kMin, kMax, kAvg };

std::size_t size_of(Dtype dtype);
const char* name(Dtype dtype);                       // NumPy's: "float32", "bfloat16"
const char* name(Reduction reduction);               // "sum", "product", "min", "max", "avg"
Dtype dtype_named(const std::string& name);          // throws std::invalid_argument that lists the known ones
Reduction reduction_named(const std::string& name);  // likewise

// What incomplete sums are kept and sent in: float32 for the 16-bit floats under sum, product and avg, so
// that they are rounded once, at the end; the dtype itself otherwise.
Dtype partial_type(Dtype dtype, Reduction reduction);

}  // namespace pycomm
