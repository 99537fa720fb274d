// tests/cuda/parity.h: the checks of a CUDA backend, real or emulated.
#pragma once

#include <string>
#include <string_view>

#include "src/passes/passes.h"
#include "src/runtime/backend.h"
#include "tests/support/graph_cases.h"

namespace trainyard::testing {

class FirstProposal;  // nth_candidate.h

/// The allowed difference between a backend's results and the reference loops', relative to the
/// largest number of a tensor.
double relative_max_of(Precision precision);

/// Compares every case of the table, forward, backward and update, in both layouts, and with memory
/// planned as in a real job or kept apart, with the reference loops in double. Each runs three
/// times: kernel by kernel, recorded, replayed. Each failing case is one failure, and the others
/// still run. `part` selects cases by a part of their names, and so does TRAINYARD_CASE in the
/// environment; kOneOfEachOp omits cases whose ops all occurred in earlier cases.
enum class Cases : uint8_t { kAll, kOneOfEachOp };
/// `choices`, if the backend uses it, has the engines of a failing case, which are then printed.
void expect_parity(Backend& cuda, Precision precision, Cases which = Cases::kAll,
                   std::string_view part = "", FirstProposal* choices = nullptr);

/// Compares the cases for which timing can choose among several algorithms, with each of them
/// (nth_candidate.h), in both layouts and with workspaces that start as NaN.
void expect_parity_of_candidates(Backend& cuda, Precision precision);

/// Expects TF32 to change the numbers of cases with a product, and of no others.
void expect_tf32_in_products_alone(Backend& cuda);

/// Expects a NaN or infinity in front of ReLU to remain one behind it, also where a library
/// computes the layer and ReLU together.
void expect_nan_through_relu(Backend& cuda);

/// Expects two runs of every case whose name contains `part` to give the same bits.
void expect_repeats(Backend& cuda, Precision precision = Precision::kFp32,
                    std::string_view part = "");

/// The names of the ops without a kernel, each preceded by a blank.
std::string missing_ops(const Backend& cuda);

}  // namespace trainyard::testing
