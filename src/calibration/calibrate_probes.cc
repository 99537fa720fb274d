#include "src/calibration/calibrate_probes.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

namespace trainyard {
namespace {

ModelSpec preset_model(const std::string& name, Attributes parameters) {
  ModelSpec spec;
  spec.preset = name;
  spec.parameters = std::move(parameters);
  return spec;
}

Recipe probe_recipe(int64_t batch, const std::string& optimizer, double momentum = 0) {
  Recipe r;
  r.steps = 1;
  r.batch_size = batch;
  r.optimizer.type = optimizer;
  r.optimizer.learning_rate = 1e-4;
  r.optimizer.momentum = momentum;
  return r;
}

Attribute word(const char* value) { return std::string(value); }
Attribute sizes(std::vector<int64_t> values) { return values; }

ModelInterface classes_of(Shape input, int64_t classes = 10) {
  return {std::move(input), 0, TargetForm::kClass, classes};
}
ModelInterface tokens_of(int64_t length, int64_t vocabulary) {
  return {{length}, vocabulary, TargetForm::kNextToken, vocabulary};
}
ModelInterface text_of(int64_t length, int64_t words) {
  return {{length}, words, TargetForm::kClass, 4, 0};
}

/// Returns the distinct convolutions of residual networks, chained.
ModelSpec convolutions() {
  ModelSpec spec;
  const auto add = [&](const char* op, Attributes attributes = {}) {
    LayerSpec layer;
    layer.op = op;
    layer.attributes = std::move(attributes);
    spec.layers.push_back(std::move(layer));
  };
  struct Window {
    int64_t channels, side, stride;
  };
  for (const Window w : {Window{64, 3, 1},
                         {64, 3, 1},
                         {256, 1, 1},
                         {64, 1, 1},
                         {128, 3, 2},
                         {128, 3, 1},
                         {512, 1, 1},
                         {128, 1, 1},
                         {256, 3, 2},
                         {256, 3, 1},
                         {1024, 1, 1},
                         {256, 1, 1},
                         {512, 3, 2},
                         {512, 3, 1},
                         {2048, 1, 1}}) {
    add("Conv", {{"out_channels", w.channels},
                 {"kernel_shape", sizes({w.side, w.side})},
                 {"strides", sizes({w.stride, w.stride})},
                 {"pads", sizes(std::vector<int64_t>(4, w.side / 2))},
                 {"bias", int64_t{0}}});
    add("BatchNormalization");
    add("Relu");
  }
  add("GlobalAveragePool");
  add("Gemm");
  return spec;
}

const ModelInterface& digits() {
  static const ModelInterface is = classes_of({1, 28, 28});
  return is;
}
ModelInterface photos(int64_t side) { return classes_of({3, side, side}); }
ModelSpec mlp(std::vector<int64_t> hidden, const char* activation = "relu", double dropout = 0) {
  return preset_model("mlp", {{"hidden", sizes(std::move(hidden))},
                              {"activation", word(activation)},
                              {"dropout", dropout}});
}
ModelSpec gpt(int64_t layers, int64_t width, int64_t heads) {
  return preset_model(
      "gpt2", {{"n_layer", layers}, {"n_embd", width}, {"n_head", heads}, {"dropout", 0.0}});
}

/// Returns networks that together contain all ops of the presets.
std::vector<Probe> every_op() {
  Recipe clipped = probe_recipe(64, "adamw");
  clipped.clip_norm = 1;
  clipped.accumulate_steps = 2;
  clipped.ema_decay = 0.9;
  return {
      {mlp({512, 256, 64}), classes_of({784}), probe_recipe(64, "sgd", 0.9), true},
      {preset_model("lenet5", {}), digits(), probe_recipe(32, "sgd", 0.9), true},
      {preset_model("resnet18", {{"width", int64_t{16}}}), photos(32), probe_recipe(8, "sgd", 0.9),
       true},
      {gpt(2, 96, 4), tokens_of(64, 65), probe_recipe(4, "adamw"), true},
      {preset_model("transformer_classifier", {{"n_embd", int64_t{64}}}), text_of(48, 2000),
       probe_recipe(8, "adam"), true},
      {preset_model("lstm_classifier", {{"hidden_size", int64_t{64}}}), text_of(32, 2000),
       probe_recipe(16, "adamw"), true},
      {preset_model("lstm_classifier", {{"hidden_size", int64_t{48}}, {"cell", word("gru")}}),
       text_of(32, 2000), probe_recipe(16, "adamw"), true},
      {preset_model("text_cnn", {{"filters", int64_t{32}}}), text_of(64, 2000),
       probe_recipe(16, "adamw"), true},
      {preset_model("embedding_bag_classifier", {}), text_of(64, 2000), probe_recipe(32, "adamw"),
       true},
      {preset_model("vit_tiny", {{"patch_size", int64_t{8}}}), photos(32), probe_recipe(2, "adamw"),
       true},
      {preset_model("autoencoder", {}), digits(), probe_recipe(16, "adam"), true},
      {mlp({96, 96}, "gelu", 0.1), classes_of({64}), clipped, true},
      {mlp({128, 128}, "tanh"),
       {{37}, 0, TargetForm::kNumeric, 1},
       probe_recipe(256, "rmsprop"),
       true},
  };
}

/// Returns networks with the sizes of typical CPU jobs: few and many rows, small layers that stay
/// in a cache and large ones that do not.
std::vector<Probe> sizes_of_cpu_jobs() {
  return {
      // Small networks predict larger ones with other batch sizes poorly, so these are measured,
      // too.
      {mlp({2048, 1024}), classes_of({784}), probe_recipe(128, "sgd", 0.9), true},
      {convolutions(), photos(32), probe_recipe(4, "sgd", 0.9), true},
      {mlp({4096, 2048}), classes_of({784}), probe_recipe(8, "sgd", 0.9), true},
      {preset_model("lenet5", {}), digits(), probe_recipe(256, "sgd", 0.9), true},
      {gpt(1, 384, 6), tokens_of(256, 65), probe_recipe(2, "adamw")},
      {mlp({512, 512}), classes_of({784}), probe_recipe(1024, "sgd", 0.9)},
      {mlp({32, 1024, 32}), classes_of({20}), probe_recipe(16, "sgd")},
      {mlp({512, 512}), classes_of({784}), probe_recipe(16, "adamw")},
      {preset_model("lstm_classifier", {}), text_of(128, 20000), probe_recipe(16, "adamw")},
      {preset_model("lstm_classifier", {}), text_of(96, 2000), probe_recipe(64, "adamw")},
      {preset_model("embedding_bag_classifier", {}), text_of(128, 20000),
       probe_recipe(16, "adamw")},
      {preset_model("embedding_bag_classifier", {}), text_of(64, 20000),
       probe_recipe(256, "adamw")},
      {preset_model("text_cnn", {}), text_of(128, 20000), probe_recipe(16, "adamw")},
      {preset_model("transformer_classifier", {}), text_of(128, 20000), probe_recipe(8, "adamw")},
      {convolutions(), photos(64), probe_recipe(4, "sgd", 0.9)},
      {gpt(1, 192, 3), tokens_of(64, 4096), probe_recipe(8, "adamw")},
      {mlp({256, 128}), classes_of({784}), probe_recipe(512, "lion")},
      {mlp({128, 128}, "sigmoid"), classes_of({100}), probe_recipe(64, "adafactor")},
      {mlp({128, 128}), classes_of({100}), probe_recipe(64, "muon")},
  };
}

/// Returns networks that fill a GPU: a small layer takes as long as its launch and predicts nothing
/// about a large one. The first networks contain most of a large job's kinds of work; each needs at
/// most 4 GiB.
std::vector<Probe> sizes_of_gpu_jobs() {
  return {
      {preset_model("resnet50", {}), photos(224), probe_recipe(32, "sgd", 0.9), true},
      {gpt(1, 768, 12), tokens_of(1024, 50257), probe_recipe(8, "adamw"), true},
      {preset_model("vgg11", {{"dropout", 0.0}}), photos(224), probe_recipe(16, "sgd", 0.9), true},
      {preset_model("vit_base", {{"dropout", 0.0}}), photos(224), probe_recipe(16, "adamw"), true},
      {preset_model("resnet18", {}), photos(32), probe_recipe(256, "sgd", 0.9), true},
      {mlp({512, 512}), classes_of({784}), probe_recipe(128, "sgd", 0.9), true},
      {preset_model("lenet5", {}), digits(), probe_recipe(512, "sgd", 0.9), true},
      {mlp({4096, 4096}), classes_of({4096}), probe_recipe(4096, "sgd", 0.9), true},
      {preset_model("transformer_classifier", {}), text_of(128, 20000), probe_recipe(64, "adamw")},
      {gpt(1, 384, 6), tokens_of(256, 65), probe_recipe(32, "adamw")},
      {preset_model("lstm_classifier", {}), text_of(128, 20000), probe_recipe(64, "adamw")},
      {preset_model("text_cnn", {}), text_of(128, 20000), probe_recipe(64, "adamw")},
      {preset_model("embedding_bag_classifier", {}), text_of(128, 20000),
       probe_recipe(256, "adamw")},
      {preset_model("resnet34", {}), photos(224), probe_recipe(8, "sgd", 0.9)},
      {gpt(1, 1600, 25), tokens_of(1024, 4096), probe_recipe(4, "adamw")},
      {mlp({2048, 1024}), classes_of({784}), probe_recipe(128, "sgd", 0.9)},
      {mlp({512, 512}), classes_of({784}), probe_recipe(8192, "adamw")},
      {preset_model("resnet18", {}), photos(32), probe_recipe(32, "sgd", 0.9)},
      {preset_model("lenet5", {}), digits(), probe_recipe(64, "adamw")},
  };
}

}  // namespace

std::vector<Probe> calibration_probes(Processor processor) {
  std::vector<Probe> all = every_op();
  std::vector<Probe> more =
      processor == Processor::kGpu ? sizes_of_gpu_jobs() : sizes_of_cpu_jobs();
  std::ranges::move(more, std::back_inserter(all));
  return all;
}

}  // namespace trainyard
