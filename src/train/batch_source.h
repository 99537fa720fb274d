// src/train/batch_source.h: the source of a job's training batches. The host computes them, or the
// devices gather them from a resident dataset, or from the rows of one run at a time, which the
// host copies to them. All three give bit-identical batches, and the loop does not depend on which
// it is.
#pragma once

#include <cstdint>

#include "src/data/load/loader.h"
#include "src/data/load/split.h"
#include "src/job/recipe.h"
#include "src/planning/recipe_check.h"
#include "src/runtime/backend.h"
#include "src/train/evaluate.h"
#include "src/train/training_session.h"

namespace trainyard {

/// The job and the data that batches are computed from. They must outlive the BatchSource.
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
    kResident,  // the devices store the whole training data
    kStaged,    // the rows of one run at a time are copied to the devices
  };
  explicit BatchSource(const BatchInputs& inputs, Kind kind = Kind::kHost)
      : inputs_(inputs), kind_(kind) {}
  /// Copies the training rows to the session's devices, or allocates memory there for the rows of
  /// one run, if the devices and the job's shape allow it. Must be called before the session's
  /// first step.
  static BatchSource on_device(const BatchInputs& inputs, const Backend& backend,
                               TrainingSession& session);

  Kind kind() const { return kind_; }
  /// Returns where evaluation reads the held-out rows: on the devices or on the host.
  RowsFrom held_out() const;
  /// Returns the loader's options for batches from step `first_step` on.
  Loader::Options options(int64_t first_step) const;
  Loader open(int64_t first_step) const;
  /// Returns the inputs of step `step`, counted from 0. They refer to the batch's memory.
  static TrainingSession::StepInputs step_inputs(const Batch& batch, int64_t step,
                                                 double learning_rate);

 private:
  const BatchInputs inputs_;
  const Kind kind_;
};

}  // namespace trainyard
