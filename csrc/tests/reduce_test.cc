// Every kernel of every instruction set that this CPU has, against one element at a time in plain C++.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "reduce/kernel_set.h"
#include "reduce_reference.h"

using namespace pycomm;

namespace {

using Bytes = std::vector<unsigned char>;

constexpr std::array kDtypes = {
    Dtype::kInt8,   Dtype::kInt16,  Dtype::kInt32,   Dtype::kInt64,    Dtype::kUint8,   Dtype::kUint16,
    Dtype::kUint32, Dtype::kUint64, Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kFloat64,
};
constexpr std::array kReductions = {Reduction::kSum, Reduction::kProduct, Reduction::kMin, Reduction::kMax,
                                    Reduction::kAvg};

std::vector<std::size_t> sizes() {
  std::vector<std::size_t> all;
  for (std::size_t n = 0; n <= 70; ++n) all.push_back(n);
  all.push_back(1000);
  return all;
}

// ---- buffers ---------------------------------------------------------------------------------------------

// n elements at any address, between bytes that nobody may write.
struct Buffer {
  static constexpr std::size_t kMargin = 64;
  Dtype dtype;
  std::size_t start;
  Bytes bytes;

  Buffer(Dtype dtype, std::size_t n, std::size_t misalignment)
      : dtype(dtype), start(kMargin + misalignment), bytes(start + n * size_of(dtype) + kMargin, 0xa5) {}
  unsigned char* data() { return bytes.data() + start; }
  unsigned char* at(std::size_t i) { return data() + i * size_of(dtype); }
};

// Small numbers, the values at which things go wrong, and any bits.
template <class T>
T random_value(std::mt19937& random) {
  using Limits = std::numeric_limits<T>;
  const std::array special = {T(-0.0),       T(-1),         Limits::infinity(), Limits::quiet_NaN(),
                              Limits::max(), Limits::min(), Limits::lowest(),   Limits::denorm_min()};
  switch (random() % 4) {
    case 0:
      return special[random() % special.size()];
    case 1: {
      const std::uint64_t bits = std::uint64_t{random()} << 32 | random();
      return get<T>(reinterpret_cast<const unsigned char*>(&bits));
    }
    default:
      return static_cast<T>(static_cast<int>(random() % 201) - 100);
  }
}

Buffer random_buffer(Dtype dtype, std::size_t n, std::mt19937& random) {
  Buffer buffer(dtype, n, random() % 16);
  for (std::size_t i = 0; i < n; ++i) {
    if (short_float(dtype) && random() % 2)
      put(buffer.at(i), static_cast<std::uint16_t>(random()));
    else
      visit(dtype, [&]<class T>(T) { store(dtype, buffer.at(i), random_value<T>(random)); });
  }
  return buffer;
}

// The bits of n elements, those of all NaN alike.
Bytes bits(Dtype dtype, const unsigned char* elements, std::size_t n) {
  Bytes all(elements, elements + n * size_of(dtype));
  visit(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < n; ++i) {
      unsigned char* p = all.data() + i * size_of(dtype);
      if (const T x = load<T>(dtype, p); x != x) store(dtype, p, std::numeric_limits<T>::quiet_NaN());
    }
  });
  return all;
}

// Whether `place` holds the n elements of `expected`, and is as it was `before` elsewhere.
bool holds(Buffer& place, Buffer& before, Buffer& expected, std::size_t n) {
  const Dtype dtype = expected.dtype;
  const bool right = bits(dtype, place.data(), n) == bits(dtype, expected.data(), n);
  Bytes restored = place.bytes;
  std::copy_n(before.data(), n * size_of(dtype), restored.data() + place.start);
  return right && restored == before.bytes;
}

struct Case {
  const KernelSet& set;
  Dtype dtype;
  Reduction reduction;
};

// f(Case) for every set, dtype and reduction.
template <class F>
void for_each_case(F f) {
  for (const KernelSet* set : kernel_sets())
    for (Dtype dtype : kDtypes)
      for (Reduction reduction : kReductions) f(Case{*set, dtype, reduction});
}

std::string describe(const Case& c, std::size_t n, const char* place) {
  return std::string(c.set.name) + " " + name(c.dtype) + " " + name(c.reduction) + " " + std::to_string(n) +
         " " + place;
}

