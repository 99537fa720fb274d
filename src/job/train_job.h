// src/job/train_job.h: a job as it is trained: model, recipe, folders, devices.
#pragma once

#include <cstdint>
#include <filesystem>

#include "src/job/recipe.h"
#include "src/models/model_spec.h"

namespace trainyard {

/// One of the devices that train a job together, and how many they are. Each takes an equal part
/// of every batch.
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
  int64_t ranks = 1;  // devices that train it together: recorded in checkpoints; set by train()
  /// False: batches come from the host, although the device could hold the training rows.
  bool holds_rows = true;
  /// Until its first checkpoint the job waits behind each node, so that a CudaError names the node
  /// whose kernel failed: slower, and the same bits.
  bool names_faults = false;
};

}  // namespace trainyard
