// The parts of the module _C.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace pycomm {

void bind_programs(pybind11::module_& m);       // Span, Group, Step, Program
void bind_planning(pybind11::module_& m);       // Goal, Level, Recipe, build, expand, lower, verify, prove
void bind_errors(pybind11::module_& m);         // C++ exceptions as pycomm.errors
void bind_communication(pybind11::module_& m);  // Fabric, Request, Bound, Communicator, Operation

}  // namespace pycomm
