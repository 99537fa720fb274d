// tests/cuda/staged_rows.h: images that are staged to a GPU in stored form; shared by the tests
// with a GPU and those on the emulator.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/job/train_job.h"
#include "src/planning/recipe_check.h"
#include "src/train/batch_source.h"
#include "tests/cuda/resident_rows.h"

namespace trainyard::testing {

inline constexpr DeviceTraits kGpuTraits{kCudaAlignment, Processor::kGpu};

/// A job on images of 8 bits, with its dataset, split and preprocessing.
struct ImageJob {
  Workspace w;
  TrainJob job;
  std::optional<Dataset> data;
  RunShape shape;
  Split split;
  Preprocessing p;

  ImageJob(const Shape& image, std::vector<AugmentationSpec> augmentation, int64_t parts,
           int64_t ranks = 1) {
    ingest_images(w, image, /*bytes=*/true, 50);
    job = resident_job(w, "images", dense_model());
    job.recipe.augmentation = std::move(augmentation);
    job.recipe.accumulate_steps = parts;
    data.emplace(Dataset::open(w / "dataset", false).value());
    shape = check_recipe(job.recipe, job.model, schema(), ranks, kGpuTraits).value();
    // Simulates a dataset that is too large to be resident.
    shape.resident.reset();
    shape.staged = plan_staged(job.recipe, schema(), shape.rank_batch, kGpuTraits.alignment);
    split = split_dataset(schema(), data->train(), 0, {0.2, 5});
    p = fit_preprocessing(schema(), data->train(), split.train);
  }
  const DatasetSchema& schema() const { return data->schema(); }
  BatchInputs inputs() const { return {job.recipe, shape, *data, p, split}; }
  Loader loader(BatchSource::Kind kind) const { return BatchSource(inputs(), kind).open(0); }
};

/// Expects the batches of two epochs to equal the host's bit by bit: images of several shapes, with
/// and without augmentation, in one and two micro-batches.
void expect_staged_batches(Backend& backend);

}  // namespace trainyard::testing
