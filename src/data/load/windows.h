// src/data/load/windows.h: the samples of a stream of tokens: adjacent windows of the job's context
// length. A window of T tokens that begins at token i reads the tokens i .. i + T - 1 and predicts
// i + 1 .. i + T.
//
// Validation windows are at the end of the training text, so that no training window overlaps them.
// Training windows cover the text before. In each epoch all of them are shifted by the same number
// of tokens, which is drawn by Philox from (seed, "window", epoch), so that the boundaries differ.
#pragma once

#include <cstdint>
#include <vector>

#include "src/data/schema.h"

namespace trainyard {

struct WindowPlan {
  int64_t train = 0;             // number of training windows
  int64_t shift_max = 0;         // the largest shift of an epoch's windows, in tokens
  int64_t validation = 0;        // number of validation windows
  int64_t validation_first = 0;  // the token at which the first validation window begins
  int64_t test = 0;              // number of windows in the test set
};

/// Plans the windows of a stream. `validation_fraction`, in [0, 1], of the training text's windows
/// is held out. Any count may be 0; the check of the recipe decides whether that is acceptable.
WindowPlan plan_windows(const DatasetSchema& schema, int64_t context_length,
                        double validation_fraction);

/// Returns the beginnings of `count` adjacent windows from token `first` on.
std::vector<int64_t> window_starts(int64_t first, int64_t count, int64_t context_length);

}  // namespace trainyard
