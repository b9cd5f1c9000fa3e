#include "python/hot_method.h"

#include <structmember.h>  // after Python.h

#include <cmath>
#include <optional>

#include "python/arguments.h"
#include "python/array.h"
#include "python/bindings.h"
#include "python/hot_calls.h"

namespace py = pybind11;

namespace pycomm {
namespace {

// Stands in a class for a method written in Python. A call like an earlier one is made here; any other is
// handed on to the function, which does everything, checks and says what is wrong, and remembers the call.
struct HotMethod {
  PyObject object;
  vectorcallfunc vectorcall;
  PyObject* function;
  const Signature* signature;
};

PyTypeObject* hot_method_type = nullptr;

// A call whose arguments are all plain.
struct Plain {
  const HotCall* call = nullptr;
  PyObject* input = nullptr;  // an array; nullptr for a barrier
  PyObject* output = nullptr;
  std::chrono::nanoseconds timeout{0};
};

std::optional<std::chrono::nanoseconds> timeout_given(PyObject* timeout_s) {
  if (!PyFloat_CheckExact(timeout_s)) return std::nullopt;
  const double seconds = PyFloat_AS_DOUBLE(timeout_s);
  if (!(seconds > 0) || std::isinf(seconds)) return std::nullopt;
  return nanoseconds(seconds);
}

std::optional<std::int32_t> root_given(PyObject* root) {
  if (root == nullptr) return 0;
  if (!PyLong_CheckExact(root)) return std::nullopt;
  int overflow = 0;
  const long number = PyLong_AsLongAndOverflow(root, &overflow);
  if (overflow != 0 || number < 0 || number > INT32_MAX) return std::nullopt;
  return static_cast<std::int32_t>(number);
}

// Whether the caller's `out` can take the result as it is; its elements may lie in one row.
bool serves(const HotCall& call, const Array& input, const Array& output) {
  const bool row = output.dimensions() == 1 && output.shape()[0] == call.result_elements;
  const bool same =
      output.dimensions() == call.result_dimensions &&
      std::equal(output.shape(), output.shape() + output.dimensions(), call.result_shape.begin());
  return (row || same) && output.plain() && output.writable() &&
         output.type_number() == input.type_number() && call.allows(input.data(), output.data());
}

bool find_call(Plain& plain, const HotCalls& calls, const Signature& signature, const Arguments& given) {
  if (!given.none(kDtype) || (given[kAsyncOp] != nullptr && given[kAsyncOp] != Py_False)) return false;
  const int reduction = reduction_given(given[kOp]);
  const auto root = root_given(given[kRoot]);
  PyObject* const algorithm = given.none(kAlgorithm) ? nullptr : given[kAlgorithm];
  if (reduction < 0 || !root || (algorithm != nullptr && !PyUnicode_CheckExact(algorithm))) return false;
  HotKey key(signature.collective, reduction, *root, algorithm);
  plain.input = given[kX];
  if (signature.positionals > 0) {
    if (plain.input == nullptr || !Array::is(plain.input)) return false;
    const Array input(plain.input);
    if (!input.plain() || !key.take(input.type_number(), input.dimensions(), input.shape())) return false;
  }
  plain.timeout = calls.timeout();
  if (!given.none(kTimeout)) {
    const auto timeout = timeout_given(given[kTimeout]);
    if (!timeout) return false;
    plain.timeout = *timeout;
  }
  plain.call = calls.find(key);
  return plain.call != nullptr;
}

// The array that the result goes to, given or new: a new reference; or nullptr, with Python's exception set
// or without one where the call is not plain.
PyObject* result_of(const Plain& plain, const Arguments& given) {
  const HotCall& call = *plain.call;
  if (!call.gives) return Py_NewRef(Py_None);
  const Array input(plain.input);
  if (given.none(kOut)) return Array::make(input, call.result_dimensions, call.result_shape.data());
  PyObject* const out = given[kOut];
  return Array::is(out) && serves(call, input, Array(out)) ? Py_NewRef(out) : nullptr;
}

// By the thread that has entered. False with Python's exception set. While it waits others may close the
// communicator: `owner` then keeps it for the caller.
bool run(const HotCalls& calls, const Plain& plain, PyObject* result, py::object& owner) {
  const HotCall& call = *plain.call;
  const std::byte* const input = plain.input == nullptr ? nullptr : Array(plain.input).data();
  std::byte* const output = call.gives ? Array(result).data() : nullptr;
  try {
    Communicator& core = calls.communicator()->core();
    if (core.begin({call.prepared.get(), input, output, plain.timeout})) return true;
    owner = calls.owner();
    const auto prepared = call.prepared;  // which they may make the table forget
    const py::gil_scoped_release release;
    core.finish(signalled);
    return true;
  } catch (...) {
    set_python_error();
    return false;
  }
}

// The arguments' own references keep communicator and arrays alive.
PyObject* call_hot_method(PyObject* self, PyObject* const* values, std::size_t flagged, PyObject* names) {
  const auto& method = *reinterpret_cast<HotMethod*>(self);
  const auto slowly = [&] { return PyObject_Vectorcall(method.function, values, flagged, names); };
  const Py_ssize_t count = PyVectorcall_NARGS(flagged);
  HotCalls* const calls = count > 0 ? hot_calls_of(values[0]) : nullptr;
  PyCommunicator* const communicator = calls != nullptr ? calls->communicator() : nullptr;
  if (communicator == nullptr || !communicator->core().usable()) return slowly();
  Arguments given;
  Plain plain;
  if (!given.read(*method.signature, values + 1, count - 1, names) ||
      !find_call(plain, *calls, *method.signature, given))
    return slowly();
  PyObject* result = result_of(plain, given);
  if (result == nullptr) return PyErr_Occurred() != nullptr ? nullptr : slowly();
  if (!communicator->enter()) {
    Py_DECREF(result);
    return slowly();
  }
  py::object owner;
  const bool done = run(*calls, plain, result, owner);
  communicator->leave();
  if (!done) Py_CLEAR(result);
  return result;
}

PyObject* bind_to(PyObject* self, PyObject* instance, PyObject*) {
  return instance == nullptr ? Py_NewRef(self) : PyMethod_New(self, instance);
}

// What it does not have itself is the function's: its name, signature, and so on.
PyObject* attribute(PyObject* self, PyObject* name) {
  PyObject* const own = PyObject_GenericGetAttr(self, name);
  if (own != nullptr || PyErr_ExceptionMatches(PyExc_AttributeError) == 0) return own;
  PyErr_Clear();
  return PyObject_GetAttr(reinterpret_cast<HotMethod*>(self)->function, name);
}

PyObject* of_function(PyObject* self, void* name) {
  return PyObject_GetAttrString(reinterpret_cast<HotMethod*>(self)->function, static_cast<const char*>(name));
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<HotMethod*>(self)->function);
  return 0;
}

void deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_XDECREF(reinterpret_cast<HotMethod*>(self)->function);
  type->tp_free(self);
  Py_DECREF(type);
}

