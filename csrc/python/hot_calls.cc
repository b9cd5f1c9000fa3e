#include "python/hot_calls.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "python/arguments.h"
#include "python/array.h"

namespace py = pybind11;

namespace pycomm {
namespace {

constexpr std::size_t kFirstSlots = 64;

bool same_algorithm(PyObject* a, PyObject* b) {
  if (a == b) return true;
  return a != nullptr && b != nullptr && PyUnicode_Compare(a, b) == 0;
}

HotCall::Shape shape_of(const py::tuple& sizes) {
  HotCall::Shape shape = {};
  for (std::size_t i = 0; i < sizes.size(); ++i) shape[i] = sizes[i].cast<Py_ssize_t>();
  return shape;
}

Py_ssize_t elements(const HotCall::Shape& shape, std::size_t dimensions) {
  Py_ssize_t count = 1;
  for (std::size_t i = 0; i < dimensions; ++i) count *= shape[i];
  return count;
}

std::uint64_t bytes(const HotCall& call, Py_ssize_t elements) {
  return static_cast<std::uint64_t>(elements) * size_of(call.prepared->bound().binding().dtype);
}

void set_result(HotCall& call, const py::tuple& shape, std::optional<std::ptrdiff_t> in_place) {
  call.gives = true;
  call.result_dimensions = static_cast<int>(shape.size());
  call.result_shape = shape_of(shape);
  call.result_elements = elements(call.result_shape, shape.size());
  call.output_bytes = bytes(call, call.result_elements);
  if (in_place) call.in_place = call.input_bytes <= call.output_bytes ? -*in_place : *in_place;
}

void check(const HotCall& call) {
  const Bound& bound = call.prepared->bound();
  const bool fits = call.gives ? call.output_bytes == bound.output_bytes() : !bound.uses(Area::kOut);
  if (!fits || call.input_bytes != bound.input_bytes())
    throw std::invalid_argument("what was prepared takes " + std::to_string(bound.input_bytes()) +
                                " bytes and gives " + std::to_string(bound.output_bytes()) +
                                ": the shapes are others");
}

}  // namespace

// Multiplicative hashing (Knuth, The Art of Computer Programming, volume 3, 6.4): the high bits are good.
std::uint64_t HotKey::hash() const {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;
  std::uint64_t hash = code * kGolden;
  for (int i = 0; i < dimensions(); ++i) hash = (hash ^ static_cast<std::uint64_t>(shape[i])) * kGolden;
  return hash ^ hash >> 32;
}

HotCalls::HotCalls(py::object communicator, double timeout_s)
    : owner_(std::move(communicator)),
      communicator_(owner_.cast<PyCommunicator*>()),
      timeout_(nanoseconds(timeout_s)),
      slots_(kFirstSlots) {
  Array::load();
}

const HotCall* HotCalls::find(const HotKey& key) const {
  const std::uint64_t hash = key.hash();
  for (std::size_t i = hash & (slots_.size() - 1); slots_[i]; i = (i + 1) & (slots_.size() - 1)) {
    const HotCall& call = *slots_[i];
    if (call.hash == hash && call.code == key.code &&
        std::equal(key.shape, key.shape + key.dimensions(), call.shape.begin()) &&
        same_algorithm(key.algorithm, call.algorithm.ptr()))
      return &call;
  }
  return nullptr;
}

void HotCalls::remember(const std::string& collective, const py::tuple& key,
                        std::shared_ptr<Prepared> prepared, const py::object& result_shape,
                        std::optional<std::ptrdiff_t> in_place) {
  const py::tuple shape = key[1];
  const py::object op = key[2], root = key[3], algorithm = key[4];
  const int reduction = reduction_given(op.ptr());
  const bool plain =
      PyLong_CheckExact(root.ptr()) && (algorithm.is_none() || PyUnicode_CheckExact(algorithm.ptr()));
  const bool gives = !result_shape.is_none();
  const std::size_t most = std::max(shape.size(), gives ? py::len(result_shape) : 0);
  if (reduction < 0 || !plain || most > kHotDimensions) return;

  auto call = std::make_unique<HotCall>();
  call->shape = shape_of(shape);
  const bool moves = collective != "barrier";
  if (moves && !algorithm.is_none()) call->algorithm = algorithm;
  HotKey wanted(collective_number(collective), reduction, root.cast<std::int32_t>(), call->algorithm.ptr());
  if (moves && !wanted.take(key[0].cast<int>(), static_cast<int>(shape.size()), call->shape.data())) return;
  if (find(wanted) != nullptr) return;
  call->code = wanted.code;
  call->hash = wanted.hash();
  call->prepared = std::move(prepared);
  call->input_bytes = bytes(*call, elements(call->shape, shape.size()));
  if (gives) set_result(*call, result_shape, in_place);
  check(*call);
  if (2 * ++used_ > slots_.size()) grow();
  insert(std::move(call));
}

void HotCalls::insert(std::unique_ptr<HotCall> call) {
  std::size_t i = call->hash & (slots_.size() - 1);
  while (slots_[i]) i = (i + 1) & (slots_.size() - 1);
  slots_[i] = std::move(call);
}

void HotCalls::grow() {
  std::vector<std::unique_ptr<HotCall>> before(2 * slots_.size());
  before.swap(slots_);
  for (auto& call : before)
    if (call) insert(std::move(call));
}

void HotCalls::forget() {
  for (auto& call : slots_) call.reset();
  used_ = 0;
}

void HotCalls::close() {
  communicator_ = nullptr;
  forget();
  owner_ = py::none();
}

}  // namespace pycomm
