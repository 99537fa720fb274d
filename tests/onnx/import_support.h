// tests/onnx/import_support.h: an imported model as a graph that runs.
#pragma once

#include <vector>

#include "src/checkpoint/safetensors.h"
#include "src/onnx/import_model.h"
#include "src/runtime/backend.h"
#include "tests/support/graph_cases.h"

namespace trainyard::testing {

/// The model's outputs for `batch` samples, row-major, the batch in front.
std::vector<double> run_imported(const onnx::ImportedModel& model, int64_t batch,
                                 const std::vector<double>& input, Backend& backend);

/// `values` of sizes `dims` with axis `from` as the first one.
std::vector<double> axis_to_front(const std::vector<double>& values,
                                  const std::vector<int64_t>& dims, int64_t from);

/// What a file of the golden folder holds.
std::vector<double> numbers_of(const TensorView& tensor);

}  // namespace trainyard::testing
