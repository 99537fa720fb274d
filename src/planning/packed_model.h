// src/planning/packed_model.h: checks that a model keeps the documents of a row apart.
#pragma once

#include "src/base/result.h"
#include "src/models/model_spec.h"

namespace trainyard {

/// Refuses a model in which a token could see another document of its row: a layer that passes
/// information along the row without asking where documents begin. MODEL_UNSUPPORTED
Status check_packed_model(const Model& model);

}  // namespace trainyard
