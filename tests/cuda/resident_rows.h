// tests/cuda/resident_rows.h: datasets of every kind, and batches gathered from them on a GPU to
// compare with the host's; shared by the tests with a GPU and those on the emulator.
#pragma once

#include "src/data/dataset.h"
#include "src/job/train_job.h"
#include "src/runtime/backend.h"
#include "tests/engine/train_support.h"

namespace trainyard::testing {

// Each function ingests a dataset into workspace / "dataset".
/// Images of 3 classes, with pixels as bytes or floats.
DatasetSchema ingest_images(const Workspace& w, const Shape& image, bool bytes, int64_t rows);
/// A numeric column with a gap, two categorical columns, and a numeric target.
DatasetSchema ingest_table(const Workspace& w, int64_t rows);
DatasetSchema ingest_rows_of_text(const Workspace& w, int64_t rows);
DatasetSchema ingest_stream(const Workspace& w, int64_t length);

/// One of each augmentation that a device with a resident dataset can apply.
std::vector<AugmentationSpec> moves();

/// A job of nine steps with batches of 16 rows, over more than one epoch.
TrainJob resident_job(const Workspace& w, const std::string& name, ModelSpec model);
ModelSpec dense_model();
/// An autoencoder for images.
ModelSpec autoencoder_model();
ModelSpec bag_model();
ModelSpec next_token_model(int64_t vocabulary);

/// Expects the batches of two epochs of every kind of dataset to equal the host's, bit by bit.
void expect_resident_batches(Backend& backend);
/// Expects evaluations with a resident dataset of every kind to give the values of the host's
/// batches, to the bit.
void expect_resident_evaluations(Backend& backend);

}  // namespace trainyard::testing
