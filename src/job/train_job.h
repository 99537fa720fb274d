// src/job/train_job.h: the input of training: model, recipe, folders and devices of a job.
#pragma once

#include <cstdint>
#include <filesystem>

#include "src/job/recipe.h"
#include "src/models/model_spec.h"

namespace trainyard {

/// The index of a device among the `count` devices that train a job together. Each trains an equal
/// part of every batch.
struct Rank {
  int64_t index = 0;
  int64_t count = 1;
};

struct TrainJob {
  ModelSpec model;
  Recipe recipe;
  std::filesystem::path dataset;          // folder of the typed dataset
  std::filesystem::path initial_weights;  // the file of recipe.initial_weights
  std::filesystem::path checkpoints;      // folder; the newest valid checkpoint in it is resumed
  std::filesystem::path
      model_output;  // folder of the trained model (model.h); written when the job succeeds
  int threads = 1;
  int64_t ranks = 1;  // devices that train together; train() sets it, and checkpoints record it
  /// If false, batches come from the host even if the dataset could be resident on the device.
  bool allows_resident_rows = true;
  /// If true, the job waits after each node until its first checkpoint, so that a CudaError names
  /// the node whose kernel failed. This is slower and gives the same bits.
  bool names_faults = false;
};

}  // namespace trainyard
