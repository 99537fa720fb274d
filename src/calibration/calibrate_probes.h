// src/calibration/calibrate_probes.h: the networks whose steps are timed to measure a device's
// rates (src/calibration/calibrate.h).
#pragma once

#include <vector>

#include "src/job/recipe.h"
#include "src/models/model_spec.h"
#include "src/plan/device_traits.h"

namespace trainyard {

struct Probe {
  ModelSpec model;
  ModelInterface interface;
  Recipe recipe;
  bool needed = false;  // measured even if the time limit has passed
};

/// Returns the networks in the order of measurement, the most informative first.
std::vector<Probe> calibration_probes(Processor processor);

}  // namespace trainyard
