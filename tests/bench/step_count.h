// tests/bench/step_count.h: what one training step submits to a GPU, node by node. The CUDA
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
  std::string model;  // of bench_models.h
  int64_t batch = 0;
  Precision precision = Precision::kFp32;
  double dropout = 0;  // of transformers
};

/// An input or output of a node; nothing but zeros where it is left out.
struct OperandCount {
  int64_t elements = 0;
  int64_t bytes = 0;  // as it is stored
  Shape shape;        // of a group: its last member's
  bool is_half() const { return bytes == 2 * elements && elements > 0; }
};

/// A problem that the node asked for an algorithm, in the words of its key (src/runtime/cuda).
struct AskedAlgorithm {
  std::string key;
  bool is_offered = false;  // whether the fakes have one
};

/// A node of the graph, or a group of updates that is submitted as one: operands are then the sums
/// of all members' operands.
struct NodeCount {
  NodeWork work;
  std::vector<OperandCount> inputs, outputs;
  std::vector<AskedAlgorithm> asked;
  int64_t members = 1;        // nodes of the group
  testing::WorkCounts works;  // of one step
  bool touches_half() const;
};

struct StepCount {
  int64_t together = 1;          // steps that are submitted at once, where a job holds its rows
  bool holds_rows = false;       // then their recordings bring the rows in
  testing::WorkCounts recorded;  // of all of them
  int64_t outside = 0;           // works beside the recording: inputs and results of all of them
  std::vector<NodeCount> nodes;  // of one step

  testing::WorkCounts of_nodes() const;
  /// Works of the recording for each step that are no node's: its rows, inputs and results.
  double around_nodes() const;
};

/// Compiles a step for a GPU. Throws std::runtime_error where it cannot be compiled.
RunPrograms compile_for_gpu(const ModelSpec& model, const Recipe& recipe,
                            const ModelInterface& interface);
/// Runs a step on the fakes, which count from then on. `held`: a model whose rows lie on the
/// device.
StepCount count_step(RunPrograms programs, int64_t batch, const BenchModel* held = nullptr);
StepCount count_step(const StepCase& step);
/// The programs of a case.
RunPrograms compile_case(const StepCase& step);

}  // namespace trainyard::bench
