#include "src/calibration/device_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "src/base/text.h"
#include "src/calibration/drawn_values.h"
#include "src/models/model_spec.h"
#include "src/planning/programs.h"
#include "src/train/session.h"

namespace trainyard {
namespace {

constexpr uint64_t kSeed = 1;
constexpr int64_t kSteps = 6;
constexpr int64_t kBatch = 4;
constexpr int kSkipsMax = 16;  // from the first loss scale down to 1
// Tolerances for sums in another order over six steps. Between the reference loops and the cpu
// backend the differences are 3e-7 (loss) and 2e-5 (weights). A wrong kernel changes the first
// digits.
constexpr double kLossMax = 1e-4, kWeightsMax = 1e-3;
// Looser tolerances for ReLU and maxima: a value that is zero except for rounding may be on either
// side of the kink, which adds or removes a gradient. Differences of 3e-3 were observed.
constexpr double kLossMaxKinked = 1e-2, kWeightsMaxKinked = 1e-1;
// In 16 bits, roundings (to 8 bits with bf16, to 11 with fp16) differ between devices, and six
// steps amplify them. These limits only check that the network learns; the gradients reveal faults.
constexpr double kLossMaxHalf = 1e-1, kWeightsMaxHalf = 5e-1;
// Tolerances for the gradients of a first step, per tensor: this share of the tensor's norm, plus a
// 16th of that share of the norm of all gradients, for tensors whose gradient is zero except for
// rounding. Between the reference loops and the cpu backend the differences are 7e-6 in F32, and
// 3e-3 if all values are rounded to bf16 in the same places.
constexpr double kGradientMax = 1e-3, kGradientMaxKinked = 1e-2, kGradientMaxHalf = 1.0 / 64;
constexpr double kOfAllGradients = 1.0 / 16;
// Devices round to 16 bits in different places. The effect of rounding on a tensor's gradient is
// known from the judge: its 16-bit gradient is compared with its F32 gradient. The effect can be as
// large as the gradient itself, if only four rows are normalized. Two devices may differ by half of
// it.
constexpr double kOfRounding = 0.5;

bool is_half(Precision precision) {
  return precision == Precision::kBf16 || precision == Precision::kFp16;
}

struct Network {
  std::string name;
  ModelSpec model;
  ModelInterface interface;
  Recipe recipe;
  bool kinked = false;  // it has a ReLU or a maximum, whose gradient is discontinuous
};

ModelSpec preset(const std::string& name, Attributes parameters) {
  ModelSpec spec;
  spec.preset = name;
  spec.parameters = std::move(parameters);
  return spec;
}

Recipe recipe(const std::string& optimizer, double learning_rate) {
  Recipe r;
  r.steps = kSteps;
  r.batch_size = kBatch;
  r.seed = kSeed;
  r.optimizer.type = optimizer;
  r.optimizer.learning_rate = learning_rate;
  return r;
}

/// Returns the networks that a device trains; some also in 16 bits, on a device without bfloat16 in
/// fp16.
std::vector<Network> networks(bool has_bf16) {
  const auto word = [](const char* value) { return Attribute(std::string(value)); };
  const ModelInterface digits{{1, 28, 28}, 0, TargetForm::kClass, 10};
  const ModelInterface photos{{3, 16, 16}, 0, TargetForm::kClass, 10};
  const ModelInterface table{{37}, 0, TargetForm::kNumeric, 1};
  const ModelInterface stream{{48}, 65, TargetForm::kNextToken, 65};
  const ModelInterface rows{{20}, 50, TargetForm::kClass, 4, 0};
  Recipe momentum = recipe("sgd", 0.01);
  momentum.optimizer.momentum = 0.9;
  Recipe adamw = recipe("adamw", 1e-3);
  Recipe clipped = adamw;
  clipped.clip_norm = 1;
  clipped.accumulate_steps = 2;
  std::vector<Network> all = {
      {"mlp", preset("mlp", {{"hidden", std::vector<int64_t>{64, 33}}, {"dropout", 0.1}}), table,
       adamw, true},
      {"lenet5", preset("lenet5", {}), digits, momentum, true},
      {"resnet18", preset("resnet18", {{"width", int64_t{4}}}), photos, momentum, true},
      {"gpt2", preset("gpt2", {{"size", word("nano")}, {"n_layer", int64_t{2}}, {"dropout", 0.1}}),
       stream, clipped},
      {"transformer_classifier", preset("transformer_classifier", {{"n_embd", int64_t{24}}}), rows,
       adamw},
      {"lstm_classifier", preset("lstm_classifier", {{"hidden_size", int64_t{24}}}), rows, adamw},
      {"text_cnn", preset("text_cnn", {{"filters", int64_t{8}}}), rows, adamw, true},
      {"embedding_bag_classifier", preset("embedding_bag_classifier", {}), rows, adamw},
  };
  for (const char* name : {"mlp", "resnet18", "gpt2"}) {
    Network narrow = *std::ranges::find(all, name, &Network::name);
    narrow.recipe.precision = has_bf16 ? Precision::kBf16 : Precision::kFp16;
    narrow.name += " " + std::string(name_of(narrow.recipe.precision));
    all.push_back(std::move(narrow));
  }
  return all;
}

struct Run {
  std::vector<float> losses;
  Snapshot initial, weights;
};

/// Trains `network` on `backend`. Compiles the programs for each run, since a session consumes
/// them.
Result<Run> train_here(const Network& network, Backend& backend, int64_t steps = kSteps) {
  ASSIGN_OR_RETURN(RunPrograms programs, compile_step(network.model, network.recipe,
                                                      network.interface, {}, backend.traits()));
  if (Status s = check_kernels(programs, backend); !s.ok()) return std::move(s).error();
  const Graph& graph = programs.train.program.graph;
  const int64_t parts = network.recipe.accumulate_steps;
  const ModelInterface& data = network.interface;
  const auto input = draw_values(graph.tensor(programs.train.input), parts, data.vocabulary, 0);
  const auto target = draw_values(graph.tensor(programs.train.target), parts, data.outputs, 1);
  Session session(std::move(programs), backend, parts);
  session.initialize(kSeed);
  Run run;
  run.initial = session.snapshot();
  const auto rate = static_cast<float>(network.recipe.optimizer.learning_rate);
  for (int64_t step = 0; step < steps; ++step) {
    const Session::StepInputs values{input, target, step, rate};
    Session::StepResult result = session.run_step(values);
    // fp16: a step whose gradients overflow changes nothing but the loss scale, which it halves.
    for (int skips = 0; result.skipped && skips < kSkipsMax; ++skips) {
      result = session.run_step(values);
    }
    run.losses.push_back(result.loss);
  }
  run.weights = session.snapshot();
  return run;
}

std::string scientific(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0e", value);
  return text;
}

/// Returns the norm of a - b, or of a if b is empty.
double norm_of(std::span<const std::byte> a, std::span<const std::byte> b) {
  double sum = 0;
  for (size_t i = 0; i + sizeof(float) <= a.size(); i += sizeof(float)) {
    float x = 0, y = 0;
    std::memcpy(&x, a.data() + i, sizeof x);
    if (!b.empty()) std::memcpy(&y, b.data() + i, sizeof y);
    sum += (static_cast<double>(x) - y) * (static_cast<double>(x) - y);
  }
  return std::sqrt(sum);
}

/// The change of one tensor by one plain SGD step with a learning rate of 1: the gradient of a
/// weight, or the update of running statistics.
struct Gradient {
  std::string tensor;
  std::vector<float> values;
};
using Gradients = std::vector<Gradient>;
Result<Gradients> first_gradients(Network network, Precision precision, Backend& backend) {
  Recipe plain = recipe("sgd", 1);  // a rate of 1, so large that w - g rounds little off g
  plain.precision = precision;
  network.recipe = plain;
  ASSIGN_OR_RETURN(const Run run, train_here(network, backend, 1));
  Gradients gradients;
  for (size_t i = 0; i < run.weights.weights.size(); ++i) {
    const std::span<const std::byte> before = run.initial.weights[i].bytes,
                                     after = run.weights.weights[i].bytes;
    const size_t count = before.size() / sizeof(float);
    std::vector<float> g(count), w(count);
    std::memcpy(g.data(), before.data(), count * sizeof(float));
    std::memcpy(w.data(), after.data(), count * sizeof(float));
    for (size_t k = 0; k < count; ++k) g[k] -= w[k];
    gradients.push_back({run.weights.weights[i].name, std::move(g)});
  }
  return gradients;
}

/// Compares the gradients of `device` with those of `judge`, and writes a failure into `row`.
Status check_gradients(const Network& network, Backend& device, Backend& judge,
                       DeviceCheckRow& row) {
  const Precision precision = network.recipe.precision;
  const bool half = is_half(precision);
  ASSIGN_OR_RETURN(const Gradients got, first_gradients(network, precision, device));
  ASSIGN_OR_RETURN(const Gradients expected, first_gradients(network, precision, judge));
  ASSIGN_OR_RETURN(const Gradients exact, half ? first_gradients(network, Precision::kFp32, judge)
                                               : Result<Gradients>(expected));
  const auto norm = [](std::span<const float> a) { return norm_of(std::as_bytes(a), {}); };
  const auto distance = [](std::span<const float> a, std::span<const float> b) {
    return norm_of(std::as_bytes(a), std::as_bytes(b));
  };
  double all = 0;
  for (const Gradient& g : expected) all = std::hypot(all, norm(g.values));
  const double share = half ? kGradientMaxHalf : network.kinked ? kGradientMaxKinked : kGradientMax;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = distance(got[i].values, expected[i].values),
                 size = norm(expected[i].values);
    const double right = share * (size + kOfAllGradients * all) +
                         kOfRounding * distance(expected[i].values, exact[i].values);
    const double of_right = std::isfinite(difference) ? difference / right : INFINITY;
    if (of_right <= row.gradients) continue;
    row.gradients = of_right;
    if (of_right <= 1) continue;
    row.failure = "its gradient of " + expected[i].tensor + " differs from the CPU's by " +
                  scientific(difference) + ", of a norm of " + scientific(size) + "; at most " +
                  scientific(right) + " is allowed";
  }
  return {};
}

DeviceCheckRow compare(const Network& network, const Run& expected, const Run& got,
                       const Run& again) {
  DeviceCheckRow row{network.name};
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    const double e = expected.losses[step],
                 difference = std::abs(got.losses[step] - e) / std::abs(e);
    row.loss = std::isfinite(difference) ? std::max(row.loss, difference) : INFINITY;
  }
  double difference = 0, norm = 0;
  for (size_t i = 0; i < expected.weights.storage.size(); ++i) {
    difference =
        std::hypot(difference, norm_of(got.weights.storage[i], expected.weights.storage[i]));
    norm = std::hypot(norm, norm_of(expected.weights.storage[i], expected.initial.storage[i]));
  }
  row.weights = std::isfinite(difference) ? difference / norm : INFINITY;
  row.repeats = got.losses == again.losses && got.weights.storage == again.weights.storage;

