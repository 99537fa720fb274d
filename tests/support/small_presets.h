// tests/support/small_presets.h: every preset in a size small enough for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/schema.h"
#include "src/models/model_spec.h"

namespace trainyard::testing {

/// A preset in a small size, and the interface of data that fits it.
struct SmallPreset {
  std::string name;
  Attributes parameters;
  DatasetSchema schema;
  int64_t context_length = 0;
};

inline DatasetSchema image_schema(int64_t C, int64_t side) {
  DatasetSchema schema;
  schema.kind = DatasetSchema::Kind::kImage;
  schema.image = {C, side, side};
  schema.target.classes = {"a", "b", "c"};
  return schema;
}

inline DatasetSchema text_schema(int64_t max_length) {
  DatasetSchema schema;
  schema.kind = DatasetSchema::Kind::kText;
  schema.text.tokenizer = TokenizerKind::kWord;
  for (int i = 0; i < 31; ++i) schema.text.pieces.push_back("w" + std::to_string(i));
  schema.text.max_length = max_length;
  schema.target.classes = {"a", "b", "c", "d", "e"};
  if (max_length == 0) schema.target.kind = TargetSchema::Kind::kNextToken;
  return schema;
}

/// Returns at least one row for every preset; a missing preset fails the test.
inline std::vector<SmallPreset> small_presets() {
  const int64_t two = 2, width = 8;
  const auto text_of = [](const char* value) { return Attribute(std::string(value)); };
  std::vector<SmallPreset> all = {
      {"mlp", {{"hidden", std::vector<int64_t>{37, 11}}, {"dropout", 0.5}}, image_schema(1, 9)},
      {"autoencoder", {{"latent", int64_t{5}}}, image_schema(1, 9)},
      {"autoencoder", {{"type", text_of("dense")}, {"dropout", 0.1}}, image_schema(3, 5)},
      {"lenet5", {}, image_schema(1, 8)},
      {"lenet5", {}, image_schema(3, 17)},
      {"gpt2", {{"size", text_of("nano")}, {"n_layer", two}, {"dropout", 0.1}}, text_schema(0), 19},
      {"decoder",
       {{"n_layer", two},
        {"n_embd", int64_t{24}},
        {"n_head", int64_t{4}},
        {"n_kv_head", two},
        {"window", int64_t{5}},
        {"qk_norm", text_of("head")},
        {"tied_head", int64_t{1}}},
       text_schema(0),
       11},
      {"decoder",
       {{"vocab_size", int64_t{40}},
        {"n_layer", two},
        {"n_embd", width},
        {"n_head", two},
        {"head_dim", int64_t{6}},
        {"qkv_bias", int64_t{1}},
        {"qk_norm", text_of("all")},
        {"norm_place", text_of("after")},
        {"rope_dim", int64_t{4}},
        {"no_rope_layers", std::vector<int64_t>{0}},
        {"embedding_multiplier", 3.0},
        {"logits_divisor", 2.0}},
       text_schema(0),
       7},
      {"transformer_classifier", {{"n_embd", int64_t{24}}, {"dropout", 0.1}}, text_schema(7)},
      {"lstm_classifier",
       {{"hidden_size", int64_t{5}}, {"bidirectional", int64_t{1}}},
       text_schema(6)},
      {"lstm_classifier",
       {{"cell", text_of("gru")}, {"layers", two}, {"pooling", text_of("last")}, {"dropout", 0.2}},
       text_schema(6)},
      {"text_cnn", {{"filters", int64_t{7}}}, text_schema(9)},
      {"embedding_bag_classifier", {{"mode", text_of("sum")}}, text_schema(9)},
      {"vit_tiny", {{"patch_size", int64_t{5}}}, image_schema(3, 10)},
      {"vit_small", {{"patch_size", int64_t{7}}, {"pool", text_of("mean")}}, image_schema(1, 14)},
      {"vit_base", {{"patch_size", int64_t{8}}}, image_schema(1, 8)}};
  for (const char* name : {"vgg11", "vgg13", "vgg16", "vgg19"}) {
    all.push_back({name, {{"width", two}, {"hidden", width}}, image_schema(3, 32)});
  }
  all.push_back(
      {"vgg11", {{"width", two}, {"batch_normalization", int64_t{1}}}, image_schema(1, 33)});
  for (const char* name : {"resnet18", "resnet34", "resnet50", "resnet101", "resnet152"}) {
    all.push_back({name, {{"width", two}}, image_schema(3, 8)});
  }
  all.push_back({"resnet18", {{"width", two}, {"stem", text_of("imagenet")}}, image_schema(1, 33)});
  return all;
}

}  // namespace trainyard::testing
