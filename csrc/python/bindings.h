// The parts of the module _C.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace pycomm {

void bind_programs(pybind11::module_& m);       // Span, Group, Step, Program
void bind_planning(pybind11::module_& m);       // Goal, Level, Recipe, build, expand, lower, verify, prove
void bind_errors(pybind11::module_& m);         // C++ exceptions as pycomm.errors
void bind_hot_methods(pybind11::module_& m);    // Caller, HotCalls, hot
void bind_persistent(pybind11::module_& m);     // Persistent, persistent
void bind_communication(pybind11::module_& m);  // Fabric, Request, Bound, Communicator, Operation

// Sets Python's exception from the C++ one that is being handled, as pybind11 does at its own entries.
void set_python_error();

}  // namespace pycomm