py::object hot(const py::object& function) {
  const Signature* const signature = signature_of(function.ptr());
  auto* const method = PyObject_GC_New(HotMethod, hot_method_type);
  if (method == nullptr) throw py::error_already_set();
  method->vectorcall = call_hot_method;
  method->function = Py_NewRef(function.ptr());
  method->signature = signature;
  PyObject_GC_Track(method);
  return py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(method));
}

// These two would otherwise be found in the type.
char doc[] = "__doc__", module[] = "__module__";
PyGetSetDef properties[] = {
    {doc, of_function, nullptr, nullptr, doc},
    {module, of_function, nullptr, nullptr, module},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(HotMethod, vectorcall), READONLY, nullptr},
    {"__wrapped__", T_OBJECT, offsetof(HotMethod, function), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_descr_get, reinterpret_cast<void*>(bind_to)},
    {Py_tp_getattro, reinterpret_cast<void*>(attribute)},
    {Py_tp_getset, properties},
    {Py_tp_members, members},
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {0, nullptr},
};

PyType_Spec spec = {"pycomm._C.HotMethod", sizeof(HotMethod), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                        Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                    slots};

}  // namespace

void bind_hot_methods(py::module_& m) {
  PyObject* const type = PyType_FromSpec(&spec);  // for the life of the process
  if (type == nullptr) throw py::error_already_set();
  hot_method_type = reinterpret_cast<PyTypeObject*>(type);
  load_names();
  bind_caller(m);
  py::class_<HotCalls>(m, "HotCalls", "The prepared calls of a communicator that are made without Python.")
      .def(py::init<py::object, double>(), py::arg("communicator"), py::arg("timeout_s"))
      .def("remember", &HotCalls::remember, py::arg("collective"), py::arg("key"), py::arg("prepared"),
           py::arg("result_shape"), py::arg("in_place"))
      .def("forget", &HotCalls::forget)
      .def("close", &HotCalls::close);
  m.def("hot", &hot, py::arg("function"),
        "The method, done in C++ where an earlier call like it has prepared that; for classes under Caller.");
}

}  // namespace pycomm
