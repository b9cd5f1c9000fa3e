#include "program/passes.h"
#include "program/symbolic_run.h"

namespace pycomm {

void mark(std::span<Program> programs, const Goal& goal) {
  const FlatPrograms flat(programs, goal);
  const std::vector<StepForms> forms = SymbolicRun(flat).run_and_mark();
  for (Program& program : programs)
    for (std::size_t c = 0; c < program.channels().size(); ++c) {
      std::size_t at = flat.lanes()[flat.lane(program.rank(), static_cast<int>(c))].first;
      for (Step& step : program.channels()[c]) forms[at++].mark(step);
    }
}

}  // namespace pycomm
