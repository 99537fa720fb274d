// src/calibration/calibrate_probes.h: the networks by whose steps a device's rates are measured
// (src/calibration/calibrate.h).
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
  bool needed = false;  // it has an op that no network before it has
};

/// Those that tell most come first.
std::vector<Probe> calibration_probes(Processor processor);

}  // namespace trainyard
