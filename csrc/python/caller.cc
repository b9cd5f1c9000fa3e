// The base of pycomm.Communicator: a place in the object for what its hot methods need.

#include "python/bindings.h"
#include "python/hot_calls.h"
#include "python/hot_method.h"

namespace py = pybind11;

namespace pycomm {
namespace {

struct Caller {
  PyObject object;
  PyObject* owner;  // the Python object that `calls` is in
  HotCalls* calls;
};

PyTypeObject* caller_type = nullptr;

PyObject* use(PyObject* self, PyObject* calls) {
  auto* const caller = reinterpret_cast<Caller*>(self);
  try {
    caller->calls = py::handle(calls).cast<HotCalls*>();
  } catch (const py::cast_error&) {
    PyErr_SetString(PyExc_TypeError, "use() takes HotCalls");
    return nullptr;
  }
  Py_INCREF(calls);
  Py_XSETREF(caller->owner, calls);
  Py_RETURN_NONE;
}

void deallocate(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  Py_XDECREF(reinterpret_cast<Caller*>(self)->owner);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMethodDef methods[] = {
    {"use", use, METH_O, "use($self, calls, /)\n--\n\nLooks calls up there from now on."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot slots[] = {
    {Py_tp_doc, const_cast<char*>("Base of a communicator, whose hot methods look their calls up.")},
    {Py_tp_methods, methods},
    {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
    {0, nullptr},
};

PyType_Spec spec = {"pycomm._C.Caller", sizeof(Caller), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};

}  // namespace

HotCalls* hot_calls_of(PyObject* communicator) {
  if (!PyObject_TypeCheck(communicator, caller_type)) return nullptr;
  return reinterpret_cast<Caller*>(communicator)->calls;
}

void bind_caller(py::module_& m) {
  auto type = py::reinterpret_steal<py::object>(PyType_FromSpec(&spec));
  if (!type) throw py::error_already_set();
  caller_type = reinterpret_cast<PyTypeObject*>(type.ptr());
  m.attr("Caller") = type;
  type.release();  // it is looked at as long as there are hot methods
}

}  // namespace pycomm
