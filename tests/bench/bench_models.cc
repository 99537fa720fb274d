#include "tests/bench/bench_models.h"

#include <stdexcept>

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

}  // namespace

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
  const bool text = name == "transformer_classifier" || name == "text_cnn" ||
                    name == "lstm_classifier" || name == "embedding_bag_classifier";
  if (name == "gpt2_mini") {
    set_gpt(m, "mini", 65, 256);
  } else if (name.starts_with("gpt2_small")) {  // "gpt2_small:1024": its context
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
  m.model.parameters.set("dropout", 0.0);
  m.optimizer = OptimizerSpec{.type = "adamw"};
  return m;
}

}  // namespace trainyard::bench
