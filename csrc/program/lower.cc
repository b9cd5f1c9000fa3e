#include "program/passes.h"

namespace pycomm {

void lower(std::span<Program> programs, const Goal& goal) {
  for (Program& program : programs) {
    place(program, goal);
    fuse(program);
  }
  mark(programs, goal);
}

}  // namespace pycomm
