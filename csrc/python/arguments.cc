#include "python/arguments.h"

#include "program/collective.h"
#include "reduce/dtype.h"

namespace py = pybind11;

namespace pycomm {
namespace {

constexpr int kBarrier = 15;

constexpr int number(Collective collective) { return static_cast<int>(collective); }
constexpr std::uint32_t bit(Parameter parameter) { return 1u << parameter; }
constexpr std::uint32_t kAlways = bit(kAsyncOp) | bit(kTimeout);
constexpr std::uint32_t kMoving = kAlways | bit(kX) | bit(kOut) | bit(kDtype) | bit(kAlgorithm);

constexpr Signature kSignatures[] = {
    {"all_reduce", number(Collective::kAllReduce), {kX, kOp}, 2, kMoving | bit(kOp)},
    {"reduce_scatter", number(Collective::kReduceScatter), {kX, kOp}, 2, kMoving | bit(kOp)},
    {"all_gather", number(Collective::kAllGather), {kX}, 1, kMoving},
    {"all_to_all", number(Collective::kAllToAll), {kX}, 1, kMoving},
    {"broadcast", number(Collective::kBroadcast), {kX, kRoot}, 2, kMoving | bit(kRoot)},
    {"reduce", number(Collective::kReduce), {kX, kRoot, kOp}, 3, kMoving | bit(kRoot) | bit(kOp)},
    {"barrier", kBarrier, {}, 0, kAlways},
};

template <std::size_t n>
std::array<PyObject*, n> interned(const char* const (&texts)[n]) {
  std::array<PyObject*, n> names;
  for (std::size_t i = 0; i < n; ++i) names[i] = PyUnicode_InternFromString(texts[i]);
  return names;
}

// In the order of Reduction, and of Parameter.
std::array<PyObject*, 5> reduction_names;
std::array<PyObject*, kParameters> parameter_names;

}  // namespace

void load_names() {
  static_assert(static_cast<int>(Reduction::kSum) == 0 && static_cast<int>(Reduction::kAvg) == 4);
  reduction_names = interned({name(Reduction::kSum), name(Reduction::kProduct), name(Reduction::kMin),
                              name(Reduction::kMax), name(Reduction::kAvg)});
  parameter_names = interned({"x", "op", "root", "out", "dtype", "algorithm", "async_op", "timeout_s"});
}

int reduction_given(PyObject* op) {
  if (op == nullptr) return 0;
  for (std::size_t i = 0; i < reduction_names.size(); ++i)
    if (op == reduction_names[i]) return static_cast<int>(i);
  if (!PyUnicode_CheckExact(op)) return -1;
  for (std::size_t i = 0; i < reduction_names.size(); ++i)
    if (PyUnicode_Compare(op, reduction_names[i]) == 0) return static_cast<int>(i);
  return -1;
}

int collective_number(const std::string& name) {
  return name == "barrier" ? kBarrier : number(collective_named(name));
}

const Signature* signature_of(PyObject* function) {
  const auto name = py::reinterpret_borrow<py::object>(function).attr("__name__").cast<std::string>();
  for (const Signature& signature : kSignatures)
    if (name == signature.name) return &signature;
  throw py::value_error(name + " is no collective");
}

bool Arguments::read(const Signature& signature, PyObject* const* values, Py_ssize_t positionals,
                     PyObject* names) {
  if (positionals > signature.positionals) return false;
  for (Py_ssize_t i = 0; i < positionals; ++i)
    given[signature.positional[static_cast<std::size_t>(i)]] = values[i];
  // Names in a program's text are interned, so they are these very objects.
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* const name = PyTuple_GET_ITEM(names, i);
    std::size_t parameter = 0;
    while (parameter < kParameters && parameter_names[parameter] != name) ++parameter;
    if ((signature.allowed >> parameter & 1) == 0 || given[parameter] != nullptr) return false;
    given[parameter] = values[positionals + i];
  }
  return true;
}

}  // namespace pycomm
