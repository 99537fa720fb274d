// tests/bench/step_count.h: counts what one training step submits to a GPU, node by node. The CUDA
// backend's own code runs on the fakes, which count and do not compute (tests/cuda/fake_cuda.h), so
// that models have their real sizes and no GPU is needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/job/recipe.h"
#include "src/planning/programs.h"
#include "src/runtime/profiling_backend.h"
#include "src/tensor/shape.h"
#include "tests/bench/bench_models.h"
#include "tests/cuda/fake_cuda.h"

namespace trainyard::bench {

struct StepCase {
  std::string model;  // a name of bench_models.h
  int64_t batch = 0;
  Precision precision = Precision::kFp32;
  double dropout = 0;  // dropout ratio of transformers
};

/// An input or output of a node; all zeros if it is omitted.
struct OperandCount {
  int64_t elements = 0;
  int64_t bytes = 0;  // size as stored
  Shape shape;        // the last member's shape, if the node is a group
  bool is_half() const { return bytes == 2 * elements && elements > 0; }
};

/// A problem for which the node requested an algorithm, as its key (src/runtime/cuda).
struct AskedAlgorithm {
  std::string key;
  bool is_supported = false;  // whether the fakes have an algorithm for it
};

/// A node of the graph, or a group of updates that is submitted as one work: the operands are then
/// the sums over all members' operands.
struct NodeCount {
  NodeWork work;
  std::vector<OperandCount> inputs, outputs;
  std::vector<AskedAlgorithm> asked;
  int64_t members = 1;        // the number of nodes in the group
  testing::WorkCounts works;  // operations submitted to the GPU in one step
  LaneStep at;                // where it runs if the step has two lanes
  bool touches_half() const;
};

struct StepCount {
  int64_t together = 1;            // steps that are submitted together if the dataset is resident
  bool has_resident_rows = false;  // whether the dataset is resident and recordings gather rows
  testing::WorkCounts recorded;    // operations in the recording of `together` steps
  int64_t outside = 0;  // operations outside the recording: these steps' inputs and results
  std::vector<NodeCount> nodes;  // the nodes of one step

  testing::WorkCounts of_nodes() const;
  /// Returns the number of a recording's operations, per step, that belong to no node but move
  /// rows, inputs and results.
  double around_nodes() const;
};

/// Compiles a step for a GPU. Throws std::runtime_error if that is not possible.
RunPrograms compile_for_gpu(const ModelSpec& model, const Recipe& recipe,
                            const ModelInterface& interface);
/// Runs a step on the fakes, which count from then on. `resident_model`: a model with a resident
/// dataset.
StepCount count_step(RunPrograms programs, int64_t batch,
                     const BenchModel* resident_model = nullptr);
StepCount count_step(const StepCase& step);
/// Compiles the programs of a case.
RunPrograms compile_case(const StepCase& step);

}  // namespace trainyard::bench
