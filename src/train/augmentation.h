// src/train/augmentation.h: the augmentations that a recipe may list: what a user may say about
// each, in one place, and how it becomes one of src/data/augment.h.
#pragma once

#include <string_view>
#include <vector>

#include "src/data/augment.h"
#include "src/data/preprocessing.h"
#include "src/models/attribute_rule.h"

namespace trainyard {

/// As a user writes it.
struct AugmentationSpec {
  std::string kind;  // "random_crop": the key in a spec file
  Attributes attributes = {};
};

struct AugmentationKind {
  std::string_view field;
  std::vector<AttributeRule> attributes;
  Augmentation (*make)(const Attributes& attributes);
};
const std::vector<AugmentationKind>& augmentation_kinds();

/// Refuses, under recipe.augmentation, what is not known, out of range, or does not fit the images.
void check_augmentation(const std::vector<AugmentationSpec>& list, const DatasetSchema& schema,
                        Violations& violations);

/// What check_augmentation has accepted, ready to be applied.
Augmenter make_augmenter(const std::vector<AugmentationSpec>& list, const DatasetSchema& schema,
                         const Preprocessing& preprocessing);

}  // namespace trainyard
