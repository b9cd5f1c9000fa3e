// Methods of a communicator whose calls are made in C++ wherever an earlier one like them has prepared that.
#pragma once

#include <pybind11/pybind11.h>

namespace pycomm {

class HotCalls;

// The hot calls of a communicator; nullptr for anything else, and before `use` was called on it.
HotCalls* hot_calls_of(PyObject* communicator);

void bind_caller(pybind11::module_& m);  // Caller, the base of a communicator
// HotCalls, hot, and the above.
void bind_hot_methods(pybind11::module_& m);

}  // namespace pycomm
