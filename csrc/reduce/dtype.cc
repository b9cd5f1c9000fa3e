#include "reduce/dtype.h"

#include <array>
#include <stdexcept>

namespace pycomm {
namespace {

struct DtypeRow {
  const char* name;
  std::size_t size;
};

// In the order of the enumerations.
constexpr std::array kDtypes = {
    DtypeRow{"int8", 1},    DtypeRow{"int16", 2},    DtypeRow{"int32", 4},   DtypeRow{"int64", 8},
    DtypeRow{"uint8", 1},   DtypeRow{"uint16", 2},   DtypeRow{"uint32", 4},  DtypeRow{"uint64", 8},
    DtypeRow{"float16", 2}, DtypeRow{"bfloat16", 2}, DtypeRow{"float32", 4}, DtypeRow{"float64", 8},
};
constexpr std::array kReductions = {"sum", "product", "min", "max", "avg"};

static_assert(kDtypes.size() == static_cast<std::size_t>(Dtype::kFloat64) + 1);
static_assert(kReductions.size() == static_cast<std::size_t>(Reduction::kAvg) + 1);

// The value of `Enum` called `wanted`; `count` of them have names.
template <class Enum>
Enum named(const std::string& wanted, const char* kind, std::size_t count) {
  std::string known;
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<Enum>(i);
    if (wanted == name(value)) return value;
    known += (i ? ", " : "") + std::string(name(value));
  }
  throw std::invalid_argument("'" + wanted + "' is no " + kind + "; known are " + known);
}

}  // namespace

std::size_t size_of(Dtype dtype) { return kDtypes.at(static_cast<std::size_t>(dtype)).size; }

const char* name(Dtype dtype) { return kDtypes.at(static_cast<std::size_t>(dtype)).name; }

const char* name(Reduction reduction) { return kReductions.at(static_cast<std::size_t>(reduction)); }

Dtype dtype_named(const std::string& name) { return named<Dtype>(name, "dtype", kDtypes.size()); }

Reduction reduction_named(const std::string& name) {
  return named<Reduction>(name, "reduction", kReductions.size());
}

Dtype partial_type(Dtype dtype, Reduction reduction) {
  const bool short_float = dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16;
  const bool rounds = reduction != Reduction::kMin && reduction != Reduction::kMax;
  return short_float && rounds ? Dtype::kFloat32 : dtype;
}

}  // namespace pycomm
