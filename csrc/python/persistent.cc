// Persistent operations: a call with its buffers, made ready once and done as often as wanted.
#include "python/persistent.h"

#include <structmember.h>  // after Python.h

#include <new>

#include "python/bindings.h"

namespace py = pybind11;

namespace pycomm {
namespace {

constexpr char kDoc[] =
    "A persistent operation: one collective on the same buffers, made ready once and done as often as\n"
    "wanted. Made by `Communicator.all_reduce_init` and its like. All members start theirs in the same "
    "order,\n"
    "as with calls.\n\n"
    "`op()` does it, with the least to do per call of all ways; `op.start()` begins it, and `op.wait()` "
    "ends\n"
    "it. Both return the result, which is the same array each time. The input may be written whenever the\n"
    "operation is not under way.";

constexpr char kStartDoc[] =
    "start($self, /)\n--\n\n"
    "Begins it and returns; the buffers are in use until `wait` returns.\n\n"
    "Raises:\n"
    "    InvalidArgument: it is under way already, the communicator is closed, or another thread is inside "
    "a\n"
    "        call on it.\n"
    "    Mismatch, PeerLost, TimedOut: as collectives do; also from `wait`.";

constexpr char kWaitDoc[] =
    "wait($self, /, timeout_s=None)\n--\n\n"
    "Waits for the end and returns the result.\n\n"
    "Args:\n"
    "    timeout_s: How long to wait; by default as long as the operation may take. A wait that ends early\n"
    "        has not ended the operation: wait again.\n\n"
    "Raises:\n"
    "    InvalidArgument: it is not under way.\n"
    "    TimedOut: not done yet, or the operation's own deadline has passed.\n"
    "    Mismatch, PeerLost: it has failed.";

constexpr char kDoneDoc[] = "done($self, /)\n--\n\nWhether `wait` would return at once.";

struct Persistent {
  PyObject object;
  vectorcallfunc vectorcall;
  PersistentParts parts;
  bool under_way;
};

PyTypeObject* persistent_type = nullptr;

Persistent& of(PyObject* self) { return *reinterpret_cast<Persistent*>(self); }

[[noreturn]] void refuse(const Persistent& op, const std::string& why) {
  throw CallError(ErrorKind::kInvalid, -1, op.parts.what + ": " + why);
}

// The communicator, entered. Throws Python's exception that says why it cannot be, or CallError.
PyCommunicator& enter(const Persistent& op) {
  PyCommunicator* const communicator = op.parts.calls->communicator();
  const bool entered = communicator != nullptr && communicator->core().usable() && communicator->enter();
  if (!entered) op.parts.refuse(op.parts.what);
  if (!entered) refuse(op, "the communicator cannot be used");
  if (!op.under_way) return *communicator;
  communicator->leave();
  refuse(op, "it is under way already: call wait() before it is started again");
}

// Leaves with the end of the scope.
struct Visit {
  explicit Visit(PyCommunicator& communicator) : communicator(communicator) {}
  ~Visit() { communicator.leave(); }
  Visit(const Visit&) = delete;
  PyCommunicator& communicator;
};

PyObject* call_persistent(PyObject* self, PyObject* const*, std::size_t flagged, PyObject* names) {
  Persistent& op = of(self);
  if (PyVectorcall_NARGS(flagged) != 0 || (names != nullptr && PyTuple_GET_SIZE(names) != 0)) {
    PyErr_SetString(PyExc_TypeError, "a persistent operation is called without arguments");
    return nullptr;
  }
  try {
    py::object owner;  // kept while others may close the communicator
    const Visit visit(enter(op));
    Communicator& core = visit.communicator.core();
    if (!core.begin(op.parts.held->order(op.parts.timeout))) {
      owner = op.parts.calls->owner();
      const py::gil_scoped_release release;
      core.finish(signalled);
    }
    return Py_NewRef(op.parts.result.ptr());
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* start(PyObject* self, PyObject*) {
  Persistent& op = of(self);
  try {
    const py::object owner = op.parts.calls->owner();
    const Visit visit(enter(op));
    visit.communicator.start(op.parts.held, op.parts.timeout);
    op.under_way = true;
    Py_RETURN_NONE;
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

std::optional<double> timeout_given(PyObject* values, PyObject* names) {
  PyObject* timeout_s = Py_None;
  const char* known[] = {"timeout_s", nullptr};
  if (PyArg_ParseTupleAndKeywords(values, names, "|O:wait", const_cast<char**>(known), &timeout_s) == 0)
    throw py::error_already_set();
  if (timeout_s == Py_None) return std::nullopt;
  const double seconds = PyFloat_AsDouble(timeout_s);
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  return seconds;
}

// Whether the operation is done; throws what it failed with.
bool is_done(const Persistent& op, std::optional<double> timeout_s) {
  const Operation& operation = *op.parts.held->operation;
  PyCommunicator* const communicator = op.parts.calls->communicator();
  if (!operation.done() && communicator != nullptr) {
    const py::object owner = op.parts.calls->owner();
    return communicator->wait(*op.parts.held, timeout_s);
  }
  operation.check();
  return true;
}

PyObject* wait(PyObject* self, PyObject* values, PyObject* names) {
  Persistent& op = of(self);
  try {
    const auto timeout_s = timeout_given(values, names);
    if (!op.under_way) refuse(op, "it is not under way: call start() before wait()");
    bool done = true;  // also when it has failed
    try {
      done = is_done(op, timeout_s);
    } catch (...) {
      op.under_way = false;
      throw;
    }
    if (!done)
      throw CallError(ErrorKind::kTimedOut, -1,
                      op.parts.what + ": not done after a wait of " +
                          py::str("{:g}").format(*timeout_s).cast<std::string>() +
                          " s; it goes on, wait again");
    op.under_way = false;
    return Py_NewRef(op.parts.result.ptr());
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* done(PyObject* self, PyObject*) {
  const Persistent& op = of(self);
  return PyBool_FromLong(op.under_way && op.parts.held->operation->done());
}

// Memory in use stays with the communicator.
void deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  of(self).parts.~PersistentParts();
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"start", start, METH_NOARGS, kStartDoc},
    {"wait", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(wait)), METH_VARARGS | METH_KEYWORDS,
     kWaitDoc},
    {"done", done, METH_NOARGS, kDoneDoc},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Persistent, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>(kDoc)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {0, nullptr},
};

PyType_Spec spec = {"pycomm._C.Persistent", sizeof(Persistent), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                    slots};

}  // namespace

py::object make_persistent(PersistentParts parts) {
  PyObject* const self = persistent_type->tp_alloc(persistent_type, 0);
  if (self == nullptr) throw py::error_already_set();
  of(self).vectorcall = call_persistent;
  new (&of(self).parts) PersistentParts(std::move(parts));
  return py::reinterpret_steal<py::object>(self);
}

void bind_persistent(py::module_& m) {
  PyObject* const type = PyType_FromSpec(&spec);  // for the life of the process
  if (type == nullptr) throw py::error_already_set();
  persistent_type = reinterpret_cast<PyTypeObject*>(type);
  m.attr("Persistent") = py::reinterpret_borrow<py::object>(type);
  m.def(
      "persistent",
      [](py::object calls, const std::shared_ptr<Prepared>& prepared, const py::tuple& buffers,
         double timeout_s, std::string what, py::object refuse) {
        auto* const found = calls.cast<HotCalls*>();
        if (found->communicator() == nullptr) throw std::invalid_argument("the communicator is closed");
        auto held = found->communicator()->hold(prepared, buffers[0], buffers[1]);
        return make_persistent({std::move(calls), found, std::move(held), buffers[2], nanoseconds(timeout_s),
                                std::move(what), std::move(refuse)});
      },
      py::arg("calls"), py::arg("prepared"), py::arg("buffers"), py::arg("timeout_s"), py::arg("what"),
      py::arg("refuse"),
      "`buffers` are input and output, as in Communicator.run, and the result; `refuse(what)` raises the "
      "error "
      "that says why a call cannot be made now.");
}

}  // namespace pycomm
