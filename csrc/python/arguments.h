// The arguments of a collective as its caller wrote them, read without running any Python.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <string>

namespace pycomm {

// To be called before anything else here.
void load_names();

// The number of a reduction that is named by an exact str, sum for nullptr; -1 for anything else.
int reduction_given(PyObject* op);
// The number of a collective, barrier among them. Throws std::invalid_argument.
int collective_number(const std::string& name);

enum Parameter : int { kX, kOp, kRoot, kOut, kDtype, kAlgorithm, kAsyncOp, kTimeout, kParameters };

// Which parameters a collective takes, and which of them without their names.
struct Signature {
  const char* name;
  int collective;  // as `collective_number` has it
  std::array<Parameter, 3> positional;
  Py_ssize_t positionals;
  std::uint32_t allowed;  // a bit for each parameter
};

// nullptr with Python's exception set for a function that is named like no collective.
const Signature* signature_of(PyObject* function);

// Borrowed; nullptr where nothing was given.
struct Arguments {
  // False for what is to be looked at by Python's own rules: a wrong number, an unknown name.
  bool read(const Signature& signature, PyObject* const* values, Py_ssize_t positionals, PyObject* names);
  PyObject* operator[](Parameter parameter) const { return given[parameter]; }
  bool none(Parameter parameter) const { return given[parameter] == nullptr || given[parameter] == Py_None; }

  std::array<PyObject*, kParameters> given = {};
};

}  // namespace pycomm
