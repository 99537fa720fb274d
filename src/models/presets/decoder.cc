// The preset decoder: the language models of Llama, SmolLM, Mistral, Qwen, Granite and OLMo. All
// consist of blocks of causal attention with rotary positions and a gated dense network, and differ
// in the parameters below. On rows of text with classes, the last token of a row that is not
// padding gives the scores of the classes, as in transformers' ...ForSequenceClassification.
#include <algorithm>
#include <cmath>
#include <set>

#include "src/models/preset.h"
#include "src/models/rotary.h"

namespace trainyard {

namespace {

constexpr double kDecoderStd = 0.02;
constexpr double kCountMax = 1024;  // of layers and of heads
constexpr double kWidthMax = 262144;
constexpr double kMultiplierMax = 1e6;

Error decoder_error(std::string reason, std::string_view parameter,
                    const std::string& description) {
  return field_error(std::move(reason), "model.decoder." + std::string(parameter), description);
}

/// The parameters with their defaults.
struct Decoder {
  explicit Decoder(const Attributes& p)
      : layers(p.get_int("n_layer", 12)),
        width(p.get_int("n_embd", 768)),
        heads(p.get_int("n_head", 12)),
        kv_heads(p.get_int("n_kv_head", heads)),
        head_dim(p.get_int("head_dim", width / heads)),
        // Three matrices of 8/3 of the width have as many numbers as two of four times the width.
        hidden(p.get_int("hidden", (8 * width / 3 + 63) / 64 * 64)),
        window(p.get_int("window", 0)),
        norm(p.get_string("norm", "rms") == "rms" ? "RMSNormalization" : "LayerNormalization"),
        activation(p.get_string("activation", "silu")),
        qk_norm(p.get_string("qk_norm", "none")),
        epsilon(p.get_float("norm_epsilon", 1e-5)),
        norm_after(p.get_string("norm_place", "before") == "after"),
        residual(p.get_float("residual_multiplier", 1)),
        attention_scale(
            p.get_float("attention_multiplier", 1 / std::sqrt(static_cast<double>(head_dim)))) {
    for (const int64_t i : p.get_ints("no_rope_layers", {})) without_rope.insert(i);
    for (const int64_t i : p.get_ints("window_layers", {})) with_window.insert(i);
    if (p.find("window_layers") != nullptr || window == 0) return;
    for (int64_t i = 0; i < layers; ++i) with_window.insert(i);
  }

