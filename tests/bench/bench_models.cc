#include "tests/bench/bench_models.h"

#include <stdexcept>

#include "kernels/math/philox.h"
#include "src/job/recipe.h"

namespace trainyard::bench {
namespace {

constexpr int64_t kClasses = 10;
constexpr int64_t kWords = 20000, kRowLength = 128;

ModelInterface classes_of(Shape input) { return {input, 0, TargetForm::kClass, kClasses}; }

void set_gpt(BenchModel& m, const std::string& size, int64_t vocabulary, int64_t context) {
  m.model.preset = "gpt2";
  m.model.parameters.set("size", size);
  m.interface = {{context}, vocabulary, TargetForm::kNextToken, vocabulary};
}

/// SmolLM2-135M.
void set_smollm2(BenchModel& m, int64_t context) {
  constexpr int64_t kVocabulary = 49152;
  m.model.preset = "decoder";
  Attributes& p = m.model.parameters;
  p.set("n_layer", int64_t{30});
  p.set("n_embd", int64_t{576});
  p.set("n_head", int64_t{9});
  p.set("n_kv_head", int64_t{3});
  p.set("hidden", int64_t{1536});
  p.set("tied_head", int64_t{1});
  m.interface = {{context}, kVocabulary, TargetForm::kNextToken, kVocabulary};
}

DatasetSchema schema_of(const BenchModel& model, int64_t rows) {
  DatasetSchema schema;
  const Shape& input = model.interface.input;
  if (input.rank() == 3) {
    schema.kind = DatasetSchema::Kind::kImage;
    schema.image = input;
  } else {
    schema.columns.resize(static_cast<size_t>(input.elements()));
  }
  for (int64_t c = 0; c < model.interface.outputs; ++c) {
    schema.target.classes.push_back(std::to_string(c));
  }
  schema.train_rows = rows;
  return schema;
}

/// Leaves numbers unchanged, and scales bytes to [0, 1].
Preprocessing preprocessing_of(const DatasetSchema& schema) {
  Preprocessing p;
  if (schema.kind == DatasetSchema::Kind::kImage) {
    p.image_mean.resize(static_cast<size_t>(schema.image[0]));
    p.image_std.resize(p.image_mean.size(), 1);
    p.image_scale = 1.0 / 255;
  } else {
    p.numeric_mean.resize(schema.columns.size());
    p.numeric_std.resize(schema.columns.size(), 1);
  }
  return p;
}

}  // namespace

bool ResidentRowsOf::are_resident(const BenchModel& model) {
  constexpr int64_t kSideMax = 64;
  return model.interface.vocabulary == 0 &&
         model.interface.input.elements() <= 3 * kSideMax * kSideMax;
}

ResidentRowsOf::ResidentRowsOf(const BenchModel& model, int64_t rows, int64_t alignment)
    : schema_(schema_of(model, rows)), transform_(schema_, preprocessing_of(schema_)) {
  const auto elements = static_cast<size_t>(rows * model.interface.input.elements());
  const bool images = schema_.kind == DatasetSchema::Kind::kImage;
  (images ? pixels_.resize(elements) : numbers_.resize(elements));
  for (size_t i = 0; i < elements; ++i) {
    const uint32_t random = math::philox_u32(1, 1, 0, i);
    if (images) {
      pixels_[i] = static_cast<uint8_t>(random);
    } else {
      numbers_[i] = math::uniform01<float>(random);
    }
  }
  for (size_t n = 0; n < static_cast<size_t>(rows); ++n) {
    classes_.push_back(static_cast<int32_t>(math::philox_u32(1, 2, 0, n) %
                                            static_cast<uint64_t>(model.interface.outputs)));
  }
  plan_ = plan_resident({}, schema_, 0, {}, /*validation_batch=*/0, alignment).value();
}

Partition ResidentRowsOf::partition() const {
  Partition p;
  p.rows = schema_.train_rows;
  p.image_u8 = pixels_;
  p.numeric = numbers_;
  p.target_class = classes_;
  return p;
}

std::vector<kernels::ResidentSample> ResidentRowsOf::samples(int64_t step, int64_t count) const {
  std::vector<kernels::ResidentSample> samples;
  for (int64_t i = step * count; i < (step + 1) * count; ++i) {
    samples.push_back(resident_sample(transform_, partition(), i % schema_.train_rows));
  }
  return samples;
}

BenchModel bench_model(const std::string& name) {
  BenchModel m;
  m.optimizer.momentum = 0.9;
  if (name == "mlp" || name == "mlp_small") {
    m.model.preset = "mlp";
    m.model.parameters.set(
        "hidden", name == "mlp" ? std::vector<int64_t>{512, 512} : std::vector<int64_t>{256, 128});
    m.interface = classes_of({784});
    return m;
  }
  const size_t colon = name.find(':');
  m.model.preset = name.substr(0, colon);
  if (name == "lenet5") {
    m.interface = classes_of({1, 28, 28});
    return m;
  }
  if (name == "autoencoder") {  // the input is the target, so there is no separate target tensor
    m.interface = classes_of({3, 32, 32});
    m.interface.target = TargetForm::kInput;
    m.interface.outputs = m.interface.input.elements();
    return m;
  }
  if (name == "decoder" || name == "smollm2") {  // SmolLM2 135M, or a small one with its shape
    const int64_t layers = name == "decoder" ? 4 : 30;
    m.model.preset = "decoder";
    m.model.parameters = {{"n_layer", layers},       {"n_embd", int64_t{576}},
                          {"n_head", int64_t{9}},    {"n_kv_head", int64_t{3}},
                          {"hidden", int64_t{1536}}, {"tied_head", int64_t{1}},
                          {"rope_theta", 100000.0}};
    const int64_t vocabulary = name == "decoder" ? 8192 : 49152;
    m.interface = {{256}, vocabulary, TargetForm::kNextToken, vocabulary};
    m.optimizer.type = "adamw";
    return m;
  }
  const bool text = name == "transformer_classifier" || name == "text_cnn" ||
                    name == "lstm_classifier" || name == "embedding_bag_classifier";
  if (name == "gpt2_mini") {
    set_gpt(m, "mini", 65, 256);
  } else if (name == "smollm2") {
    set_smollm2(m, 256);
  } else if (name.starts_with("gpt2_small")) {  // "gpt2_small:1024" sets the context length
    set_gpt(m, "small", 50257, colon == name.npos ? 64 : std::stoll(name.substr(colon + 1)));
  } else if (text) {
    m.interface = {{kRowLength}, kWords, TargetForm::kClass, kClasses, /*padding=*/0};
  } else {
    const int64_t side = colon == name.npos ? 32 : std::stoll(name.substr(colon + 1));
    m.interface = classes_of({3, side, side});
    if (m.model.preset.starts_with("vit") && side < 64) {
      m.model.parameters.set("patch_size", int64_t{4});
    }
    if (!m.model.preset.starts_with("vit")) {
      if (m.model.preset.starts_with("vgg")) m.model.parameters.set("dropout", 0.0);
      return m;
    }
  }
  if (m.model.preset != "decoder") m.model.parameters.set("dropout", 0.0);
  m.optimizer = OptimizerSpec{.type = "adamw"};
  return m;
}

}  // namespace trainyard::bench
