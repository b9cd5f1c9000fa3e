#include "reduce/dtype.h"

#include "check.h"

using namespace pycomm;

namespace {

constexpr int kDtypes = static_cast<int>(Dtype::kFloat64) + 1;
constexpr int kReductions = static_cast<int>(Reduction::kAvg) + 1;

}  // namespace

TEST(names_lead_back_to_what_they_name) {
  for (int i = 0; i < kDtypes; ++i) CHECK_EQ(dtype_named(name(static_cast<Dtype>(i))), static_cast<Dtype>(i));
  for (int i = 0; i < kReductions; ++i)
    CHECK_EQ(reduction_named(name(static_cast<Reduction>(i))), static_cast<Reduction>(i));
}

TEST(names_end_in_the_bits_of_an_element) {
  for (int i = 0; i < kDtypes; ++i) {
    const auto dtype = static_cast<Dtype>(i);
    const std::string text = name(dtype);
    CHECK_EQ(text.substr(text.find_first_of("0123456789")), std::to_string(8 * size_of(dtype)));
  }
}

TEST(unknown_names_are_refused_with_the_known_ones) {
  CHECK_THROWS(dtype_named("float"), "'float' is no dtype; known are int8, int16, int32");
  CHECK_THROWS(dtype_named(""), "bfloat16, float32, float64");
  CHECK_THROWS(reduction_named("add"), "'add' is no reduction; known are sum, product, min, max, avg");
}

TEST(only_rounding_reductions_of_16_bit_floats_have_a_partial_type) {
  for (int i = 0; i < kDtypes; ++i) {
    for (int j = 0; j < kReductions; ++j) {
      const auto dtype = static_cast<Dtype>(i);
      const auto reduction = static_cast<Reduction>(j);
      const bool picks = reduction == Reduction::kMin || reduction == Reduction::kMax;
      const bool wider = (dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16) && !picks;
      CHECK_EQ(partial_type(dtype, reduction), wider ? Dtype::kFloat32 : dtype);
    }
  }
}
