// src/models/model_json.h: converts a model spec to JSON, for model.json, and back. Equal specs
// give equal bytes. Attribute types survive: 1 is an integer, 1.0 is not.
#pragma once

#include <string>
#include <string_view>

#include "src/base/result.h"
#include "src/models/model_spec.h"

namespace trainyard {

std::string model_to_json(const ModelSpec& spec);

/// Returns MODEL_FILE_INVALID if `text` does not have the form that model_to_json writes. The
/// meaning of the layers is only checked by build_model.
Result<ModelSpec> model_from_json(std::string_view text);

}  // namespace trainyard
