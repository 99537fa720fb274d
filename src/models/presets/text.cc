// Models that classify rows of text.
#include <algorithm>

#include "src/models/preset.h"

namespace trainyard {

namespace {

using Layers = Result<std::vector<LayerSpec>>;

Status need_rows_of_text(std::string_view preset, const ModelInterface& interface) {
  if (interface.vocabulary > 0 && interface.target != TargetForm::kNextToken) return {};
  return field_error(
      "SHAPE_MISMATCH", "model." + std::string(preset),
      interface.vocabulary > 0
          ? "reads rows of text, but the dataset is one text without a target; use a language model"
          : "reads rows of text, but the dataset has none; ingest a column with csv.text");
}

// --- recurrent ---

// Returns the layers of one recurrent layer. If it runs in both directions, their outputs are
// concatenated.
std::vector<LayerSpec> recurrent_layer(const std::string& name, const std::string& op,
                                       int64_t hidden, bool both_ways, const std::string& input) {
  const Attributes forward = {{"hidden_size", hidden}};
  if (!both_ways) return {preset_layer(name, op, forward, {input})};
  const Attributes reverse = {{"hidden_size", hidden}, {"direction", std::string("reverse")}};
  return {
      preset_layer(name + "_forward", op, forward, {input}),
      preset_layer(name + "_reverse", op, reverse, {input, "input"}),  // begins before the padding
      preset_layer(name, "Concat", {{"axis", int64_t{2}}}, {name + "_forward", name + "_reverse"})};
}

// Returns the layers that reduce a sequence to one vector: the state after the last token, or the
// mean over the tokens. Neither includes padding, which is at the end of rows. The reverse
// direction has read a whole row after its last step, which is the row's first token.
std::vector<LayerSpec> pooled(bool last, bool both_ways, const std::string& top) {
  if (!last) return {preset_layer("pool", "SequencePool", {}, {top, "input"})};
  const Attributes mode = {{"mode", std::string("last")}};
  if (!both_ways) return {preset_layer("pool", "SequencePool", mode, {top, "input"})};
  return {
      preset_layer("pool_forward", "SequencePool", mode, {top + "_forward", "input"}),
      preset_layer("pool", "Concat", {{"axis", int64_t{1}}}, {"pool_forward", top + "_reverse.1"})};
}

Layers expand_lstm_classifier(const Attributes& parameters, const ModelInterface& interface) {
  if (Status s = need_rows_of_text("lstm_classifier", interface); !s.ok()) {
    return std::move(s).error();
  }
  const std::string op = parameters.get_string("cell", "lstm") == "lstm" ? "LSTM" : "GRU";
  const bool both_ways = parameters.get_int("bidirectional", 0) != 0;
  const bool last = parameters.get_string("pooling", "mean") == "last";
  const int64_t hidden = parameters.get_int("hidden_size", 128);
  const double dropout = parameters.get_float("dropout", 0);
  std::vector<LayerSpec> layers = {preset_layer(
      "embedding", "Embedding", {{"embedding_dim", parameters.get_int("embedding_dim", 128)}})};
  std::string top = "embedding";
  const int64_t depth = parameters.get_int("layers", 1);
  for (int64_t i = 1; i <= depth; ++i) {
    const std::string name = "rnn" + std::to_string(i);
    // With pooling `last`, the two directions of the last layer are pooled separately, not
    // concatenated.
    const bool joined = both_ways && !(last && i == depth);
    auto step = recurrent_layer(name, op, hidden, both_ways, top);
    if (both_ways && !joined) step.pop_back();
    layers.insert(layers.end(), step.begin(), step.end());
    top = name;
    if (dropout > 0 && i < depth) {
      top = "dropout" + std::to_string(i);
      layers.push_back(preset_layer(top, "Dropout", {{"ratio", dropout}}, {name}));
    }
  }
  const auto pool = pooled(last, both_ways, top);
  layers.insert(layers.end(), pool.begin(), pool.end());
  if (dropout > 0) layers.push_back(preset_layer("dropout", "Dropout", {{"ratio", dropout}}));
  layers.push_back(preset_layer("fc", "Gemm"));
  return layers;
}

// --- convolutional: Kim, "Convolutional Neural Networks for Sentence Classification" (2014) ---

constexpr int64_t kFilterWidthMax = 1024;  // of a filter

Layers expand_text_cnn(const Attributes& parameters, const ModelInterface& interface) {
  if (Status s = need_rows_of_text("text_cnn", interface); !s.ok()) return std::move(s).error();
  const std::vector<int64_t> widths = spell_out(parameters, "widths", 1, {3, 4, 5});
  const int64_t filters = parameters.get_int("filters", 100);
  const int64_t size = parameters.get_int("embedding_dim", 128);
  const int64_t length = interface.input[0];
  const int64_t widest = *std::ranges::max_element(widths);
  if (length < widest) {
    return field_error("SHAPE_MISMATCH", "model.text_cnn",
                       "takes rows of " + std::to_string(widest) +
                           " tokens (its widest filter) or more, but the dataset's have " +
                           std::to_string(length) + "; ingest it with a larger csv.max_length");
  }
  std::vector<LayerSpec> layers = {
      preset_layer("embedding", "Embedding", {{"embedding_dim", size}}),
      preset_layer("rows", "Reshape", {{"shape", std::vector<int64_t>{1, length, size}}})};
  std::vector<std::string> features;
  for (size_t i = 0; i < widths.size(); ++i) {
    const std::string n = std::to_string(i + 1);
    const int64_t width = widths[i];
    layers.push_back(preset_layer(
        "conv" + n, "Conv",
        {{"out_channels", filters}, {"kernel_shape", std::vector<int64_t>{width, size}}},
        {"rows"}));
    // The maximum over the windows that have no padding; a text shorter than a window has one. The
    // activation comes after it, where there are fewer elements.
    layers.push_back(preset_layer("windows" + n, "ImageToSequence"));
    layers.push_back(preset_layer("pool" + n, "SequencePool", {{"mode", std::string("max")}},
                                  {"windows" + n, "input"}));
    features.push_back("relu" + n);
    layers.push_back(preset_layer(features.back(), "Relu"));
  }
  if (features.size() > 1) {
    layers.push_back(preset_layer("features", "Concat", {{"axis", int64_t{1}}}, features));
  }
  const double dropout = parameters.get_float("dropout", 0.5);
  if (dropout > 0) layers.push_back(preset_layer("dropout", "Dropout", {{"ratio", dropout}}));
  layers.push_back(preset_layer("fc", "Gemm"));
  return layers;
}

// --- bag of tokens ---

// The fast text classifier of Joulin et al., "Bag of Tricks for Efficient Text Classification"
// (2016), without n-grams: the mean of the word vectors, and a linear layer.
Layers expand_embedding_bag_classifier(const Attributes& parameters,
                                       const ModelInterface& interface) {
  if (Status s = need_rows_of_text("embedding_bag_classifier", interface); !s.ok()) {
    return std::move(s).error();
  }
  std::vector<LayerSpec> layers = {
      preset_layer("embedding", "EmbeddingBag",
                   {{"embedding_dim", parameters.get_int("embedding_dim", 64)},
                    {"mode", parameters.get_string("mode", "mean")}})};
  if (const double dropout = parameters.get_float("dropout", 0); dropout > 0) {
    layers.push_back(preset_layer("dropout", "Dropout", {{"ratio", dropout}}));
  }
  layers.push_back(preset_layer("fc", "Gemm"));
  return layers;
}

AttributeRule dropout_rule() {
  return real_rule("dropout", false, {.max = 1, .max_excluded = true});
}

}  // namespace

std::vector<PresetKind> text_presets() {
  AttributeRule widths = dims_rule("widths", false, 1, kFilterWidthMax);
  widths.count_max = 16;
  const AttributeRule embedding = integer_rule("embedding_dim", false, 1, 1024);
  return {
      {.name = "lstm_classifier",
       .parameters = {choice_rule("cell", {"lstm", "gru"}), embedding,
                      integer_rule("hidden_size", false, 1, 16384),
                      integer_rule("layers", false, 1, 16), boolean_rule("bidirectional"),
                      choice_rule("pooling", {"mean", "last"}), dropout_rule()},
       .expand = expand_lstm_classifier},
      {.name = "text_cnn",
       .parameters = {embedding, integer_rule("filters", false, 1, 16384), widths, dropout_rule()},
       .expand = expand_text_cnn},
      {.name = "embedding_bag_classifier",
       .parameters = {integer_rule("embedding_dim", false, 1, 65536),
                      choice_rule("mode", {"mean", "sum"}), dropout_rule()},
       .expand = expand_embedding_bag_classifier}};
}

}  // namespace trainyard
