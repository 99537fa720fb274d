// kernels/math/label.h: which rows of a classification count.
#pragma once

#include <cstdint>

#include "kernels/math/host_device.h"

namespace trainyard::kernels {

/// Returns whether a row with this label counts. Labels below 0 are those of tokens that are not
/// predicted, such as a prompt's.
TRAINYARD_HD constexpr bool label_counts(int64_t label, int64_t ignored) {
  return label >= 0 && label != ignored;
}

}  // namespace trainyard::kernels
