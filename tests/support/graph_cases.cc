#include "tests/support/graph_cases.h"

#include <cmath>
#include <limits>

#include "kernels/shard.h"
#include "src/base/philox.h"
#include "src/graph/op.h"
#include "src/ops/shards.h"
#include "src/tensor/shape.h"

namespace trainyard::testing {
namespace {

constexpr uint64_t kSeed = 20240229;

std::vector<double> draw(const std::string& name, int64_t count) {
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const double u =
        math::uniform01<double>(math::philox_u32(kSeed, stream_of(name), 0, i)) * 2 - 1;
    values[i] = (u < 0 ? -0.1 : 0.1) + 0.9 * u;
  }
  return values;
}

CaseGraph activation(DType dtype, const std::string& op, Attributes attributes, Shape shape) {
  CaseBuilder b(dtype);
  return b.finish(b.one("y", op, std::move(attributes), {b.parameter("x", std::move(shape))}));
}

CaseGraph gemm(DType dtype, int64_t N, int64_t F, int64_t K, bool bias) {
  CaseBuilder b(dtype);
  std::vector<TensorId> inputs = {b.parameter("x", {N, F}), b.parameter("w", {K, F})};
  if (bias) inputs.push_back(b.parameter("b", {K}));
  return b.finish(b.one("y", "Gemm", {{"transB", int64_t{1}}}, inputs));
}

// x is data, so the gradient node omits dx.
CaseGraph gemm_first_layer(DType dtype) {
  CaseBuilder b(dtype);
  return b.finish(b.one("y", "Gemm", {{"transB", int64_t{1}}},
                        {b.input("x", {4, 5}), b.parameter("w", {3, 5}), b.parameter("b", {3})}));
}

CaseGraph add(DType dtype) {
  CaseBuilder b(dtype);
  return b.finish(b.one("y", "Add", {}, {b.parameter("a", {3, 11}), b.parameter("b", {3, 11})}));
}

// One tensor is read four times, twice by one node, so the gradients of all readers are summed.
CaseGraph fan_out(DType dtype) {
  CaseBuilder b(dtype);
  const TensorId x = b.one("x", "Tanh", {}, {b.parameter("p", {2, 7})});
  const TensorId twice = b.one("twice", "Add", {}, {x, x});
  const TensorId squashed = b.one("squashed", "Sigmoid", {}, {x});
  const TensorId both = b.one("both", "Add", {}, {twice, squashed});
  return b.finish(b.one("y", "Add", {}, {both, x}));
}

// Two layers share a weight, so its two gradients are summed.
CaseGraph shared_weight(DType dtype) {
  CaseBuilder b(dtype);
  const TensorId w = b.parameter("w", {4, 4});
  const TensorId h = b.one("h", "Gemm", {{"transB", int64_t{1}}}, {b.input("x", {3, 4}), w});
  const TensorId a = b.one("a", "Tanh", {}, {h});
  return b.finish(b.one("y", "Gemm", {{"transB", int64_t{1}}}, {a, w}));
}

// The loss has a different gradient for each element of y, so a wrong order of elements is noticed.
CaseGraph flatten(DType dtype, const Shape& shape) {
  CaseBuilder b(dtype);
  const TensorId x = b.image("x", shape);
  return b.finish(b.one("y", "Flatten", {}, {x}));
}

CaseGraph reshape(DType dtype) {
  CaseBuilder b(dtype);
  return b.finish(b.one("y", "Reshape", {{"shape", std::vector<int64_t>{2, -1, 5}}},
                        {b.parameter("x", {4, 15})}));
}

CaseGraph dropout(DType dtype, double ratio, Shape shape, int64_t rank = 0) {
  CaseBuilder b(dtype);
  const TensorId x = b.parameter("x", std::move(shape));
  return b.finish(b.one("y", "Dropout",
                        {{"ratio", ratio},
                         {"seed", static_cast<int64_t>(0x9000000000000001u)},
                         {"stream", int64_t{stream_of("y")}},
                         {"rank", rank}},
                        {x, b.step(3)}));
}

// x has columns 24 to 35 of a tensor with 44 columns.
CaseGraph dropout_of_units(DType dtype) {
  CaseBuilder b(dtype);
  const TensorId x = b.parameter("x", {7, 12});
  return b.finish(b.one("y", "Dropout",
                        {{"ratio", 0.4},
                         {"seed", int64_t{9}},
                         {"stream", int64_t{stream_of("y")}},
                         {"units", int64_t{44}},
                         {"first_unit", int64_t{24}}},
                        {x, b.step(3)}));
}

CaseGraph class_loss(DType dtype, const std::string& op, const Attributes& attributes, int64_t N,
                     int64_t K) {
  CaseBuilder b(dtype);
  const TensorId z = b.parameter("logits", {N, K});
  return b.finish_with_loss(b.node("loss", op, attributes, {z, b.labels("labels", N, K)}, 2)[0]);
}

// The targets are class shares, which a softmax makes from any numbers.
CaseGraph share_loss(DType dtype, const std::string& op, const Attributes& attributes, int64_t N,
                     int64_t K) {
  CaseBuilder b(dtype);
  const TensorId z = b.parameter("logits", {N, K});
  const TensorId t = b.one("shares", "Softmax", {}, {b.input("any", {N, K})});
  return b.finish_with_loss(b.node("loss", op, attributes, {z, t}, 2)[0]);
}

CaseGraph number_loss(DType dtype, const std::string& op, const Attributes& attributes,
                      const Shape& shape) {
  CaseBuilder b(dtype);
  const TensorId y = b.parameter("prediction", shape);
  return b.finish_with_loss(b.one("loss", op, attributes, {y, b.input("wanted", shape)}));
}

CaseGraph binary_loss(DType dtype, int64_t N) {
  CaseBuilder b(dtype);
  const TensorId y = b.parameter("prediction", {N, 1});
  return b.finish_with_loss(b.one("loss", "BinaryCrossEntropyLoss", {{"pos_weight", 2.5}},
                                  {y, b.labels("labels", N, 2)}));
}

void append_losses(std::vector<GraphCase>& cases) {
  const auto of_classes = [&](const std::string& op, const char* name, const Attributes& attributes,
                              int64_t N, int64_t K) {
    cases.push_back(
        {op + "/" + name, [=](DType t) { return class_loss(t, op, attributes, N, K); }});
  };
  const std::string xent = "SoftmaxCrossEntropyLoss", divergence = "KullbackLeiblerDivergence";
  std::vector<double> weights(11);
  for (size_t k = 0; k < weights.size(); ++k) weights[k] = 0.25 * static_cast<double>(k);
  of_classes(xent, "two", {}, 1, 2);
  of_classes(xent, "odd", {}, 9, 11);
  of_classes(xent, "smooth", {{"label_smoothing", 0.25}}, 9, 11);
  of_classes(xent, "weights", {{"class_weights", weights}}, 9, 11);
  of_classes(xent, "ignored", {{"ignore_index", int64_t{7}}}, 9, 11);
  of_classes(xent, "none_counts", {{"ignore_index", int64_t{1}}}, 1, 2);
  of_classes(xent, "all",
             {{"label_smoothing", 0.125}, {"class_weights", weights}, {"ignore_index", int64_t{3}}},
             13, 11);
  of_classes(divergence, "two", {{"label_smoothing", 0.5}}, 1, 2);
  of_classes(divergence, "odd", {{"label_smoothing", 0.25}, {"ignore_index", int64_t{7}}}, 9, 11);
  for (const auto& [name, attributes] :
       std::vector<std::pair<std::string, Attributes>>{{"uncounted", {}},
                                                       {"uncounted_all",
                                                        {{"label_smoothing", 0.125},
                                                         {"class_weights", weights},
                                                         {"ignore_index", int64_t{3}}}}}) {
    cases.push_back({xent + "/" + name, [=](DType t) {
                       return with_uncounted(class_loss(t, xent, attributes, 13, 11));
                     }});
  }
  cases.push_back({xent + "/none_of_one",
                   [=](DType t) { return with_uncounted(class_loss(t, xent, {}, 1, 3)); }});
  const auto of_shares = [&](const std::string& op, const char* name, const Attributes& attributes,
                             int64_t N, int64_t K) {
    cases.push_back(
        {op + "/shares_" + name, [=](DType t) { return share_loss(t, op, attributes, N, K); }});
  };
  of_shares(xent, "two", {}, 1, 2);
  of_shares(xent, "odd", {}, 9, 11);
  of_shares(xent, "all", {{"label_smoothing", 0.125}, {"class_weights", weights}}, 13, 11);
  of_shares(divergence, "odd", {}, 9, 11);
  of_shares(divergence, "smooth", {{"label_smoothing", 0.25}}, 9, 11);
  const auto of_numbers = [&](const std::string& op, const Attributes& attributes) {
    for (const Shape& shape : {Shape{1, 1}, Shape{13, 3}, Shape{3, 2, 5, 7}}) {
      cases.push_back({op + "/" + shape.to_string(),
                       [=](DType t) { return number_loss(t, op, attributes, shape); }});
    }
  };
  of_numbers("MeanSquaredError", {});
  of_numbers("MeanAbsoluteError", {});
  of_numbers("HuberLoss", {{"delta", 0.5}});
  of_numbers("BinaryCrossEntropyLoss", {});
  for (const int64_t N : {1, 17}) {
    cases.push_back({"BinaryCrossEntropyLoss/classes" + std::to_string(N),
                     [N](DType t) { return binary_loss(t, N); }});
  }
}

// Appends losses with more rows than a block has threads, rows longer than one pass of a warp or a
// block, and more elements than a block handles.
void append_large_losses(std::vector<GraphCase>& cases) {
  const auto row = [&](std::string name, std::function<CaseGraph(DType)> build) {
    cases.push_back({std::move(name), std::move(build), /*is_large=*/true});
  };
  const Attributes smooth{{"label_smoothing", 0.25}};
  const std::string xent = "SoftmaxCrossEntropyLoss";
  row(xent + "/rows", [=](DType t) { return class_loss(t, xent, {}, 1100, 3); });
  row(xent + "/warps", [=](DType t) { return class_loss(t, xent, smooth, 9, 132); });
  row(xent + "/few_long", [=](DType t) { return class_loss(t, xent, smooth, 3, 301); });
  row(xent + "/longer", [=](DType t) { return class_loss(t, xent, {}, 2, 1028); });
  row("KullbackLeiblerDivergence/rows",
      [=](DType t) { return class_loss(t, "KullbackLeiblerDivergence", smooth, 1100, 3); });
  row("HuberLoss/many", [](DType t) { return number_loss(t, "HuberLoss", {}, {700, 3}); });
  row("BinaryCrossEntropyLoss/many", [](DType t) { return binary_loss(t, 1000); });
  row("Dropout/many", [](DType t) { return dropout(t, 0.3, {37, 29}); });
  row("Dropout/fours", [](DType t) { return dropout(t, 0.3, {37, 32}); });
  row("Flatten/tiles", [](DType t) { return flatten(t, {2, 35, 6, 7}); });
}

CaseGraph constant(DType dtype) {
  CaseBuilder b(dtype);
  const TensorId half = b.one("half", "ConstantOfShape",
                              {{"shape", std::vector<int64_t>{3, 5}},
                               {"value", 0.5},
                               {"dtype", std::string(name_of(dtype))}},
                              {});
  return b.finish(b.one("y", "Add", {}, {b.parameter("x", {3, 5}), half}));
}

CaseGraph sgd_update(DType dtype, double momentum, bool nesterov) {
  CaseBuilder b(dtype);
  const Shape shape{7, 5};
  const TensorId p = b.parameter("p", shape);
  const TensorId g = b.input("g", shape);
  const TensorId v = momentum == 0 ? kNoTensor : b.optimizer_state("v", shape);
  b.node("update", "SgdUpdate",
         {{"momentum", momentum}, {"nesterov", int64_t{nesterov}}, {"weight_decay", 0.01}},
         {p, g, b.input_f32("learning_rate", 0.125), v}, 0, Phase::kUpdate);
  return b.finish_update();
}

CaseGraph adam_update(DType dtype, const std::string& op, int64_t step) {
  CaseBuilder b(dtype);
  const Shape shape{33};
  const TensorId p = b.parameter("p", shape);
  const TensorId g = b.input("g", shape);
  const TensorId m = b.optimizer_state("m", shape);
  const TensorId v = b.optimizer_state("v", shape);
  b.node("update", op, {{"weight_decay", 0.01}},
         {p, g, b.input_f32("learning_rate", 0.125), b.step(step), m, v}, 0, Phase::kUpdate);
  return b.finish_update();
}

CaseGraph rmsprop_update(DType dtype, bool centered, double momentum, int64_t count) {
  CaseBuilder b(dtype);
  const Shape shape{count};
  // The mean of squares is above 1 and the mean below, so their difference is far from 0, where
  // rounding errors would dominate.
  const TensorId p = b.parameter("p", shape), g = b.input("g", shape);
  const TensorId square = b.state("square", shape, 1.5);
  const TensorId mean = centered ? b.optimizer_state("mean", shape) : kNoTensor;
  const TensorId velocity = momentum == 0 ? kNoTensor : b.optimizer_state("velocity", shape);
  b.node("update", "RmspropUpdate",
         {{"momentum", momentum}, {"weight_decay", 0.01}, {"rate_factor", 0.5}},
         {p, g, b.input_f32("learning_rate", 0.125), square, mean, velocity}, 0, Phase::kUpdate);
  return b.finish_update();
}

CaseGraph lion_update(DType dtype, int64_t count) {
  CaseBuilder b(dtype);
  const Shape shape{count};
  const TensorId p = b.parameter("p", shape), g = b.input("g", shape);
  b.node("update", "LionUpdate", {{"weight_decay", 0.01}},
         {p, g, b.input_f32("learning_rate", 0.125), b.optimizer_state("m", shape)}, 0,
         Phase::kUpdate);
  return b.finish_update();
}

CaseGraph adafactor_update(DType dtype, const Shape& shape, int64_t step) {
  CaseBuilder b(dtype);
  std::vector<int64_t> dims(shape.dims().begin(), shape.dims().end());
  const int64_t columns = dims.back();
  const TensorId p = b.parameter("p", shape), g = b.input("g", shape);
  TensorId row = kNoTensor;
  if (dims.size() > 1) {
    dims.pop_back();
    row = b.optimizer_state("row", Shape(dims));
    dims.back() = columns;
  }
  const TensorId column = b.optimizer_state("column", Shape(dims));
  b.node("update", "AdafactorUpdate", {{"weight_decay", 0.01}},
         {p, g, b.input_f32("learning_rate", 0.125), b.step(step), column, row}, 0, Phase::kUpdate);
  return b.finish_update();
}

CaseGraph muon_update(DType dtype, const Shape& shape, bool nesterov, bool match_adamw) {
  CaseBuilder b(dtype);
  const TensorId p = b.parameter("p", shape), g = b.input("g", shape);
  b.node("update", "MuonUpdate",
         {{"weight_decay", 0.01},
          {"nesterov", int64_t{nesterov}},
          {"match_adamw", int64_t{match_adamw}}},
         {p, g, b.input_f32("learning_rate", 0.125), b.optimizer_state("m", shape)}, 0,
         Phase::kUpdate);
  return b.finish_update();
}

// Returns an update of one rank's shard of a parameter of 35 elements. Of two ranks the last owns 3
// elements, of four ranks the last owns none.
CaseGraph shard_update(DType dtype, const char* op, int64_t rank, int64_t ranks) {
  CaseBuilder b(dtype);
  const TensorId p = b.parameter("p", {5, 7});
  const Shape shard{kernels::shard_elements(35, ranks)};
  const auto state = [&](const char* name) { return b.optimizer_state(name, shard); };
  const std::string type = op;
  Attributes attributes{{kRank, rank}, {kRanks, ranks}, {"weight_decay", 0.01}};
  std::vector<TensorId> inputs = {p, b.input("g", shard), b.input_f32("learning_rate", 0.125)};
  if (type == "SgdUpdate") {
    attributes.set("momentum", 0.9);
    inputs.push_back(state("v"));
  } else if (type == "LionUpdate") {
    inputs.push_back(state("m"));
  } else if (type == "RmspropUpdate") {
    inputs.insert(inputs.end(), {state("square"), state("average"), kNoTensor});
  } else {
    inputs.insert(inputs.end(), {b.step(2), state("m"), state("v")});
  }
  b.node("update", op, std::move(attributes), inputs, 0, Phase::kUpdate);
  return b.finish_update();
}

// Returns the norm of gradients that are sharded over several ranks.
CaseGraph norm_of_shards(DType dtype, bool scaled) {
  CaseBuilder b(dtype);
  const auto squares =
      b.node("squares", "GradientSquares", {{"counts", std::vector<int64_t>{33, 0, 30}}},
             {b.input("g1", {33}), b.input("g2", {16}), b.input("g3", {32})}, 1, Phase::kUpdate);
  Attributes attributes{{kRanks, int64_t{4}}, {"max_norm", 0.5}};
  std::vector<TensorId> inputs = squares;
  if (scaled) {
    attributes.set("scaled", int64_t{1});
    inputs.push_back(b.input_f32("scale", 8));
  }
  b.node("norm", "NormOfSquares", std::move(attributes), inputs, 2, Phase::kUpdate);
  return b.finish_update();
}

// Returns the norm of gradients that each rank has completely: `firsts` is where this rank's part
// begins.
CaseGraph norm_of_parts(DType dtype) {
  CaseBuilder b(dtype);
  const auto squares = b.node(
      "squares", "GradientSquares",
      {{"counts", std::vector<int64_t>{17, 0, 16}}, {"firsts", std::vector<int64_t>{16, 16, 16}}},
      {b.input("g1", {33}), b.input("g2", {16}), b.input("g3", {32})}, 1, Phase::kUpdate);
  b.node("norm", "NormOfSquares", {{kRanks, int64_t{2}}, {"max_norm", 0.5}}, squares, 2,
         Phase::kUpdate);
  return b.finish_update();
}

// `max_norm` decides whether the gradients are clipped; their norm is a few units.
CaseGraph clip(DType dtype, double max_norm, double bound, int64_t ranks = 1) {
  CaseBuilder b(dtype);
  const TensorId g1 = b.input("g1", {33}), g2 = b.input("g2", {5, 7}), g3 = b.input("g3", {1});
  const auto norm = b.node("norm", "GradientNorm", {{"max_norm", max_norm}, {kRanks, ranks}},
                           {g1, g2, g3}, 2, Phase::kUpdate);
  b.node("clipped", "ClipGradient", {{"bound", bound}}, {g1, norm[1]}, 1, Phase::kUpdate);
  b.node("unscaled", "ClipGradient", {{"bound", bound}}, {g2}, 1, Phase::kUpdate);
  return b.finish_update();
}

// The gradients have been multiplied by a loss scale.
CaseGraph scaled_clip(DType dtype, double max_norm) {
  CaseBuilder b(dtype);
  const TensorId g1 = b.input("g1", {33}), g2 = b.input("g2", {5, 7});
  const auto norm = b.node("norm", "GradientNorm", {{"max_norm", max_norm}, {"scaled", int64_t{1}}},
                           {g1, g2, b.state("scale", {1}, 8)}, 2, Phase::kUpdate);
  b.node("clipped", "ClipGradient", {}, {g1, norm[1]}, 1, Phase::kUpdate);
  return b.finish_update();
}

// Returns the update of the loss scale after a valid step: the last one before the scale grows, or
// an earlier one.
CaseGraph loss_scale(DType dtype, int64_t good_steps) {
  CaseBuilder b(dtype);
  b.node("update", "LossScaleUpdate", {{"interval", int64_t{5}}},
         {b.state("scale", {1}, 8), b.counter("good_steps", good_steps), b.counter("updates", 11),
          b.input("norm", {1}), b.input_f32("learning_rate", 0.125)},
         3, Phase::kUpdate);
  return b.finish_update();
}

/// Returns the case `c` with a gradient that overflows, so that loss scaling skips the step:
/// nothing may change.
CaseGraph skipped(CaseGraph c) {
  c.values.at(c.graph.find_tensor("learning_rate").value()) = {std::nan("")};
  c.values.at(c.graph.find_tensor("g").value())[0] = std::numeric_limits<double>::infinity();
  return c;
}

CaseGraph accumulate(DType dtype, int64_t micro_step) {
  CaseBuilder b(dtype);
  const TensorId sum = b.optimizer_state("sum", {33});
  b.node("accumulate", "AccumulateGradient", {{"share", 0.25}},
         {sum, b.input("g", {33}), b.step(micro_step)}, 0, Phase::kUpdate);
  return b.finish_update();
}

CaseGraph moving_average(DType dtype, int64_t step) {
  CaseBuilder b(dtype);
  const TensorId average = b.optimizer_state("average", {33});
  b.node("average/update", "MovingAverageUpdate", {{"decay", 0.9}},
         {average, b.parameter("p", {33}), b.step(step)}, 0, Phase::kUpdate);
  return b.finish_update();
}

std::vector<GraphCase> all_cases() {
  std::vector<GraphCase> cases;
  const auto row = [&](std::string name, std::function<CaseGraph(DType)> build) {
    cases.push_back({std::move(name), std::move(build)});
  };
  for (const std::string op : {"Relu", "Sigmoid", "Tanh", "Gelu"}) {
    row(op + "/one", [op](DType t) { return activation(t, op, {}, {1, 1}); });
    row(op + "/odd", [op](DType t) { return activation(t, op, {}, {3, 37}); });
  }
  row("Gelu/tanh", [](DType t) {
    return activation(t, "Gelu", {{"approximate", std::string("tanh")}}, {3, 37});
  });
  row("Gemm/one", [](DType t) { return gemm(t, 1, 1, 1, true); });
  row("Gemm/odd", [](DType t) { return gemm(t, 5, 33, 7, true); });
  row("Gemm/no_bias", [](DType t) { return gemm(t, 3, 4, 2, false); });
  row("Gemm/first_layer", gemm_first_layer);
  row("Gemm/shared_weight", shared_weight);
  row("Add", add);
  row("Add/fan_out", fan_out);
  row("Flatten/matrix", [](DType t) { return flatten(t, {3, 1, 1, 5}); });
  row("Flatten/image", [](DType t) { return flatten(t, {2, 3, 2, 5}); });
  row("Reshape", reshape);
  row("Dropout", [](DType t) { return dropout(t, 0.4, {3, 37}); });
  row("Dropout/rank", [](DType t) { return dropout(t, 0.4, {3, 37}, 2); });
  row("Dropout/units", dropout_of_units);
  row("Dropout/zero", [](DType t) { return dropout(t, 0, {2, 3}); });
  row("ConstantOfShape", constant);
  row("SgdUpdate/plain", [](DType t) { return sgd_update(t, 0, false); });
  row("SgdUpdate/momentum", [](DType t) { return sgd_update(t, 0.9, false); });
  row("SgdUpdate/nesterov", [](DType t) { return sgd_update(t, 0.9, true); });
  row("AdamUpdate/first", [](DType t) { return adam_update(t, "AdamUpdate", 0); });
  row("AdamUpdate/later", [](DType t) { return adam_update(t, "AdamUpdate", 41); });
  row("AdamWUpdate", [](DType t) { return adam_update(t, "AdamWUpdate", 2); });
  row("RmspropUpdate", [](DType t) { return rmsprop_update(t, false, 0, 33); });
  row("RmspropUpdate/centered", [](DType t) { return rmsprop_update(t, true, 0, 1); });
  row("RmspropUpdate/momentum", [](DType t) { return rmsprop_update(t, false, 0.9, 33); });
  row("RmspropUpdate/both", [](DType t) { return rmsprop_update(t, true, 0.9, 37); });
  row("LionUpdate", [](DType t) { return lion_update(t, 33); });
  row("AdafactorUpdate/vector", [](DType t) { return adafactor_update(t, {33}, 3); });
  row("AdafactorUpdate/one", [](DType t) { return adafactor_update(t, {1, 1}, 0); });
  row("AdafactorUpdate/matrix", [](DType t) { return adafactor_update(t, {7, 33}, 41); });
  row("AdafactorUpdate/filters", [](DType t) { return adafactor_update(t, {5, 3, 3, 2}, 2); });
  row("MuonUpdate/wide", [](DType t) { return muon_update(t, {7, 33}, true, false); });
  row("MuonUpdate/tall", [](DType t) { return muon_update(t, {33, 7}, false, true); });
  row("MuonUpdate/one", [](DType t) { return muon_update(t, {1, 1}, true, false); });
  row("SgdUpdate/skipped", [](DType t) { return skipped(sgd_update(t, 0.9, true)); });
  row("AdamUpdate/skipped", [](DType t) { return skipped(adam_update(t, "AdamUpdate", 3)); });
  row("RmspropUpdate/skipped", [](DType t) { return skipped(rmsprop_update(t, true, 0.9, 36)); });
  row("LionUpdate/skipped", [](DType t) { return skipped(lion_update(t, 33)); });
  row("AdafactorUpdate/vector_skipped",
      [](DType t) { return skipped(adafactor_update(t, {33}, 3)); });
  row("AdafactorUpdate/matrix_skipped", [](DType t) {
    return skipped(adafactor_update(t, {7, 33}, 3));
  });
  row("MuonUpdate/skipped", [](DType t) { return skipped(muon_update(t, {7, 33}, true, false)); });
  row("GradientNorm/scaled", [](DType t) { return scaled_clip(t, 0); });
  row("GradientNorm/scaled_clips", [](DType t) { return scaled_clip(t, 0.1); });
  row("LossScaleUpdate", [](DType t) { return loss_scale(t, 3); });
  row("LossScaleUpdate/grows", [](DType t) { return loss_scale(t, 4); });
  row("GradientNorm/clips", [](DType t) { return clip(t, 0.5, 0); });
  row("GradientNorm/measures", [](DType t) { return clip(t, 0, 0.3); });
  row("GradientNorm/ranks", [](DType t) { return clip(t, 0.5, 0, 2); });
  row("NormOfSquares", [](DType t) { return norm_of_shards(t, false); });
  row("NormOfSquares/scaled", [](DType t) { return norm_of_shards(t, true); });
  row("NormOfSquares/from", [](DType t) { return norm_of_parts(t); });
  for (const char* op : {"SgdUpdate", "AdamUpdate", "AdamWUpdate", "RmspropUpdate", "LionUpdate"}) {
    row(op + std::string("/shard"), [op](DType t) { return shard_update(t, op, 1, 2); });
    row(op + std::string("/empty_shard"), [op](DType t) { return shard_update(t, op, 3, 4); });
  }
  row("AccumulateGradient/first", [](DType t) { return accumulate(t, 0); });
  row("AccumulateGradient/later", [](DType t) { return accumulate(t, 3); });
  row("MovingAverageUpdate/first", [](DType t) { return moving_average(t, 0); });
  row("MovingAverageUpdate/later", [](DType t) { return moving_average(t, 9); });
  append_losses(cases);
  append_large_losses(cases);
  append_split_head_cases(cases);
  append_sampled_head_cases(cases);
  append_image_cases(cases);
  append_basic_cases(cases);
  append_sequence_cases(cases);
  append_text_cases(cases);
  return cases;
}

}  // namespace