void check_reduce(const Case& c, unsigned flags, std::size_t n, std::mt19937& random) {
  const auto type = [&](unsigned flag) {
    return flags & flag ? partial_type(c.dtype, c.reduction) : c.dtype;
  };
  const Buffer a = random_buffer(type(2), n, random), b = random_buffer(type(1), n, random);
  const Buffer apart = Buffer(type(4), n, random() % 16);
  Buffer expected = apart;
  visit(c.dtype, [&]<class T>(T) {
    Buffer x = a, y = b;
    for (std::size_t i = 0; i < n; ++i)
      store(expected.dtype, expected.at(i),
            combine(c.reduction, load<T>(a.dtype, x.at(i)), load<T>(b.dtype, y.at(i))));
  });
  const ReduceKernel kernel = c.set.reduce(c.dtype, c.reduction, flags & 4, flags & 2, flags & 1);
  const auto run = [&](const char* place, std::size_t index) {
    std::array before = {a, b, apart}, after = before;
    if (size_of(after[index].dtype) < size_of(expected.dtype)) return;
    kernel(after[index].data(), after[0].data(), after[1].data(), n);
    const bool others =
        (index == 0 || after[0].bytes == a.bytes) && (index == 1 || after[1].bytes == b.bytes);
    CHECK_EQ(describe(c, n, holds(after[index], before[index], expected, n) && others ? place : "wrong"),
             describe(c, n, place));
  };
  run("apart", 2), run("on a", 0), run("on b", 1);
}

void check_finish(const Case& c, bool partial, std::size_t n, std::mt19937& random) {
  constexpr std::int64_t kRanks[] = {1, 2, 3, 7, 64, 300, 100003};
  const std::int64_t ranks = kRanks[random() % std::size(kRanks)];
  const Buffer src = random_buffer(partial ? partial_type(c.dtype, c.reduction) : c.dtype, n, random);
  const Buffer apart = Buffer(c.dtype, n, random() % 16);
  Buffer expected = apart;
  visit(c.dtype, [&]<class T>(T) {
    Buffer x = src;
    for (std::size_t i = 0; i < n; ++i) {
      const T value = load<T>(src.dtype, x.at(i));
      store(c.dtype, expected.at(i), c.reduction == Reduction::kAvg ? average(value, ranks) : value);
    }
  });
  const FinishKernel kernel = c.set.finish(c.dtype, c.reduction, partial);
  const auto run = [&](const char* place, std::size_t index) {
    std::array before = {src, apart}, after = before;
    kernel(after[index].data(), after[0].data(), n, ranks);
    CHECK_EQ(describe(c, n, holds(after[index], before[index], expected, n) ? place : "wrong"),
             describe(c, n, place));
  };
  run("apart", 1), run("in place", 0);
}

// Every float32 whose first 19 bits are any, and whose last ones are at or beside those of numbers half-way
// between two 16-bit floats.
std::vector<float> roundings() {
  std::vector<float> all;
  for (std::uint32_t high = 0; high < 1u << 19; ++high)
    for (std::uint32_t low : {0u, 1u, 0x1000u, 0x1fffu})
      all.push_back(std::bit_cast<float>(high << 13 | low));
  return all;
}

}  // namespace

TEST(sets_grow_from_the_portable_one_and_the_last_is_used) {
  CHECK_EQ(std::string(kernel_sets().front()->name), "portable");
  CHECK_EQ(std::string(kernel_sets().back()->name), reduce_instruction_set());
  CHECK_EQ(reduce_kernel(Dtype::kFloat16, Reduction::kSum, true, false, true),
           kernel_sets().back()->reduce(Dtype::kFloat16, Reduction::kSum, true, false, true));
  CHECK_EQ(finish_kernel(Dtype::kFloat16, Reduction::kAvg, true),
           kernel_sets().back()->finish(Dtype::kFloat16, Reduction::kAvg, true));
}

TEST(reduces_every_type_at_every_size_and_place) {
  std::mt19937 random(1);
  for_each_case([&](const Case& c) {
    const bool has_partials = partial_type(c.dtype, c.reduction) != c.dtype;
    for (unsigned flags = 0; flags < (has_partials ? 8 : 1); ++flags)
      for (std::size_t n : sizes()) check_reduce(c, flags, n, random);
  });
}

TEST(flags_do_not_matter_to_a_type_that_is_its_own_partial_type) {
  for_each_case([&](const Case& c) {
    if (partial_type(c.dtype, c.reduction) != c.dtype) return;
    for (unsigned flags = 0; flags < 8; ++flags)
      CHECK_EQ(c.set.reduce(c.dtype, c.reduction, flags & 4, flags & 2, flags & 1),
               c.set.reduce(c.dtype, c.reduction, false, false, false));
    CHECK_EQ(c.set.finish(c.dtype, c.reduction, true), c.set.finish(c.dtype, c.reduction, false));
  });
}

