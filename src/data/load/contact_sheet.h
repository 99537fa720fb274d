// src/data/load/contact_sheet.h: draws a sheet of training images next to augmented versions of
// them, so that users can check their data and augmentations.
//
//   original | version | version | ...      one line for each chosen image
//
// Mixing treats the images of a column as a batch: an image is mixed with that of the line above.
//
// Small images are enlarged by a whole factor without interpolation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/load/augment.h"
#include "src/data/load/mix.h"

namespace trainyard {

struct SheetOptions {
  int64_t images = 8;    // 1..256 images, spread evenly over the training rows
  int64_t versions = 7;  // 0..64 augmented versions per image; without augmentation there are none
  uint64_t seed = 0;
  int64_t epoch = 0;  // epoch of the first version; each following version is of the next epoch
};

struct Sheet {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> pixels;  // [height, width, 3], RGB
  struct Line {
    int64_t row;        // index of the training row, from 0
    std::string label;  // the row's class or number; empty for a dataset without targets
  };
  std::vector<Line> lines;
};

/// Images of three channels are shown as RGB; of others the first channel is shown as gray. Pixels
/// that do not have 8 bits are scaled from their range to 0..255. Errors:
/// FAILED_PRECONDITION/PREVIEW_UNSUPPORTED for a dataset without images; FIELD_OUT_OF_RANGE;
/// RESOURCE_EXHAUSTED/PREVIEW_TOO_LARGE for more than 64 Mi pixels.
Result<Sheet> make_sheet(const Dataset& data, const Augmenter& augmenter, const Mixer& mixer,
                         const SheetOptions& options);

/// Encodes the sheet as a PNG file.
std::string encode_png(const Sheet& sheet);

}  // namespace trainyard
