// tests/cuda/parity.h: the checks of a CUDA backend, a real one or an emulated.
#pragma once

#include <string>
#include <string_view>

#include "src/passes/passes.h"
#include "src/runtime/backend.h"
#include "tests/support/graph_cases.h"

namespace trainyard::testing {

/// What may lie between a backend's results and the plain loops', relative to the largest number of
/// a tensor.
double relative_max_of(Precision precision);

/// Every case of the table, forward, backward and update, in both layouts and with memory planned
/// as in a real job or kept apart, against the plain loops in double; each runs three times: kernel
/// by kernel, recorded, replayed. Every case that fails is one failure, and the others are run too.
/// `part` picks cases by a part of their names, and so does TRAINYARD_CASE in the environment;
/// kOneOfEachOp leaves out those whose ops are all in one before.
enum class Cases : uint8_t { kAll, kOneOfEachOp };
void expect_parity(Backend& cuda, Precision precision, Cases which = Cases::kAll,
                   std::string_view part = "");

/// The cases for which timing has several algorithms to choose from, by each of them
/// (nth_candidate.h), in both layouts and in workspaces that begin with NaN.
void expect_parity_of_candidates(Backend& cuda, Precision precision);

/// In TF32 a case with a product gives other numbers than in F32, and every other case the same.
void expect_tf32_in_products_alone(Backend& cuda);

/// What is NaN or infinite in front of ReLU is so behind it, also where a library computes both.
void expect_nan_through_relu(Backend& cuda);

/// Two runs of every case whose name holds `part` give the same bits.
void expect_repeats(Backend& cuda, Precision precision = Precision::kFp32,
                    std::string_view part = "");

/// Names of the ops without a kernel, each behind a blank.
std::string missing_ops(const Backend& cuda);

}  // namespace trainyard::testing
