// src/job/augmentation.h: the augmentations that a recipe may list: the attributes of each, their
// checks, and the conversion to the types of src/data/load/augment.h and mix.h.
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

/// An augmentation as the user writes it.
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
  // One of the two is set: `make` for a kind that changes each image by itself, `make_mixing` for
  // one that mixes the images of a batch.
  Augmentation (*make)(const Attributes& attributes) = nullptr;
  Mixing (*make_mixing)(const Attributes& attributes) = nullptr;
};
const std::vector<AugmentationKind>& augmentation_kinds();

/// Refuses entries of recipe.augmentation that are unknown, out of range, or do not fit the images.
void check_augmentation(const std::vector<AugmentationSpec>& list, const DatasetSchema& schema,
                        Violations& violations);

/// Returns true if an entry mixes the images of a batch, so that targets are probabilities of
/// classes.
bool mixes_classes(const std::vector<AugmentationSpec>& list);
/// Returns true if a device that keeps the dataset's images can apply the whole list without the
/// host: no entry mixes images, and all pass moves_alone(). An empty list does.
bool moves_images_alone(const std::vector<AugmentationSpec>& list);
/// Refuses mixing if a batch is one image, or if the loss cannot take probabilities of classes.
void check_mixing(const std::vector<AugmentationSpec>& list, int64_t batch_size,
                  const Objective& objective, Violations& violations);

/// These convert a list that check_augmentation() accepted: its augmentations of single images to
/// an Augmenter, and its mixing of batches, which comes after them, to a Mixer.
Augmenter make_augmenter(const std::vector<AugmentationSpec>& list, const DatasetSchema& schema,
                         const Preprocessing& preprocessing);
Mixer make_mixer(const std::vector<AugmentationSpec>& list, const DatasetSchema& schema);

}  // namespace trainyard
