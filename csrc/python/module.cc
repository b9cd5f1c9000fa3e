#include <pybind11/pybind11.h>

PYBIND11_MODULE(_C, m) { m.attr("version") = "0.1.0"; }
