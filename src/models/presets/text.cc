// Models that classify rows of text.
#include "src/models/preset.h"

namespace trainyard {

namespace {

using Layers = Result<std::vector<LayerSpec>>;

LayerSpec layer(std::string name, std::string_view op, Attributes attributes = {},
                std::vector<std::string> inputs = {}) {
  return {std::move(name), std::string(op), std::move(inputs), std::move(attributes)};
}

Status need_rows_of_text(std::string_view preset, const ModelInterface& interface) {
  if (interface.vocabulary > 0 && interface.target != TargetForm::kNextToken) return {};
  return field_error(
      "SHAPE_MISMATCH", "model." + std::string(preset),
      interface.vocabulary > 0
          ? "reads rows of text, but the dataset is one text without a target; use a language model"
          : "reads rows of text, but the dataset has none; ingest a column with csv.text");
}

// The fast text classifier of Joulin et al., "Bag of Tricks for Efficient Text Classification"
// (2016), over words alone: their mean, and a linear layer.
Layers expand_embedding_bag_classifier(const Attributes& parameters,
                                       const ModelInterface& interface) {
  if (Status s = need_rows_of_text("embedding_bag_classifier", interface); !s.ok()) {
    return std::move(s).error();
  }
  std::vector<LayerSpec> layers = {
      layer("embedding", "EmbeddingBag",
            {{"embedding_dim", parameters.get_int("embedding_dim", 64)},
             {"mode", parameters.get_string("mode", "mean")}})};
  if (const double dropout = parameters.get_float("dropout", 0); dropout > 0) {
    layers.push_back(layer("dropout", "Dropout", {{"ratio", dropout}}));
  }
  layers.push_back(layer("fc", "Gemm"));
  return layers;
}

AttributeRule dropout_rule() {
  return real_rule("dropout", false, {.max = 1, .max_excluded = true});
}

}  // namespace

std::vector<PresetKind> text_presets() {
  return {{.name = "embedding_bag_classifier",
           .parameters = {integer_rule("embedding_dim", false, 1, 65536),
                          choice_rule("mode", {"mean", "sum"}), dropout_rule()},
           .expand = expand_embedding_bag_classifier}};
}

}  // namespace trainyard