  int64_t layers, width, heads, kv_heads, head_dim, hidden, window;
  std::string norm, activation, qk_norm;
  double epsilon;
  bool norm_after;
  double residual, attention_scale;
  std::set<int64_t> without_rope, with_window;
};

Status check_layer_list(const Attributes& p, std::string_view name, int64_t layers) {
  for (const int64_t i : p.get_ints(name, {})) {
    if (i < layers) continue;
    return decoder_error(
        "FIELD_OUT_OF_RANGE", name,
        std::to_string(i) + " is not a layer, expected 0.." + std::to_string(layers - 1));
  }
  return {};
}

Status check_decoder(const Attributes& p, const Decoder& d, const ModelInterface& interface) {
  const bool fits = interface.target == TargetForm::kNextToken || classifies_text(interface);
  if (interface.vocabulary == 0 || !fits) {
    return field_error("SHAPE_MISMATCH", "model.decoder",
                       "needs text whose next token is predicted, or rows of text with classes, "
                       "but one sample of the dataset is " +
                           interface.input.to_string() +
                           (interface.vocabulary > 0 ? " tokens with another target" : ""));
  }
  if (p.find("head_dim") == nullptr && d.width % d.heads != 0) {
    return decoder_error("FIELD_OUT_OF_RANGE", "n_head",
                         std::to_string(d.heads) + " heads do not divide the width n_embd " +
                             std::to_string(d.width) +
                             ", expected a divisor of it, or head_dim as well");
  }
  if (d.heads % d.kv_heads != 0) {
    return decoder_error("FIELD_OUT_OF_RANGE", "n_kv_head",
                         std::to_string(d.kv_heads) + " does not divide n_head " +
                             std::to_string(d.heads) + ", expected a divisor of it");
  }
  const int64_t rope_dim = p.get_int("rope_dim", d.head_dim);
  if (rope_dim % 2 != 0 || rope_dim > d.head_dim) {
    return decoder_error("FIELD_OUT_OF_RANGE", p.find("rope_dim") ? "rope_dim" : "head_dim",
                         std::to_string(rope_dim) +
                             " numbers of a head cannot be rotated in pairs, expected an even "
                             "number, at most head_dim " +
                             std::to_string(d.head_dim));
  }
  if (p.find("window_layers") != nullptr && d.window == 0) {
    return decoder_error("FIELD_UNUSED", "window_layers",
                         "has no effect without window; remove it or give a window");
  }
  if (const auto problem = find_scaling_problem(p, "rope_")) {
    return decoder_error(problem->reason, problem->attribute, problem->description);
  }
  const int64_t positions = p.get_int("positions_max", 0);
  if (positions > 0 && interface.input[0] > positions) {
    return decoder_error("FIELD_OUT_OF_RANGE", "positions_max",
                         "is " + std::to_string(positions) + ", but rows have " +
                             (classifies_text(interface) ? "" : "recipe.context_length ") +
                             std::to_string(interface.input[0]) +
                             " tokens; expected rows of at most that many");
  }
  if (Status s = check_layer_list(p, "no_rope_layers", d.layers); !s.ok()) return s;
  return check_layer_list(p, "window_layers", d.layers);
}

/// The attributes of rotary_embedding that the parameters rope_... name.
Attributes rotary_attributes(const Attributes& p, const Decoder& d) {
  Attributes a;
  const auto copy = [&](std::string_view parameter, const std::string& attribute) {
    if (const Attribute* value = p.find(parameter)) a.set(attribute, *value);
  };
  a.set("rotary_embedding_dim", p.get_int("rope_dim", d.head_dim));
  copy("rope_theta", "theta");
  copy("rope_scaling", "scaling");
  for (const char* name : {"factor", "low_freq_factor", "high_freq_factor", "original_positions",
                           "attention_factor", "beta_fast", "beta_slow", "truncate"}) {
    copy(std::string("rope_") + name, name);
  }
  return a;
}

class DecoderLayers {
 public:
  DecoderLayers(const Attributes& p, const Decoder& d)
      : d_(d),
        rotary_(rotary_attributes(p, d)),
        qkv_bias_(p.get_int("qkv_bias", 0)),
        out_bias_(p.get_int("out_bias", 0)),
        mlp_bias_(p.get_int("mlp_bias", 0)) {}

  std::string add(std::string name, std::string_view op, Attributes attributes = {},
                  std::vector<std::string> inputs = {}) {
    layers_.push_back(preset_layer(std::move(name), op, std::move(attributes), std::move(inputs)));
    return layers_.back().name;
  }
  std::string add_linear(const std::string& name, int64_t units, int64_t bias,
                         const std::string& input) {
    return add(name, "Linear",
               {{"units", units},
                {"bias", bias},
                {"initializer", std::string("normal")},
                {"initializer_std", kDecoderStd}},
               {input});
  }
  std::string add_norm(const std::string& name, const std::string& input) {
    return add(name, d_.norm, {{"epsilon", d_.epsilon}}, {input});
  }
  /// Appends the scores of the classes, by the last token of each row.
  void add_classifier(const std::string& x) {
    add("pool", "SequencePool", {{"mode", std::string("last")}}, {x, "input"});
    // Normalizing after the selection is equivalent to normalizing before it.
    add_norm("norm", "pool");
    add(std::string(kClassifierHead), "Linear",
        {{"bias", int64_t{0}},
         {"initializer", std::string("normal")},
         {"initializer_std", kDecoderStd}});
  }
  /// Multiplies all numbers of a layer's output; a factor of 1 needs no layer.
  std::string add_factor(const std::string& name, double factor, const std::string& input) {
    if (factor == 1) return input;
    add(name + "_factor", "Constant", {{"value", factor}});
    return add(name + "_scaled", "Mul", {}, {input, name + "_factor"});
  }

