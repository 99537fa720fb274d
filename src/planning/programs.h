// src/planning/programs.h: compiles the programs of a job. Pure functions without kernels: the
// daemon uses them to find a job's needs, the worker to train.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "src/base/result.h"
#include "src/job/recipe.h"
#include "src/job/run_plan.h"
#include "src/job/train_job.h"
#include "src/parallel/split_mlp.h"
#include "src/plan/device_traits.h"
#include "src/plan/program.h"
#include "src/planning/job_plan.h"
#include "src/planning/recipe_check.h"

namespace trainyard {

/// The tensors of a program that the loop writes and reads, by id in its graph.
struct ProgramIds {
  TensorId input = kNoTensor;
  TensorId positions = kNoTensor;  // of rows of documents, if a layer reads them
  TensorId target = kNoTensor;     // only in training programs
  // Training on documents in several parts: F32 [1], the part's share of the batch's counted tokens
  // times the number of parts, by which its loss is multiplied before it is differentiated.
  TensorId loss_share = kNoTensor;
  TensorId step = kNoTensor;           // training, if an op or the optimizer reads the step
  TensorId micro_step = kNoTensor;     // training: the index of the micro-batch in its step
  TensorId gradient_norm = kNoTensor;  // if gradients are clipped by norm or the norm is reported
  TensorId learning_rate = kNoTensor;  // only in training programs
  ScaledStep scaled;                   // only in training programs with loss scaling
  TensorId loss = kNoTensor;           // only in training programs
  TensorId output = kNoTensor;         // logits [N, K] or predictions [N, 1]
  int64_t batch_size = 0;
  // If > 0, the head is split over ranks (split_head.h): the output has this rank's share of so
  // many classes, for the rows of all ranks.
  int64_t split_classes = 0;
};

struct BoundProgram : ProgramIds {
  Program program;
  std::vector<LayerRow> layers;  // training: the layers as built, before passes changed the graph
};

struct RunPrograms {
  BoundProgram train;
  // With micro-batches, `train` only sums gradients, and `update` updates the weights.
  std::optional<BoundProgram> update;
  std::optional<BoundProgram> average;   // after each step: updates the moving average of weights
  std::optional<BoundProgram> evaluate;  // reads the averaged weights if there are any
  std::vector<SplitPair> pairs;          // pairs of layers that are split over the ranks
  std::vector<Lookup> lookups;           // the model's embedding lookups
  int64_t trained_parameter_count = 0;
  std::string weight_decay;  // which parameters decay, for the job's log; empty if all or none do
  Precision precision = Precision::kFp32;

  /// Returns the size of the persistent segment that all programs share.
  int64_t persistent_bytes() const;
};

/// The name of a parameter's moving average is "<parameter>.ema".
inline constexpr std::string_view kAverageSuffix = ".ema";

/// Compiles the programs of a step: train, update and average. With several ranks, each computes
/// its part of every micro-batch, and the update reads the mean of their gradients. Here and below,
/// `traits` is Backend::traits() of the backend that will run the programs. Returns
/// CANCELLED/STOPPED soon after `stop` is requested.
Result<RunPrograms> compile_step(const ModelSpec& model, const Recipe& recipe,
                                 const ModelInterface& interface, Rank rank = {},
                                 DeviceTraits traits = {}, const std::stop_token& stop = {});

/// Compiles forward pass, backward pass and update of a step into one program, for recipes without
/// micro-batches and moving average.
Result<BoundProgram> compile_training(const ModelSpec& model, Recipe recipe,
                                      const ModelInterface& interface, int64_t batch_size,
                                      DeviceTraits traits = {});

/// Compiles only the forward pass, in evaluation mode. If `persistent` is given, parameters have
/// the addresses and the alignment of that layout. `lora` is for evaluations while a job trains
/// with it; in a finished model it is merged into the weights.
Result<BoundProgram> compile_inference(const ModelSpec& model, const ModelInterface& interface,
                                       int64_t batch_size, const PersistentLayout* persistent,
                                       Precision precision, const LoraSpec& lora = {},
                                       DeviceTraits traits = {});

/// Compiles all programs of a job for `rank`, which is one of shape.ranks.
Result<RunPrograms> compile_run(const ModelSpec& model, const Recipe& recipe,
                                const DatasetSchema& schema, const RunShape& shape,
                                int64_t rank = 0, const std::stop_token& stop = {});

/// Returns the node names of a step's exchanges, in the order in which they begin; empty on one
/// device.
std::vector<std::string> exchanges_of(const RunPrograms& programs, int64_t micro_batches = 1);
/// Returns the number of exchanges that one run of the program begins.
int64_t exchanges_in(const Program& program);

/// Describes the needs of all programs together. They run one after another and share the transient
/// segment.
RunPlan describe_run(const RunPrograms& programs, const RunShape& shape, const Recipe& recipe);

}  // namespace trainyard
