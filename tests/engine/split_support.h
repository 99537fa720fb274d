// tests/engine/split_support.h: what tests of layers that are split over ranks share.
#pragma once

#include <functional>

#include "src/train/trainer.h"
#include "tests/engine/train_support.h"

namespace trainyard::testing {

using Change = std::function<void(TrainJob&)>;
/// Another optimizer than the job's.
Change optimizer(const char* type, double rate, double momentum = 0);

/// A dataset of rows of eight numbers that lean towards their class, each of `classes` at least
/// once.
void make_classes(const Workspace& w, int64_t classes, int64_t rows);
/// A dataset of a text of 13 letters.
void make_text(const Workspace& w);

/// Every series of one device within `bound`.
void expect_the_curve(const Recorder& expected, const Recorder& got, double bound);
/// The largest difference of a number of two jobs' weight files, of the same tensors.
double distance(const TrainJob& a, const TrainJob& b);

}  // namespace trainyard::testing
