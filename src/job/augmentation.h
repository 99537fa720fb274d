// src/job/augmentation.h: the augmentations that a recipe may list: what a user may say about
// each, in one place, and how it becomes one of src/data/load/augment.h.
#pragma once

#include <string_view>
#include <vector>

#include "src/base/fields.h"
#include "src/data/load/augment.h"
#include "src/data/load/mix.h"
#include "src/data/preprocessing.h"
#include "src/models/attribute_rule.h"
#include "src/models/loss.h"

namespace trainyard {

/// As a user writes it.
struct AugmentationSpec {
  std::string kind;  // "random_crop": the key in a spec file
  Attributes attributes = {};
};
template <FieldsOf<AugmentationSpec> Spec>
void visit_fields(Spec& spec, auto&& visit) {
  auto& [kind, attributes] = spec;
  visit(kind, attributes);
}

struct AugmentationKind {
  std::string_view field;
  std::vector<AttributeRule> attributes;
  // One of the two: what becomes of an image by itself, or with another of its batch.
  Augmentation (*make)(const Attributes& attributes) = nullptr;
  Mixing (*make_mixing)(const Attributes& attributes) = nullptr;
};
const std::vector<AugmentationKind>& augmentation_kinds();

/// Refuses, under recipe.augmentation, what is not known, out of range, or does not fit the images.
void check_augmentation(const std::vector<AugmentationSpec>& list, const DatasetSchema& schema,
                        Violations& violations);

/// True if images are mixed with others of their batch: their targets are shares of classes.
bool mixes_classes(const std::vector<AugmentationSpec>& list);
/// True if a device that holds the images can make them, without the host: images by themselves,
/// changed by what moves_alone(), or not at all.
bool moves_images_alone(const std::vector<AugmentationSpec>& list);
/// Refuses mixing where the batch is one image, or the loss cannot take shares of classes.
void check_mixing(const std::vector<AugmentationSpec>& list, int64_t batch_size,
                  const Objective& objective, Violations& violations);

/// What check_augmentation has accepted, ready to be applied: to images by themselves, then to
/// batches.
Augmenter make_augmenter(const std::vector<AugmentationSpec>& list, const DatasetSchema& schema,
                         const Preprocessing& preprocessing);
Mixer make_mixer(const std::vector<AugmentationSpec>& list, const DatasetSchema& schema);

}  // namespace trainyard
