// tests/cuda/held_rows.h: datasets of every kind, and batches of them that a GPU gathers beside the
// host's: what the tests with a GPU and those on the emulator share.
#pragma once

#include "src/data/dataset.h"
#include "src/job/train_job.h"
#include "src/runtime/backend.h"
#include "tests/engine/train_support.h"

namespace trainyard::testing {

// Each ingests into workspace / "dataset".
/// Images of 3 classes, of bytes or of floats.
DatasetSchema ingest_images(const Workspace& w, const Shape& image, bool bytes, int64_t rows);
/// A number with a gap, two columns of categories, a number to predict.
DatasetSchema ingest_table(const Workspace& w, int64_t rows);
DatasetSchema ingest_rows_of_text(const Workspace& w, int64_t rows);
DatasetSchema ingest_stream(const Workspace& w, int64_t length);

/// Augmentations that a device which holds the images can make, one of each.
std::vector<AugmentationSpec> moves();

/// Nine steps of batches of 16, of more than one epoch.
TrainJob held_job(const Workspace& w, const std::string& name, ModelSpec model);
ModelSpec dense_model();
/// Of images: it is to give its input back.
ModelSpec autoencoder_model();
ModelSpec bag_model();
ModelSpec next_token_model(int64_t vocabulary);

/// Batches of two epochs of every kind of dataset: bit by bit the host's.
void expect_held_batches(Backend& backend);
/// Evaluations of every kind of rows where the GPU holds them: to the bit what the same model gives
/// of the host's batches.
void expect_held_evaluations(Backend& backend);

}  // namespace trainyard::testing