  /// Appends layer i of the decoder, which reads the layer `x`. Returns the name of its output.
  std::string add_block(int64_t i, const std::string& x) {
    const std::string h = "h" + std::to_string(i);
    const std::string attended = add_branch(
        h + "_attn_norm", x, [&](const std::string& input) { return add_attention(i, h, input); });
    const std::string sum = add(h + "_add_1", "Add", {}, {x, attended});
    const std::string dense = add_branch(
        h + "_mlp_norm", sum, [&](const std::string& input) { return add_mlp(h, input); });
    return add(h + "_add_2", "Add", {}, {sum, dense});
  }

  std::vector<LayerSpec> take() { return std::move(layers_); }

 private:
  /// Appends a branch of the residual sum with its normalization, before or after it.
  template <typename F>
  std::string add_branch(const std::string& norm, const std::string& x, const F& f) {
    const std::string y = d_.norm_after ? add_norm(norm, f(x)) : f(add_norm(norm, x));
    return add_factor(y, d_.residual, y);
  }

  /// Appends a query or key of `heads` heads, normalized and rotated as the parameters say.
  std::string add_rotated(int64_t i, const std::string& name, int64_t heads,
                          const std::string& input) {
    std::string y = add_linear(name, heads * d_.head_dim, qkv_bias_, input);
    if (d_.qk_norm == "all") {
      y = add_norm(name + "_norm", y);
    } else if (d_.qk_norm == "head") {
      add(name + "_heads", "Reshape", {{"shape", std::vector<int64_t>{-1, heads, d_.head_dim}}},
          {y});
      add_norm(name + "_norm", name + "_heads");
      y = add(name + "_rows", "Reshape", {{"shape", std::vector<int64_t>{-1, heads * d_.head_dim}}},
              {name + "_norm"});
    }
    if (d_.without_rope.contains(i)) return y;
    Attributes rotary = rotary_;
    rotary.set("num_heads", heads);
    return add(name + "_rope", "RotaryEmbedding", std::move(rotary), {y});
  }

  std::string add_attention(int64_t i, const std::string& h, const std::string& input) {
    const std::string q = add_rotated(i, h + "_q", d_.heads, input);
    const std::string k = add_rotated(i, h + "_k", d_.kv_heads, input);
    const std::string v = add_linear(h + "_v", d_.kv_heads * d_.head_dim, qkv_bias_, input);
    Attributes attention{{"q_num_heads", d_.heads},
                         {"kv_num_heads", d_.kv_heads},
                         {"is_causal", int64_t{1}},
                         {"scale", d_.attention_scale}};
    if (d_.with_window.contains(i)) attention.set("window", d_.window);
    const std::string y = add(h + "_attn", "Attention", std::move(attention), {q, k, v});
    return add_linear(h + "_o", d_.width, out_bias_, y);
  }

  std::string add_mlp(const std::string& h, const std::string& input) {
    const std::string gate = add_linear(h + "_gate", d_.hidden, mlp_bias_, input);
    const std::string up = add_linear(h + "_up", d_.hidden, mlp_bias_, input);
    if (d_.activation == "silu") {
      add(h + "_act", "Swish", {}, {gate});
    } else {
      const bool is_tanh = d_.activation == "gelu_tanh";
      add(h + "_act", "Gelu", {{"approximate", std::string(is_tanh ? "tanh" : "none")}}, {gate});
    }
    const std::string product = add(h + "_gated", "Mul", {}, {h + "_act", up});
    return add_linear(h + "_down", d_.width, mlp_bias_, product);
  }

