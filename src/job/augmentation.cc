#include "src/job/augmentation.h"

#include <algorithm>
#include <set>

#include "src/base/text.h"

namespace trainyard {
namespace {

constexpr size_t kListMax = 16;
constexpr double kPixelsMax = 65536;
constexpr double kFactorMax = 100;

AttributeRule chance_rule() { return real_rule("p", false, {.max = 1}); }
AttributeRule factor_rule(std::string_view name) {
  return real_rule(name, false, {.max = kFactorMax});
}
AttributeRule alpha_rule() {
  return real_rule("alpha", false, {.max = kFactorMax, .min_excluded = true});
}
AttributeRule pair_rule(std::string_view name, double max) {
  AttributeRule rule = real_rule(name, false, {.max = max, .min_excluded = true});
  rule.kind = AttributeRule::Kind::kNumbers;
  rule.lengths = {2};
  return rule;
}

Augmentation make_resized_crop(const Attributes& a) {
  const RandomResizedCrop usual;
  const auto scale = a.get_floats("scale", {usual.scale_min, usual.scale_max});
  const auto ratio = a.get_floats("ratio", {usual.ratio_min, usual.ratio_max});
  return RandomResizedCrop{scale[0], scale[1], ratio[0], ratio[1]};
}

Augmentation make_jitter(const Attributes& a) {
  return ColorJitter{a.get_float("brightness", 0), a.get_float("contrast", 0),
                     a.get_float("saturation", 0), a.get_float("hue", 0)};
}

void check_pair(const AugmentationSpec& spec, std::string_view name, const std::string& path,
                Violations& violations) {
  const std::vector<double> pair = spec.attributes.get_floats(name, {0, 1});
  if (pair.size() == 2 && pair[0] > pair[1]) {
    violations.add("FIELD_OUT_OF_RANGE", path + "." + std::string(name),
                   "its first number is larger than its second, expected [least, most]");
  }
}

// Checks the conditions that attribute rules cannot express, since they depend on the images or on
// several fields.
void check_fit(const AugmentationSpec& spec, const DatasetSchema& schema, const std::string& path,
               Violations& violations) {
  const Shape& image = schema.image;
  const int64_t side = std::max(image[1], image[2]);
  const auto refuse = [&](std::string_view name, std::string description) {
    violations.add("FIELD_OUT_OF_RANGE", path + (name.empty() ? "" : "." + std::string(name)),
                   std::move(description));
  };
  if (spec.kind == "random_crop" || spec.kind == "cutout") {
    const std::string_view name = spec.kind == "cutout" ? "size" : "padding";
    const int64_t pixels = spec.attributes.get_int(name, 1);
    if (pixels > side) {
      refuse(name, std::to_string(pixels) + " is more than the images' " + std::to_string(side) +
                       " pixels, expected 1.." + std::to_string(side));
    }
  }
  if (spec.kind == "random_resized_crop") {
    check_pair(spec, "scale", path, violations);
    check_pair(spec, "ratio", path, violations);
  }
  if (spec.kind == "color_jitter") {
    if (schema.image_dtype != DType::kU8) {
      refuse("", "is for pixels of 8 bits; the dataset's are " +
                     std::string(name_of(schema.image_dtype)));
    }
    if (spec.attributes.items().empty()) {
      refuse("", "is empty, expected brightness, contrast, saturation or hue");
    }
    for (const char* name : {"saturation", "hue"}) {
      if (image[0] != 3 && spec.attributes.find(name) != nullptr) {
        refuse(name, "is for images of 3 channels; the dataset's have " + std::to_string(image[0]));
      }
    }
  }
}

const AugmentationKind* find_kind(std::string_view field) {
  const auto it = std::ranges::find(augmentation_kinds(), field, &AugmentationKind::field);
  return it == augmentation_kinds().end() ? nullptr : &*it;
}

bool mixes(const AugmentationSpec& spec) {
  const AugmentationKind* kind = find_kind(spec.kind);
  return kind != nullptr && kind->make_mixing != nullptr;
}

/// Returns the augmentations of single images in `list`, which has been checked.
std::vector<Augmentation> list_augmentations(const std::vector<AugmentationSpec>& list) {
  std::vector<Augmentation> augmentations;
  for (const AugmentationSpec& spec : list) {
    if (!mixes(spec)) augmentations.push_back(find_kind(spec.kind)->make(spec.attributes));
  }
  return augmentations;
}

// Mixing must come after the augmentations of single images, and each kind of it at most once.
void check_order(const std::vector<AugmentationSpec>& list, Violations& violations) {
  std::set<std::string> seen;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = "recipe.augmentation[" + std::to_string(i) + "]." + list[i].kind;
    if (!mixes(list[i])) {
      if (seen.empty()) continue;
      violations.add("FIELD_CONFLICT", path,
                     "comes after " + *seen.begin() +
                         ", expected before it: images are augmented before they are mixed");
    } else if (!seen.insert(list[i].kind).second) {
      violations.add("FIELD_DUPLICATE", path, "is listed twice, expected once");
    }
  }
}

}  // namespace

