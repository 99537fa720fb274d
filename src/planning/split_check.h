// src/planning/split_check.h: checks how a recipe splits the training rows of a dataset.
#pragma once

#include "src/base/violations.h"
#include "src/data/schema.h"
#include "src/job/recipe.h"

namespace trainyard {

/// Refuses fields of recipe.split that exclude each other or have no effect, columns that the
/// dataset lacks or has not kept, and more folds than there are rows or groups.
void check_split(const Recipe& recipe, const DatasetSchema& schema, Violations& violations);

}  // namespace trainyard