  const Decoder& d_;
  Attributes rotary_;
  int64_t qkv_bias_, out_bias_, mlp_bias_;
  std::vector<LayerSpec> layers_;
};

Result<std::vector<LayerSpec>> expand_decoder(const Attributes& parameters,
                                              const ModelInterface& interface) {
  const Decoder d(parameters);
  if (Status s = check_decoder(parameters, d, interface); !s.ok()) return std::move(s).error();
  DecoderLayers layers(parameters, d);
  std::string x = layers.add("embed", "Embedding",
                             {{"embedding_dim", d.width}, {"initializer_std", kDecoderStd}});
  x = layers.add_factor("embed", parameters.get_float("embedding_multiplier", 1), x);
  for (int64_t i = 0; i < d.layers; ++i) x = layers.add_block(i, x);
  if (classifies_text(interface)) {
    layers.add_classifier(x);
    return layers.take();
  }
  x = layers.add_norm("norm", x);
  // Dividing what the head reads divides its scores, and a loss stays next to its head.
  x = layers.add_factor("head", 1 / parameters.get_float("logits_divisor", 1), x);
  Attributes head{{"bias", int64_t{0}}};
  if (parameters.get_int("tied_head", 0) != 0) {
    head.set("tied_to", std::string("embed"));
  } else {
    head.set("initializer", std::string("normal"));
    head.set("initializer_std", kDecoderStd);
  }
  layers.add("head", "Linear", std::move(head), {x});
  return layers.take();
}

AttributeRule positive_rule_of(std::string_view name, double max) {
  return real_rule(name, false, {.max = max, .min_excluded = true});
}

std::vector<AttributeRule> decoder_rules() {
  AttributeRule no_rope = dims_rule("no_rope_layers", false, 0, kCountMax - 1);
  AttributeRule windows = dims_rule("window_layers", false, 0, kCountMax - 1);
  no_rope.count_max = windows.count_max = static_cast<int64_t>(kCountMax);
  constexpr double kPositions = 1 << 30;
  return {integer_rule(kVocabularyParameter, false, 2, 1 << 22),
          integer_rule("n_layer", false, 1, kCountMax),
          integer_rule("n_embd", false, 1, 65536),
          integer_rule("n_head", false, 1, kCountMax),
          integer_rule("n_kv_head", false, 1, kCountMax),
          integer_rule("head_dim", false, 1, 65536),
          integer_rule("hidden", false, 1, kWidthMax),
          choice_rule("norm", {"rms", "layer"}),
          real_rule("norm_epsilon", false, {.max = 1, .min_excluded = true}),
          choice_rule("activation", {"silu", "gelu", "gelu_tanh"}),
          boolean_rule("qkv_bias"),
          boolean_rule("out_bias"),
          boolean_rule("mlp_bias"),
          choice_rule("qk_norm", {"none", "head", "all"}),
          choice_rule("norm_place", {"before", "after"}),
          boolean_rule("tied_head"),
          real_rule("rope_theta", false, {.min = 1, .max = 1e12}),
          integer_rule("rope_dim", false, 2, 512),
          choice_rule("rope_scaling", {"none", "linear", "llama3", "yarn"}),
          positive_rule_of("rope_factor", kMultiplierMax),
          positive_rule_of("rope_low_freq_factor", kMultiplierMax),
          positive_rule_of("rope_high_freq_factor", kMultiplierMax),
          integer_rule("rope_original_positions", false, 1, kPositions),
          positive_rule_of("rope_attention_factor", kMultiplierMax),
          positive_rule_of("rope_beta_fast", kMultiplierMax),
          positive_rule_of("rope_beta_slow", kMultiplierMax),
          boolean_rule("rope_truncate"),
          std::move(no_rope),
          integer_rule("window", false, 1, 1048576),
          std::move(windows),
          positive_rule_of("embedding_multiplier", kMultiplierMax),
          positive_rule_of("residual_multiplier", kMultiplierMax),
          positive_rule_of("attention_multiplier", 1000),
          positive_rule_of("logits_divisor", kMultiplierMax),
          integer_rule("positions_max", false, 1, kPositions)};
}

}  // namespace

std::vector<PresetKind> decoder_presets() {
  return {{.name = "decoder",
           .parameters = decoder_rules(),
           .expand = expand_decoder,
           .predicts_tokens = true}};
}

}  // namespace trainyard
