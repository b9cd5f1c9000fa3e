// The kernels, for any instruction set: a loop for reductions, one for finishing, and the choice of their
// types. See element.h for what must not be written here.
//
// An instruction set is a type with load() and store() between a vector of kLanes floats (or one float) and
// Float16, Bfloat16 and Float32 in memory. Only the 16-bit floats go through it: compilers vectorise the
// others.
#pragma once

#include <type_traits>

#include "reduce/element.h"
#include "reduce/kernel_set.h"

// Iterations may run at once: dst is an operand, or is apart from it. Clang warns where it cannot do it.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpass-failed"
#define PYCOMM_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define PYCOMM_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace pycomm {
namespace {

// The "instruction set" of the other types: an element at a time.
template <class T>
struct Scalar {
  static constexpr std::size_t kLanes = 1;

  static T load(const Element<T>* p) { return p->get(); }
  static void store(Element<T>* p, T x) { p->set(x); }
};

// ---- what is done with values; T is a number or a vector of floats ---------------------------------------

// Unsigned, so that it wraps; not narrower than int, which narrower ones would be promoted to.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

struct Sum {
  static constexpr bool kRounds = true;
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(Wrapping<T>(a) + Wrapping<T>(b));
    else
      return a + b;
  }
};

struct Product {
  static constexpr bool kRounds = true;
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(Wrapping<T>(a) * Wrapping<T>(b));
    else
      return a * b;
  }
};

// Min and max give the same bits whichever operand comes first, for ranks add up in unlike orders: of two
// zeros min takes the negative one and max the positive one, as sums of them do; a sum is also what makes a
// NaN of a NaN.
struct Min {
  static constexpr bool kRounds = false;
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return a < b ? a : b;
    } else {
      const T tie = -(-a + -b);
      return a < b ? a : (b < a ? b : (a == b ? (a != T{} ? a : tie) : tie));
    }
  }
};

struct Max {
  static constexpr bool kRounds = false;
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return a > b ? a : b;
    } else {
      const T tie = a + b;
      return a > b ? a : (b > a ? b : (a == b ? (a != T{} ? a : tie) : tie));
    }
  }
};

struct Keep {
  template <class T>
  static T apply(T x, std::int64_t) {
    return x;
  }
};

struct Divide {
  // Vectors can divide floats only. That is exact for integers up to 32 bits: a quotient that is no integer
  // is further from one than a float rounds that has more bits than they.
  template <class T>
  using Divisor = std::conditional_t<std::is_same_v<T, double> || (std::is_integral_v<T> && sizeof(T) > 2),
                                     double, float>;

  template <class T>
  static T apply(T x, std::int64_t ranks) {
    if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
      return x / static_cast<T>(ranks);
    else
      return static_cast<T>(x / static_cast<Divisor<T>>(ranks));
  }
};

// ---- the loops -------------------------------------------------------------------------------------------

// The last elements, too few for a vector, with zeros after them.
template <class E, std::size_t kLanes>
struct Padded {
  E elements[kLanes] = {};

  Padded(const E* from, std::size_t count) { __builtin_memcpy(elements, from, count * sizeof(E)); }
};

// one(dst, src...) for each vector of kLanes elements. It reads them all before it writes, so dst may lie on
// a src.
template <std::size_t kLanes, class One, class D, class... S>
void stream(One one, std::size_t elements, D* dst, const S*... src) {
  std::size_t i = 0;
  PYCOMM_INDEPENDENT
  for (; i + kLanes <= elements; i += kLanes) one(dst + i, (src + i)...);
  if constexpr (kLanes > 1) {
    if (i == elements) return;
    D last[kLanes];
    one(last, Padded<S, kLanes>(src + i, elements - i).elements...);
    __builtin_memcpy(dst + i, last, (elements - i) * sizeof(D));
  }
}

template <class Set, class Operation, class D, class A, class B>
void reduce(void* dst, const void* a, const void* b, std::size_t elements) {
  const auto one = [](D* d, const A* x, const B* y) {
    Set::store(d, Operation::apply(Set::load(x), Set::load(y)));
  };
  stream<Set::kLanes>(one, elements, static_cast<D*>(dst), static_cast<const A*>(a),
                      static_cast<const B*>(b));
}

