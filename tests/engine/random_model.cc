#include "tests/engine/random_model.h"

#include <gtest/gtest.h>

#include <vector>

#include "src/base/philox.h"
#include "src/models/model_spec.h"

namespace trainyard::testing {

ModelInfo letters_model(ModelSpec spec, int64_t context) {
  ModelInfo info;
  info.model = std::move(spec);
  info.schema.kind = DatasetSchema::Kind::kText;
  info.schema.text.tokenizer = TokenizerKind::kChar;
  for (char c = 'a'; c <= 'p'; ++c) info.schema.text.pieces.emplace_back(1, c);
  info.schema.target.kind = TargetSchema::Kind::kNextToken;
  info.schema.target.name = "next token";
  info.schema.train_rows = 4 * context;
  info.preprocessing.context_length = context;
  return info;
}

void write_random_model(const std::filesystem::path& folder, const ModelInfo& info) {
  const Result<Model> model =
      build_model(info.model, info.interface(), {.batch_size = 1, .training = false});
  ASSERT_TRUE(model.ok()) << model.error().message;
  std::vector<std::vector<float>> values;
  std::vector<TensorView> views;
  for (const TensorInfo& t : model->graph.tensors()) {
    if (t.role != Role::kParameter && t.role != Role::kState) continue;
    std::vector<float>& numbers = values.emplace_back();
    for (int64_t i = 0; i < t.type.shape.elements(); ++i) {
      const double u = math::uniform01<double>(
          math::philox_u32(7, stream_of(t.name), 0, static_cast<uint64_t>(i)));
      const bool is_scale = t.type.shape.rank() == 1 && t.name.ends_with("weight");
      numbers.push_back(static_cast<float>(is_scale ? 0.5 + u : 0.8 * (2 * u - 1)));
    }
  }
  size_t k = 0;
  for (const TensorInfo& t : model->graph.tensors()) {
    if (t.role != Role::kParameter && t.role != Role::kState) continue;
    views.push_back({t.name, t.type, std::as_bytes(std::span(values[k++]))});
  }
  const Status written = write_model(local_files(), folder, info, views);
  ASSERT_TRUE(written.ok()) << written.error().message;
}

ModelSpec small_gpt2() {
  ModelSpec spec;
  spec.preset = "gpt2";
  spec.parameters = {{"n_layer", int64_t{2}}, {"n_head", int64_t{2}}, {"n_embd", int64_t{16}}};
  return spec;
}

ModelSpec small_decoder() {
  ModelSpec spec;
  spec.preset = "decoder";
  spec.parameters = {{"n_layer", int64_t{2}},
                     {"n_head", int64_t{4}},
                     {"n_kv_head", int64_t{2}},
                     {"n_embd", int64_t{16}},
                     {"hidden", int64_t{24}},
                     {"qk_norm", std::string("head")},
                     {"window", int64_t{40}},
                     {"window_layers", std::vector<int64_t>{1}}};
  return spec;
}

}  // namespace trainyard::testing