  const bool half = is_half(network.recipe.precision);
  const double loss_max = half ? kLossMaxHalf : network.kinked ? kLossMaxKinked : kLossMax;
  const double weights_max = half             ? kWeightsMaxHalf
                             : network.kinked ? kWeightsMaxKinked
                                              : kWeightsMax;
  if (!(row.loss <= loss_max)) {
    row.failure = "its loss differs from the CPU's by " + scientific(row.loss) +
                  " (relative); at most " + scientific(loss_max) + " is allowed";
  } else if (!(row.weights <= weights_max)) {
    row.failure = "its weights differ from the CPU's by " + scientific(row.weights) +
                  " (relative); at most " + scientific(weights_max) + " is allowed";
  } else if (!row.repeats) {
    row.failure = "a second run gave different bits";
  }
  return row;
}

}  // namespace

std::string DeviceCheck::failure() const {
  for (const DeviceCheckRow& row : rows) {
    if (!row.failure.empty()) return row.network + ": " + row.failure;
  }
  return "";
}

DeviceCheck check_device(Backend& device, Backend& judge,
                         const std::function<bool(const DeviceCheckRow&)>& on_row) {
  DeviceCheck check;
  for (const Network& network : networks(device.has_bf16())) {
    const Result<Run> expected = train_here(network, judge);
    const Result<Run> got = train_here(network, device);
    if (!expected.ok() || !got.ok()) {
      DeviceCheckRow row{network.name};
      row.failure = (expected.ok() ? got : expected).error().message;
      check.rows.push_back(std::move(row));
    } else {
      DeviceCheckRow row = compare(network, *expected, *got, train_here(network, device).value());
      if (row.failure.empty()) {
        if (Status s = check_gradients(network, device, judge, row); !s.ok()) {
          row.failure = std::move(s).error().message;
        }
      }
      check.rows.push_back(std::move(row));
    }
    if (on_row && !on_row(check.rows.back())) break;
  }
  return check;
}

}  // namespace trainyard
