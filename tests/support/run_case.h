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
  /// Keeps every computed tensor, so that none shares memory and all can be compared. Without it
  /// memory is planned as in a real job.
  bool keep_all = true;
  int runs = 1;  // a later run must find everything as a first one does
  Recompute recompute = Recompute::kNone;
  Precision precision = Precision::kFp32;
  PassOptions passes = default_passes();
  std::optional<Processor> processor = {};  // else the backend's
};

struct CaseResult {
  Program program;
  /// By tensor name: marked outputs, and what the run updates in place.
  std::map<std::string, std::vector<double>> values;
  int64_t planned_bytes = 0;
  int64_t used_bytes = 0;
};

/// Before each run all memory but inputs, parameters and state holds NaN: what a kernel forgets to
/// write shows in the result.
CaseResult run_case(const CaseGraph& c, Backend& backend, const RunOptions& options);

/// The case with its backward pass; the gradient of each parameter is marked, by parameter id.
CaseGraph with_gradients(CaseGraph c, std::map<TensorId, TensorId>* gradients);

void write_values(Executor& executor, TensorId id, const std::vector<double>& values);
std::vector<double> read_values(const Executor& executor, TensorId id);

}  // namespace trainyard::testing
