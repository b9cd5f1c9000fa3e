// The prepared calls of one communicator that can be made without running any Python.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/communicator.h"

namespace pycomm {

inline constexpr int kHotDimensions = 8;  // arrays of more take the slow path

// What a call is found by.
struct HotKey {
  HotKey(int collective, int reduction, std::int32_t root, PyObject* algorithm)
      : code(static_cast<std::uint64_t>(collective) | static_cast<std::uint64_t>(reduction) << 4 |
             static_cast<std::uint64_t>(root) << 32),
        algorithm(algorithm) {}
  // The input; a barrier has none. False for what is not in any table.
  bool take(int type_number, int dimensions, const Py_ssize_t* shape) {
    if (type_number < 0 || type_number > 0xffff || dimensions > kHotDimensions) return false;
    code |= static_cast<std::uint64_t>(dimensions) << 8 | static_cast<std::uint64_t>(type_number) << 16;
    this->shape = shape;
    return true;
  }
  int dimensions() const { return static_cast<int>(code >> 8 & 0xff); }
  std::uint64_t hash() const;

  std::uint64_t code;  // collective and reduction (4 bits each), dimensions (8), dtype (16), root (32)
  const Py_ssize_t* shape = nullptr;
  PyObject* algorithm;  // an exact str, or nullptr for none; borrowed
};

struct HotCall {
  using Shape = std::array<Py_ssize_t, kHotDimensions>;

  // Whether the result may be written there: apart from the input, or where the two are one memory in place.
  bool allows(const std::byte* input, const std::byte* output) const {
    const bool apart = output + output_bytes <= input || input + input_bytes <= output;
    return apart || output - input == in_place;
  }

  std::uint64_t code = 0, hash = 0;  // of its key
  Shape shape = {};                  // of the input
  pybind11::object algorithm;
  std::shared_ptr<Prepared> prepared;
  bool gives = false;                     // this rank gets a result
  std::ptrdiff_t in_place = PTRDIFF_MIN;  // bytes from input to output where they may overlap, if they may
  int result_dimensions = 0;
  Shape result_shape = {};
  Py_ssize_t result_elements = 0;
  std::uint64_t input_bytes = 0, output_bytes = 0;
};

// A table with linear probing. It and everything in it is for who holds Python's interpreter lock.
class HotCalls {
 public:
  HotCalls(pybind11::object communicator, double timeout_s);

  // The core's communicator; nullptr when closed.
  PyCommunicator* communicator() const { return communicator_; }
  const pybind11::object& owner() const { return owner_; }  // the Python object that it is in
  std::chrono::nanoseconds timeout() const { return timeout_; }

  const HotCall* find(const HotKey& key) const;
  // `key` is what the caller passed: (NumPy's number of the dtype, shape, op, root, algorithm).
  // `result_shape` is None where this rank gets nothing. `in_place` is how far into the larger buffer the
  // smaller one may lie, if they may overlap. Does nothing for what cannot be a hot call. Throws
  // std::invalid_argument where the shapes are not what was prepared.
  void remember(const std::string& collective, const pybind11::tuple& key, std::shared_ptr<Prepared> prepared,
                const pybind11::object& result_shape, std::optional<std::ptrdiff_t> in_place);
  void forget();
  void close();

 private:
  void insert(std::unique_ptr<HotCall> call);
  void grow();

  pybind11::object owner_;
  PyCommunicator* communicator_;
  std::chrono::nanoseconds timeout_;
  std::vector<std::unique_ptr<HotCall>> slots_;  // a power of two, at most half of them in use
  std::size_t used_ = 0;
};

}  // namespace pycomm
