#include <exception>

#include "executor/error.h"
#include "program/program.h"
#include "python/bindings.h"

namespace py = pybind11;

namespace pycomm {
namespace {

const char* class_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalid:
      return "InvalidArgument";
    case ErrorKind::kTimedOut:
      return "TimedOut";
    case ErrorKind::kPeerLost:
      return "PeerLost";
    case ErrorKind::kMismatch:
      return "Mismatch";
    case ErrorKind::kInterrupted:
      return "PeerLost";  // at the ranks that were not interrupted themselves
  }
  return "Error";
}

void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const CallError& error) {
    // After a signal its own exception (KeyboardInterrupt) is already set.
    if (error.kind == ErrorKind::kInterrupted && PyErr_Occurred()) return;
    const py::object type = py::module_::import("pycomm.errors").attr(class_of(error.kind));
    py::set_error(type, error.what());
  }
}

}  // namespace

void set_python_error() {
  try {
    throw;
  } catch (py::error_already_set& error) {
    error.restore();
  } catch (...) {
    py::detail::try_translate_exceptions();
  }
}

void bind_errors(py::module_& m) {
  py::register_exception<ProgramError>(m, "ProgramError", PyExc_ValueError);
  py::register_exception_translator(&translate);
}

}  // namespace pycomm
