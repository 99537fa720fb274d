// src/models/model_json.h: a model spec as JSON, for model.json. The text is stable: equal specs
// give equal bytes. Attribute types survive: 1 is an integer, 1.0 is not.
#pragma once

#include <string>
#include <string_view>

#include "src/base/result.h"
#include "src/models/model_spec.h"

namespace trainyard {

std::string model_to_json(const ModelSpec& spec);

/// MODEL_FILE_INVALID if it is not what model_to_json writes; what the layers mean is checked by
/// build_model.
Result<ModelSpec> model_from_json(std::string_view text);

}  // namespace trainyard
