// Passes: each rewrites programs into equal ones that are nearer to the machine.
#pragma once

#include <span>

#include "program/collective.h"
#include "program/program.h"

namespace pycomm {

// Turns the in-place buffer kData into in, out and tmp: a chunk that was not yet written is read from the
// input; written chunks live in the output where the result holds them, else in tmp; what the result holds
// and no step wrote is copied. The input is never written. The outcome is right whether or not input and
// output are one buffer.
void place(Program& program, const Goal& goal);

// A receive whose span is next sent on becomes one streaming step with up to two targets.
void fuse(Program& program);

// Sets every step's forms, by running all ranks' programs (rank r's at index r) on symbols. Throws
// ProgramError where they do not fit together.
void mark(std::span<Program> programs, const Goal& goal);

// All three passes over all ranks' programs, in this order.
void lower(std::span<Program> programs, const Goal& goal);

}  // namespace pycomm
