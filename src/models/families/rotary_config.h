// src/models/families/rotary_config.h: the settings of rotary positions in a config.json.
#pragma once

#include "src/graph/attributes.h"
#include "src/models/families/config_object.h"

namespace trainyard {

/// Sets the preset's parameters rope_theta and rope_*. transformers 5 writes one object,
/// rope_parameters; transformers 4 wrote rope_theta and rope_scaling.
void read_rotary(ConfigObject& config, double theta_default, int64_t positions_max,
                 Violations& problems, Attributes& parameters);

}  // namespace trainyard