const std::vector<AugmentationKind>& augmentation_kinds() {
  static const std::vector<AugmentationKind> kinds = {
      {"random_horizontal_flip",
       {chance_rule()},
       [](const Attributes& a) -> Augmentation {
         return RandomHorizontalFlip{a.get_float("p", 0.5)};
       }},
      {"random_vertical_flip",
       {chance_rule()},
       [](const Attributes& a) -> Augmentation {
         return RandomVerticalFlip{a.get_float("p", 0.5)};
       }},
      {"random_crop",
       {integer_rule("padding", true, 1, kPixelsMax)},
       [](const Attributes& a) -> Augmentation { return RandomCrop{a.get_int("padding", 0)}; }},
      {"random_resized_crop", {pair_rule("scale", 1), pair_rule("ratio", 100)}, make_resized_crop},
      {"random_rotation",
       {real_rule("degrees", true, {.max = 180, .min_excluded = true})},
       [](const Attributes& a) -> Augmentation {
         return RandomRotation{a.get_float("degrees", 0)};
       }},
      {"color_jitter",
       {factor_rule("brightness"), factor_rule("contrast"), factor_rule("saturation"),
        real_rule("hue", false, {.max = 0.5})},
       make_jitter},
      {"cutout",
       {integer_rule("size", true, 1, kPixelsMax)},
       [](const Attributes& a) -> Augmentation { return Cutout{a.get_int("size", 0)}; }},
      {.field = "mixup",
       .attributes = {alpha_rule()},
       .make_mixing = [](const Attributes& a) -> Mixing {
         return Mixup{a.get_float("alpha", Mixup().alpha)};
       }},
      {.field = "cutmix",
       .attributes = {alpha_rule()},
       .make_mixing = [](const Attributes& a) -> Mixing {
         return Cutmix{a.get_float("alpha", Cutmix().alpha)};
       }},
  };
  return kinds;
}

void check_augmentation(const std::vector<AugmentationSpec>& list, const DatasetSchema& schema,
                        Violations& violations) {
  if (list.empty()) return;
  if (schema.kind != DatasetSchema::Kind::kImage) {
    violations.add("FIELD_UNUSED", "recipe.augmentation",
                   "is for images, but the dataset has none; remove it");
    return;
  }
  if (list.size() > kListMax) {
    violations.add("FIELD_OUT_OF_RANGE", "recipe.augmentation",
                   "has " + std::to_string(list.size()) + " entries, expected at most 16");
    return;
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string entry = "recipe.augmentation[" + std::to_string(i) + "]";
    const AugmentationKind* kind = find_kind(list[i].kind);
    if (kind == nullptr) {
      std::string names;
      for (const AugmentationKind& k : augmentation_kinds()) {
        names += (names.empty() ? "" : ", ") + std::string(k.field);
      }
      violations.add("FIELD_UNSUPPORTED", entry,
                     quoted_value(list[i].kind) + " is not known, expected " + names);
      continue;
    }
    const std::string path = entry + "." + list[i].kind;
    const size_t before = violations.count();
    check_attributes(kind->attributes, list[i].attributes, path, path, violations);
    if (violations.count() == before) check_fit(list[i], schema, path, violations);
  }
  check_order(list, violations);
}

bool mixes_classes(const std::vector<AugmentationSpec>& list) {
  return std::ranges::any_of(list, mixes);
}

bool moves_images_alone(const std::vector<AugmentationSpec>& list) {
  return !mixes_classes(list) && moves_alone(list_augmentations(list));
}

void check_mixing(const std::vector<AugmentationSpec>& list, int64_t batch_size,
                  const Objective& objective, Violations& violations) {
  const auto first = std::ranges::find_if(list, mixes);
  if (first == list.end()) return;
  const std::string path =
      "recipe.augmentation[" + std::to_string(first - list.begin()) + "]." + first->kind;
  const std::string loss = "model.loss." + std::string(objective.loss->field);
  if (!objective.interface.classification()) {
    violations.add("FIELD_UNSUPPORTED", path,
                   "mixes classes, but the model does not predict any; remove it");
  } else if (!objective.loss->classes || objective.loss->samples) {
    violations.add(
        "FIELD_UNSUPPORTED", path,
        "does not work with " + loss + ", expected softmax_cross_entropy or kl_divergence");
  } else if (objective.ignored_label() >= 0) {
    violations.add("FIELD_UNSUPPORTED", path,
                   "does not work with " + loss +
                       ".ignore_index: a mixed image would count in part; remove one of them");
  }
  if (batch_size == 1) {
    violations.add("FIELD_OUT_OF_RANGE", path,
                   "mixes the images of a batch, but recipe.batch_size is 1, expected at least 2");
  }
}

Augmenter make_augmenter(const std::vector<AugmentationSpec>& list, const DatasetSchema& schema,
                         const Preprocessing& preprocessing) {
  std::vector<Augmentation> augmentations = list_augmentations(list);
  if (augmentations.empty()) return {};
  std::vector<float> mean;  // per channel, in units of the stored pixels
  for (const double m : preprocessing.image_mean) {
    mean.push_back(static_cast<float>(m / preprocessing.image_scale));
  }
  return Augmenter(std::move(augmentations), schema.image, std::move(mean));
}

Mixer make_mixer(const std::vector<AugmentationSpec>& list, const DatasetSchema& schema) {
  std::vector<Mixing> mixings;
  for (const AugmentationSpec& spec : list) {
    if (mixes(spec)) mixings.push_back(find_kind(spec.kind)->make_mixing(spec.attributes));
  }
  if (mixings.empty()) return {};
  return Mixer(std::move(mixings), schema.image, std::ssize(schema.target.classes));
}

}  // namespace trainyard
