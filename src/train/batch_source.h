// src/train/batch_source.h: where a job's training batches come from: the host, which makes them;
// the devices, which have the rows and are given samples of them; or both, where the rows of each
// run are brought to the devices as they are stored. To the same bits. The loop does not know
// which.
#pragma once

#include <cstdint>

#include "src/data/load/loader.h"
#include "src/job/recipe.h"
#include "src/planning/recipe_check.h"
#include "src/runtime/backend.h"
#include "src/train/evaluate.h"
#include "src/train/training_session.h"

namespace trainyard {

/// What batches are made of; outlives its source.
struct BatchInputs {
  const Recipe& recipe;
  const RunShape& shape;
  const Dataset& data;
  const Preprocessing& preprocessing;
  const Split& split;
};

class BatchSource {
 public:
  enum class Kind : uint8_t {
    kHost,
    kResident,  // the session's devices hold the training rows
    kStaged,    // the rows of one run at a time are brought there
  };
  explicit BatchSource(const BatchInputs& inputs, Kind kind = Kind::kHost)
      : inputs_(inputs), kind_(kind) {}
  /// Brings the training rows to the session's devices, or makes room for those of one run, as far
  /// as the devices and the job's shape allow. Before the session's first step.
  static BatchSource on_device(const BatchInputs& inputs, const Backend& backend,
                               TrainingSession& session);

  Kind kind() const { return kind_; }
  /// From where the rows that are held out are evaluated.
  RowsFrom held_out() const;
  /// How batches are made from step `first_step` on.
  Loader::Options options(int64_t first_step) const;
  Loader open(int64_t first_step) const;
  /// A batch as the step `step`, from 0, takes it; free once the batch is.
  static TrainingSession::StepInputs step_inputs(const Batch& batch, int64_t step,
                                                 double learning_rate);

 private:
  const BatchInputs inputs_;
  const Kind kind_;
};

}  // namespace trainyard