template <class Set, class Operation, class D, class S>
void finish(void* dst, const void* src, std::size_t elements, std::int64_t ranks) {
  const auto one = [ranks](D* d, const S* x) { Set::store(d, Operation::apply(Set::load(x), ranks)); };
  stream<Set::kLanes>(one, elements, static_cast<D*>(dst), static_cast<const S*>(src));
}

// Finishes what is complete already.
template <class E>
void copy(void* dst, const void* src, std::size_t elements, std::int64_t) {
  if (dst != src && elements > 0) __builtin_memcpy(dst, src, elements * sizeof(E));
}

// ---- the choice ------------------------------------------------------------------------------------------

// f(instruction set, element in memory) for `dtype`.
template <class Set, class F>
auto for_dtype(Dtype dtype, F f) {
  switch (dtype) {
    case Dtype::kInt8:
      return f(Scalar<std::int8_t>(), Element<std::int8_t>());
    case Dtype::kInt16:
      return f(Scalar<std::int16_t>(), Element<std::int16_t>());
    case Dtype::kInt32:
      return f(Scalar<std::int32_t>(), Element<std::int32_t>());
    case Dtype::kInt64:
      return f(Scalar<std::int64_t>(), Element<std::int64_t>());
    case Dtype::kUint8:
      return f(Scalar<std::uint8_t>(), Element<std::uint8_t>());
    case Dtype::kUint16:
      return f(Scalar<std::uint16_t>(), Element<std::uint16_t>());
    case Dtype::kUint32:
      return f(Scalar<std::uint32_t>(), Element<std::uint32_t>());
    case Dtype::kUint64:
      return f(Scalar<std::uint64_t>(), Element<std::uint64_t>());
    case Dtype::kFloat16:
      return f(Set(), Float16());
    case Dtype::kBfloat16:
      return f(Set(), Bfloat16());
    case Dtype::kFloat32:
      return f(Scalar<float>(), Element<float>());
    case Dtype::kFloat64:
      return f(Scalar<double>(), Element<double>());
  }
  __builtin_unreachable();
}

template <class E>
constexpr bool kShortFloat = std::is_same_v<E, Float16> || std::is_same_v<E, Bfloat16>;

template <class Set, class Operation>
ReduceKernel choose_reduce(Dtype dtype, unsigned partials) {
  return for_dtype<Set>(dtype, [partials]<class S, class E>(S, E) -> ReduceKernel {
    if constexpr (kShortFloat<E> && Operation::kRounds) {
      constexpr ReduceKernel kernels[] = {
          reduce<S, Operation, E, E, E>,
          reduce<S, Operation, E, E, Float32>,
          reduce<S, Operation, E, Float32, E>,
          reduce<S, Operation, E, Float32, Float32>,
          reduce<S, Operation, Float32, E, E>,
          reduce<S, Operation, Float32, E, Float32>,
          reduce<S, Operation, Float32, Float32, E>,
          reduce<S, Operation, Float32, Float32, Float32>,
      };
      return kernels[partials];
    } else {
      return reduce<S, Operation, E, E, E>;
    }
  });
}

template <class Set>
ReduceKernel choose_reduce(Dtype dtype, Reduction reduction, bool dst_partial, bool a_partial,
                           bool b_partial) {
  const unsigned partials = 4u * dst_partial + 2u * a_partial + b_partial;
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAvg:
      return choose_reduce<Set, Sum>(dtype, partials);
    case Reduction::kProduct:
      return choose_reduce<Set, Product>(dtype, partials);
    case Reduction::kMin:
      return choose_reduce<Set, Min>(dtype, partials);
    case Reduction::kMax:
      return choose_reduce<Set, Max>(dtype, partials);
  }
  __builtin_unreachable();
}

template <class Set>
FinishKernel choose_finish(Dtype dtype, Reduction reduction, bool src_partial) {
  const bool divide = reduction == Reduction::kAvg;
  const bool rounds = src_partial && reduction != Reduction::kMin && reduction != Reduction::kMax;
  return for_dtype<Set>(dtype, [=]<class S, class E>(S, E) -> FinishKernel {
    if constexpr (kShortFloat<E>) {
      if (rounds) return divide ? finish<S, Divide, E, Float32> : finish<S, Keep, E, Float32>;
    }
    return divide ? finish<S, Divide, E, E> : copy<E>;
  });
}

}  // namespace
}  // namespace pycomm