const std::vector<GraphCase>& graph_cases() {
  static const std::vector<GraphCase> cases = all_cases();
  return cases;
}

TensorId CaseBuilder::add(const std::string& name, TensorType type, Role role,
                          std::vector<double> values, Spread spread) {
  TensorInfo info{name, std::move(type), role, Layout::kRowMajor, kNoNode, {}};
  info.spread = spread;
  const TensorId id = c_.graph.add_tensor(std::move(info));
  c_.values[id] = std::move(values);
  return id;
}

TensorId CaseBuilder::parameter(const std::string& name, Shape shape) {
  const int64_t count = shape.elements();
  return add(name, {std::move(shape), dtype_}, Role::kParameter, draw(name, count));
}

TensorId CaseBuilder::image(const std::string& name, const Shape& shape) {
  const TensorId flat = parameter(name + "_flat", {shape[0], shape[1] * shape[2] * shape[3]});
  return one(name, "Reshape", {{"shape", shape.dims()}}, {flat});
}

TensorId CaseBuilder::state(const std::string& name, Shape shape, double value) {
  std::vector<double> values(static_cast<size_t>(shape.elements()), value);
  return add(name, {std::move(shape), dtype_}, Role::kState, std::move(values));
}

TensorId CaseBuilder::cache(const std::string& name, Shape shape) {
  const int64_t count = shape.elements();
  return add(name, {std::move(shape), dtype_}, Role::kCache, draw(name, count));
}

