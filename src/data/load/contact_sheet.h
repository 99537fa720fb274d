// src/data/load/contact_sheet.h: images side by side, so that people can look at their data and at
// what augmentation makes of it.
//
//   original | version | version | ...      one line for each image that was chosen
//
// Mixing takes the images of a column for a batch: an image's partner is that of the line above.
//
// Small images are enlarged by a whole factor, pixel by pixel, so that each pixel can be seen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/dataset.h"
#include "src/data/load/augment.h"
#include "src/data/load/mix.h"

namespace trainyard {

struct SheetOptions {
  int64_t images = 8;    // spread evenly over the training rows, 1..256
  int64_t versions = 7;  // of each image beside itself, 0..64; none without augmentation
  uint64_t seed = 0;
  int64_t epoch = 0;  // of the first version; each following one is of the next epoch
};

struct Sheet {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> pixels;  // [height, width, 3], RGB
  struct Line {
    int64_t row;        // of the training rows, from 0
    std::string label;  // its class, or its number; empty for a dataset without
  };
  std::vector<Line> lines;
};

/// Images of one channel are gray, of three RGB; of others the first channel is shown. Pixels that
/// are not of 8 bits are stretched from their least to their largest value.
/// FAILED_PRECONDITION/PREVIEW_UNSUPPORTED for a dataset without images; FIELD_OUT_OF_RANGE;
/// RESOURCE_EXHAUSTED/PREVIEW_TOO_LARGE beyond 64 Mi pixels.
Result<Sheet> make_sheet(const Dataset& data, const Augmenter& augmenter, const Mixer& mixer,
                         const SheetOptions& options);

/// As a PNG file's bytes.
std::string encode_png(const Sheet& sheet);

}  // namespace trainyard
