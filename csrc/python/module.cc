#include "python/bindings.h"
#include "reduce/reduce.h"

PYBIND11_MODULE(_C, m) {
  m.doc() = "The core of pycomm: programs, and the executor and transports that run them.";
  m.def("instruction_set", &pycomm::reduce_instruction_set, "What the reductions use, such as \"avx512\".");
  pycomm::bind_errors(m);
  pycomm::bind_programs(m);
  pycomm::bind_planning(m);
  pycomm::bind_communication(m);
  pycomm::bind_hot_methods(m);
  pycomm::bind_persistent(m);
}