TensorId CaseBuilder::indices(const std::string& name, Shape shape, std::vector<double> values) {
  return add(name, {std::move(shape), DType::kI32}, Role::kInput, std::move(values));
}

TensorId CaseBuilder::optimizer_state(const std::string& name, Shape shape) {
  std::vector<double> values = draw(name, shape.elements());
  for (double& v : values) v = std::abs(v);
  return add(name, {std::move(shape), dtype_}, Role::kOptimizerState, std::move(values));
}

TensorId CaseBuilder::input(const std::string& name, Shape shape, Spread spread) {
  const int64_t count = shape.elements();
  return add(name, {std::move(shape), dtype_}, Role::kInput, draw(name, count), spread);
}

TensorId CaseBuilder::input_f32(const std::string& name, double value) {
  return add(name, {{1}, DType::kF32}, Role::kInput, {value});
}

TensorId CaseBuilder::labels(const std::string& name, int64_t N, int64_t K) {
  return tokens(name, {N}, K);
}

CaseGraph with_uncounted(CaseGraph c) {
  std::vector<double>& labels = c.values.at(c.graph.find_tensor("labels").value());
  for (size_t i = 0; i < labels.size(); i += 3) labels[i] = -1;
  return c;
}

TensorId CaseBuilder::gathered_labels(const std::string& name, int64_t N, int64_t K) {
  std::vector<double> values(static_cast<size_t>(N));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(static_cast<int64_t>(i * i + i + 1) % K);
  }
  return add(name, {{N}, DType::kI32}, Role::kInput, std::move(values), Spread::kGathered);
}

