// tests/support/run_case.h: compiles a case and runs it on a backend.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/runtime/executor.h"
#include "tests/support/graph_cases.h"

namespace trainyard::testing {

struct RunOptions {
  bool channels_last = true;
  /// Keeps every computed tensor, so that no two share memory and all can be compared. Without it,
  /// memory is planned as in a real job.
  bool keep_all = true;
  int runs = 1;  // later runs must give the same results as the first
  Recompute recompute = Recompute::kNone;
  Precision precision = Precision::kFp32;
  PassOptions passes = default_passes();
  std::optional<Processor> processor = {};  // default: the backend's
  bool two_lanes = false;                   // as CompileOptions; only without keep_all
};

struct CaseResult {
  Program program;
  /// Values by tensor name: marked outputs, and tensors that the run updates in place.
  std::map<std::string, std::vector<double>> values;
  int64_t planned_bytes = 0;
  int64_t used_bytes = 0;
};

/// Fills all memory except inputs, parameters and state with NaN before each run, so that elements
/// that a kernel forgets to write show in the result.
CaseResult run_case(const CaseGraph& c, Backend& backend, const RunOptions& options);
/// Runs a program of the case `runs` times, likewise.
CaseResult run_program(const CaseGraph& c, Program program, Backend& backend, int runs);

/// Adds the backward pass to the case and marks the gradient of each parameter. `gradients` maps
/// parameter IDs to gradient IDs.
CaseGraph with_gradients(CaseGraph c, std::map<TensorId, TensorId>* gradients);

void write_values(Executor& executor, TensorId id, const std::vector<double>& values);
std::vector<double> read_values(const Executor& executor, TensorId id);

}  // namespace trainyard::testing
