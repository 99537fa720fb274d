// src/planning/programs.h: the compiled programs of a job. Pure planning, no kernels: the daemon
// runs this to know a job's needs, the worker to train.
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
  TensorId target = kNoTensor;         // training
  TensorId step = kNoTensor;           // training, where an op or the optimizer asks for it
  TensorId micro_step = kNoTensor;     // training by micro-batches: which one of its step
  TensorId gradient_norm = kNoTensor;  // where it is clipped or reported
  TensorId learning_rate = kNoTensor;  // training
  ScaledStep scaled;                   // training with loss scaling
  TensorId loss = kNoTensor;           // training
  TensorId output = kNoTensor;         // logits [N, K] or predictions [N, 1]
  int64_t batch_size = 0;
  // > 0: the head is split over ranks (split_head.h), and the output has this rank's of so many
  // classes, for the rows of all ranks.
  int64_t split_classes = 0;
};

struct BoundProgram : ProgramIds {
  Program program;
  std::vector<LayerRow> layers;  // training: what was built, before any pass changed it
};

struct RunPrograms {
  BoundProgram train;
  // With micro-batches `train` only sums gradients, and this updates.
  std::optional<BoundProgram> update;
  std::optional<BoundProgram> average;   // after each step: the moving average of the weights
  std::optional<BoundProgram> evaluate;  // reads the averaged weights where there are some
  std::vector<SplitPair> pairs;          // of layers that are split over the ranks
  std::vector<Lookup> lookups;           // of the model
  int64_t trained_parameter_count = 0;
  Precision precision = Precision::kFp32;

  /// All of them share one persistent segment; the last one knows its size.
  int64_t persistent_bytes() const;
};

/// A moving average is called "<parameter>.ema".
inline constexpr std::string_view kAverageSuffix = ".ema";

/// What a step needs: train, update and average. Of several ranks each computes its part of every
/// micro-batch, and the update reads the mean of their gradients. Here and below, `traits` are
/// Backend::traits() of what will run the programs. Soon after `stop` is requested:
/// CANCELLED/STOPPED.
Result<RunPrograms> compile_step(const ModelSpec& model, const Recipe& recipe,
                                 const ModelInterface& interface, Rank rank = {},
                                 DeviceTraits traits = {}, const std::stop_token& stop = {});

/// Forward, backward and update of one step in one program, for recipes without micro-batches and
/// average.
Result<BoundProgram> compile_training(const ModelSpec& model, Recipe recipe,
                                      const ModelInterface& interface, int64_t batch_size,
                                      DeviceTraits traits = {});

/// Only the forward pass, in evaluation mode. `persistent`: lay parameters out as that program
/// does, in its alignment. `lora`: while a job trains with it; a finished model's weights have it
/// in them.
Result<BoundProgram> compile_inference(const ModelSpec& model, const ModelInterface& interface,
                                       int64_t batch_size, const PersistentLayout* persistent,
                                       Precision precision, const LoraSpec& lora = {},
                                       DeviceTraits traits = {});

/// Of `rank` among shape.ranks.
Result<RunPrograms> compile_run(const ModelSpec& model, const Recipe& recipe,
                                const DatasetSchema& schema, const RunShape& shape,
                                int64_t rank = 0, const std::stop_token& stop = {});

/// The exchanges of a step, by node name, in the order in which they begin; none on one device.
std::vector<std::string> exchanges_of(const RunPrograms& programs, int64_t micro_batches = 1);
/// How many a run of a program begins.
int64_t exchanges_in(const Program& program);

/// What the programs need together: they run one after another and share the transient segment.
RunPlan describe_run(const RunPrograms& programs, const RunShape& shape, const Recipe& recipe);

}  // namespace trainyard
