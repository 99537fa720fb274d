// src/train/batch_source.h: where a job's training batches come from: the host makes them, or
// the devices gather them from rows that they hold, or from the stored rows of one run at a time
// that the host copies to them. All three give the same bits, and the loop does not know which.
#pragma once

#include <cstdint>

#include "src/data/load/loader.h"
#include "src/job/recipe.h"
#include "src/planning/recipe_check.h"
#include "src/runtime/backend.h"
#include "src/train/evaluate.h"
#include "src/train/training_session.h"

namespace trainyard {

/// The job and data that batches are made from. They must outlive the BatchSource.
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
  /// as the devices and the job's shape allow. Call it before the session's first step.
  static BatchSource on_device(const BatchInputs& inputs, const Backend& backend,
                               TrainingSession& session);

  Kind kind() const { return kind_; }
  /// Tells whether evaluation reads the held-out rows on the devices or on the host.
  RowsFrom held_out() const;
  /// The loader's options for batches from step `first_step` on.
  Loader::Options options(int64_t first_step) const;
  Loader open(int64_t first_step) const;
  /// The inputs of step `step`, counted from 0. They refer to the batch's memory.
  static TrainingSession::StepInputs step_inputs(const Batch& batch, int64_t step,
                                                 double learning_rate);

 private:
  const BatchInputs inputs_;
  const Kind kind_;
};

}  // namespace trainyard