TEST(finishes_every_type_at_every_size_and_place) {
  std::mt19937 random(2);
  for_each_case([&](const Case& c) {
    for (bool partial : {false, true})
      for (std::size_t n : sizes()) check_finish(c, partial, n, random);
  });
}

TEST(divides_every_16_bit_integer_and_those_about_multiples) {
  std::vector<std::int16_t> all;
  for (int x = INT16_MIN; x <= INT16_MAX; ++x) all.push_back(static_cast<std::int16_t>(x));
  for (const KernelSet* set : kernel_sets()) {
    for (std::int64_t ranks : {1, 2, 3, 5, 7, 10, 127, 256, 300, 32767, 32768, 65536, 16777217}) {
      auto average16 = all;
      set->finish(Dtype::kInt16, Reduction::kAvg, false)(average16.data(), all.data(), all.size(), ranks);
      std::vector<std::uint32_t> multiples, average32;
      for (std::uint64_t q = 1; q * ranks < UINT32_MAX && q < 1000; ++q)
        for (int d : {-1, 0, 1})
          multiples.push_back(static_cast<std::uint32_t>(UINT32_MAX / ranks / q * ranks + d));
      average32.resize(multiples.size());
      set->finish(Dtype::kUint32, Reduction::kAvg, false)(average32.data(), multiples.data(),
                                                          multiples.size(), ranks);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < all.size(); ++i) wrong += average16[i] != all[i] / ranks;
      for (std::size_t i = 0; i < multiples.size(); ++i) wrong += average32[i] != multiples[i] / ranks;
      CHECK_EQ(wrong, 0);
    }
  }
}

TEST(widens_every_16_bit_float) {
  for (const KernelSet* set : kernel_sets()) {
    for (Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
      constexpr std::size_t kAll = 1 << 16;
      std::vector<std::uint16_t> all(kAll), ones(kAll, encode(format_of(dtype), 1));
      std::vector<float> wide(kAll);
      for (std::size_t i = 0; i < kAll; ++i) all[i] = static_cast<std::uint16_t>(i);
      set->reduce(dtype, Reduction::kProduct, true, false, false)(wide.data(), all.data(), ones.data(), kAll);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kAll; ++i) {
        const float expected = decode(format_of(dtype), all[i]);
        wrong += std::isnan(expected)
                     ? !std::isnan(wide[i])
                     : std::bit_cast<std::uint32_t>(wide[i]) != std::bit_cast<std::uint32_t>(expected);
      }
      CHECK_EQ(wrong, 0);
    }
  }
}

TEST(rounds_to_nearest_even_and_keeps_nan) {
  const std::vector<float> all = roundings();
  for (Dtype dtype : {Dtype::kFloat16, Dtype::kBfloat16}) {
    std::vector<std::uint16_t> expected, rounded(all.size());
    for (float x : all) expected.push_back(encode(format_of(dtype), x));
    for (const KernelSet* set : kernel_sets()) {
      set->finish(dtype, Reduction::kSum, true)(rounded.data(), all.data(), all.size(), 1);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < all.size(); ++i)
        wrong += std::isnan(all[i]) ? !std::isnan(decode(format_of(dtype), rounded[i]))
                                    : rounded[i] != expected[i];
      CHECK_EQ(wrong, 0);
    }
  }
}

TEST(a_sum_in_partials_is_rounded_once) {
  // 256 and seven ones: 263, half-way between two bfloat16. Rounded at each step it would stay 256.
  const std::uint16_t one = encode(format_of(Dtype::kBfloat16), 1),
                      first = encode(format_of(Dtype::kBfloat16), 256);
  for (const KernelSet* set : kernel_sets()) {
    float sum;
    std::uint16_t result;
    set->reduce(Dtype::kBfloat16, Reduction::kSum, true, false, false)(&sum, &first, &one, 1);
    for (int i = 1; i < 7; ++i)
      set->reduce(Dtype::kBfloat16, Reduction::kSum, true, true, false)(&sum, &sum, &one, 1);
    CHECK_EQ(sum, 263.0f);
    set->finish(Dtype::kBfloat16, Reduction::kSum, true)(&result, &sum, 1, 8);
    CHECK_EQ(decode(format_of(Dtype::kBfloat16), result), 264.0f);
  }
}