TensorId CaseBuilder::class_statistics(const std::string& name, int64_t rows) {
  std::vector<double> values = draw(name, rows * 4);
  // Column 1 has sums of exponentials.
  for (size_t i = 1; i < values.size(); i += 4) values[i] = 1.5 + values[i];
  return add(name, {{rows, 4}, dtype_}, Role::kInput, std::move(values), Spread::kGathered);
}

TensorId CaseBuilder::tokens(const std::string& name, Shape shape, int64_t vocabulary,
                             Spread spread) {
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<double>(static_cast<int64_t>(i * i + i + 1) % vocabulary);
  }
  return add(name, {std::move(shape), DType::kI32}, Role::kInput, std::move(values), spread);
}

TensorId CaseBuilder::counter(const std::string& name, int64_t value) {
  return add(name, {{1}, DType::kI64}, Role::kOptimizerState, {static_cast<double>(value)});
}
TensorId CaseBuilder::kept_rows(const std::string& name, std::vector<double> values) {
  const TensorType type{{std::ssize(values)}, DType::kI32};
  return add(name, type, Role::kAccumulator, std::move(values));
}
TensorId CaseBuilder::step(int64_t value) {
  return add("step", {{1}, DType::kI64}, Role::kInput, {static_cast<double>(value)});
}

std::vector<TensorId> CaseBuilder::node(const std::string& name, const std::string& op,
                                        Attributes attributes, std::vector<TensorId> inputs,
                                        size_t output_count, Phase phase) {
  std::vector<std::string> outputs;
  for (size_t i = 0; i < output_count; ++i) {
    outputs.push_back(i == 0 ? name : name + "." + std::to_string(i));
  }
  const NodeId id = c_.graph
                        .add_node(name, get_op(op), std::move(attributes), std::move(inputs),
                                  std::move(outputs), phase)
                        .value();
  return c_.graph.node(id).outputs;
}

CaseGraph CaseBuilder::finish(TensorId y) {
  const TensorId target = input("target", c_.graph.tensor(y).type.shape);
  return finish_with_loss(one("loss", "MeanSquaredError", {}, {y, target}));
}

CaseGraph CaseBuilder::finish_with_loss(TensorId loss) {
  c_.loss = loss;
  c_.graph.mark_output(loss);
  return std::move(c_);
}

CaseGraph CaseBuilder::finish_update() { return std::move(c_); }

}  // namespace trainyard::testing
