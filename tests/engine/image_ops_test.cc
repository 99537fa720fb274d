// Tests of the refusals of the image ops, with the message that the user reads, and the shapes they
// infer.
#include <gtest/gtest.h>

#include <cmath>

#include "src/graph/graph.h"
#include "src/graph/op.h"

namespace trainyard {
namespace {

using Ints = std::vector<int64_t>;

struct Request {
  std::string op;
  std::vector<Shape> inputs;
  Attributes attributes;
  DType dtype = DType::kF32;
};

Result<std::vector<TensorType>> infer(const Request& r) {
  Graph graph;
  std::vector<TensorId> inputs;
  for (size_t i = 0; i < r.inputs.size(); ++i) {
    inputs.push_back(graph.add_tensor(
        {"t" + std::to_string(i), {r.inputs[i], r.dtype}, Role::kInput, {}, kNoNode, {}}));
  }
  return get_op(r.op).infer(InferContext(graph, r.attributes, inputs));
}

std::string refusal(const Request& r) {
  const auto result = infer(r);
  return result.ok() ? "accepted" : result.error().message;
}

Shape output(const Request& r) { return infer(r).value().at(0).shape; }

TEST(ConvInfer, GivesTheOutputShape) {
  EXPECT_EQ(output({"Conv", {{64, 1, 28, 28}, {20, 1, 5, 5}, {20}}, {}}), (Shape{64, 20, 24, 24}));
  EXPECT_EQ(output({"Conv",
                    {{1, 3, 9, 7}, {4, 3, 3, 2}},
                    {{"kernel_shape", Ints{3, 2}},
                     {"strides", Ints{2, 3}},
                     {"pads", Ints{1, 0, 2, 1}},
                     {"group", int64_t{1}},
                     {"dilations", Ints{1, 1}}}}),
            (Shape{1, 4, 5, 3}));
  EXPECT_EQ(output({"Conv",
                    {{1, 6, 9, 9}, {6, 1, 3, 3}},
                    {{"group", int64_t{6}}, {"dilations", Ints{2, 3}}}}),
            (Shape{1, 6, 5, 3}));
}

TEST(ConvTransposeInfer, GivesTheOutputShapeAndRefusesMismatches) {
  const Shape x{2, 4, 7, 5}, w{4, 6, 3, 3};
  EXPECT_EQ(output({"ConvTranspose", {x, w, {6}}, {}}), (Shape{2, 6, 9, 7}));
  EXPECT_EQ(output({"ConvTranspose",
                    {x, {4, 3, 3, 3}},
                    {{"group", int64_t{2}},
                     {"strides", Ints{2, 3}},
                     {"pads", Ints{1, 1, 1, 0}},
                     {"output_padding", Ints{1, 2}}}}),
            (Shape{2, 6, 14, 16}));
  EXPECT_EQ(refusal({"ConvTranspose", {x, {5, 6, 3, 3}}, {}}),
            "w: shape [5, 6, 3, 3] takes 5 channels, expected 4 as x [2, 4, 7, 5]");
  EXPECT_EQ(refusal({"ConvTranspose", {x, w}, {{"group", int64_t{3}}}}),
            "group: 3, expected a divisor of the channels in, 4");
  EXPECT_EQ(refusal({"ConvTranspose", {x, w}, {{"output_padding", Ints{1, 0}}}}),
            "output_padding: [1, 0], expected two values from 0, below strides [1, 1]");
  EXPECT_EQ(refusal({"ConvTranspose", {{1, 4, 1, 1}, w}, {{"pads", Ints{2, 0, 1, 0}}}}),
            "pads: leave no pixel: the output would be [1, 6, 0, 3]");
  EXPECT_EQ(refusal({"ConvTranspose", {x, w, {5}}, {}}), "b: shape [5], expected [6]");
}

TEST(ConvInfer, RefusesMismatchedShapes) {
  const Shape x{2, 3, 8, 8}, w{4, 3, 3, 3};
  EXPECT_EQ(refusal({"Conv", {{2, 3, 8}, w}, {}}),
            "x: shape [2, 3, 8] has rank 3, expected rank 4");
  EXPECT_EQ(refusal({"Conv", {x, {4, 5, 3, 3}}, {}}),
            "w: shape [4, 5, 3, 3] takes 5 channels, expected 3 as x [2, 3, 8, 8]");
  EXPECT_EQ(refusal({"Conv", {x, w, {5}}, {}}), "b: shape [5], expected [4]");
  EXPECT_EQ(refusal({"Conv", {x, w}, {{"kernel_shape", Ints{5, 5}}}}),
            "kernel_shape: [5, 5], expected [3, 3] as w [4, 3, 3, 3]");
  EXPECT_EQ(refusal({"Conv", {{2, 3, 2, 8}, w}, {}}),
            "kernel_shape: [3, 3] is larger than the image [2, 8] with its padding, [2, 8]");
  EXPECT_EQ(refusal({"Conv", {x, w}, {{"strides", Ints{0, 1}}}}),
            "strides: [0, 1], expected 2 integers in 1..65536");
  EXPECT_EQ(refusal({"Conv", {x, w}, {{"strides", Ints{1}}}}),
            "strides: [1], expected 2 integers in 1..65536");
  EXPECT_EQ(refusal({"Conv", {x, w}, {{"pads", Ints{1, 1}}}}),
            "pads: [1, 1], expected 4 integers in 0..65536");
  EXPECT_EQ(refusal({"Conv", {x, w}, {{"pads", Ints{0, 0, 0, -1}}}}),
            "pads: [0, 0, 0, -1], expected 4 integers in 0..65536");
  EXPECT_EQ(refusal({"Conv", {x, w}, {{"group", int64_t{3}}}}),
            "group: 3, expected a divisor of the channels in, 3, and out, 4");
  EXPECT_EQ(refusal({"Conv", {x, {6, 3, 3, 3}}, {{"group", int64_t{3}}}}),
            "w: shape [6, 3, 3, 3] takes 9 channels, expected 3 as x [2, 3, 8, 8]");
  EXPECT_EQ(refusal({"Conv", {x, w}, {{"dilations", Ints{4, 4}}}}),
            "kernel_shape: [9, 9] (dilated) is larger than the image [8, 8] with its padding, "
            "[8, 8]");
  EXPECT_NE(refusal({"Conv", {x, w}, {{"stride", Ints{2, 2}}}}).find("did you mean 'strides'?"),
            std::string::npos);
  EXPECT_EQ(refusal({"Conv", {x}, {}}), "w: this input is required");
  EXPECT_NE(refusal({"Conv", {x, w}, {}, DType::kI32}).find("x: type I32"), std::string::npos);
  EXPECT_NE(refusal({"Conv", {{0, 3, 8, 8}, w}, {}}).find("dimensions of at least 1"),
            std::string::npos);
}

TEST(PoolInfer, GivesTheOutputShape) {
  const Attributes halving = {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  EXPECT_EQ(output({"MaxPool", {{64, 20, 24, 24}}, halving}), (Shape{64, 20, 12, 12}));
  EXPECT_EQ(output({"AveragePool", {{1, 2, 7, 5}}, halving}), (Shape{1, 2, 3, 2}));
  EXPECT_EQ(output({"MaxPool", {{1, 2, 7, 5}}, {{"kernel_shape", Ints{3, 3}}}}),
            (Shape{1, 2, 5, 3}));  // ONNX's default stride is 1
  EXPECT_EQ(output({"GlobalAveragePool", {{3, 5, 7, 2}}, {}}), (Shape{3, 5, 1, 1}));
}

TEST(PoolInfer, RefusesMismatchedShapes) {
  for (const std::string op : {"MaxPool", "AveragePool"}) {
    EXPECT_EQ(refusal({op, {{1, 2, 5, 5}}, {}}),
              "kernel_shape: this attribute is required, for example [2, 2]");
    EXPECT_EQ(refusal({op, {{1, 2, 5, 5}}, {{"kernel_shape", Ints{6, 2}}}}),
              "kernel_shape: [6, 2] is larger than the image [5, 5] with its padding, [5, 5]");
    EXPECT_EQ(
        refusal({op, {{1, 2, 5, 5}}, {{"kernel_shape", Ints{2, 2}}, {"pads", Ints{0, 2, 0, 0}}}}),
        "pads: [0, 2, 0, 0], expected values below kernel_shape [2, 2]");
    EXPECT_EQ(
        refusal({op, {{1, 2, 5, 5}}, {{"kernel_shape", Ints{2, 2}}, {"ceil_mode", int64_t{2}}}}),
        "ceil_mode: 2 is out of range, expected 0..1");
    EXPECT_EQ(
        output({op, {{1, 2, 5, 5}}, {{"kernel_shape", Ints{2, 2}}, {"ceil_mode", int64_t{1}}}}),
        (Shape{1, 2, 4, 4}));
    // PyTorch's rule: 2-cell windows with stride 2 over 5 cells, and 3-cell windows over 6; a last
    // window that would begin in the padding after the image is dropped.
    EXPECT_EQ(
        output(
            {op,
             {{1, 2, 5, 5}},
             {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"ceil_mode", int64_t{1}}}}),
        (Shape{1, 2, 3, 3}));
    EXPECT_EQ(output({op,
                      {{1, 2, 6, 7}},
                      {{"kernel_shape", Ints{3, 3}},
                       {"strides", Ints{3, 3}},
                       {"pads", Ints{0, 1, 1, 1}},
                       {"ceil_mode", int64_t{1}}}}),
              (Shape{1, 2, 2, 3}));
    EXPECT_EQ(refusal({op, {{1, 2}}, {{"kernel_shape", Ints{2, 2}}}}),
              "x: shape [1, 2] has rank 2, expected rank 4");
  }
  EXPECT_EQ(refusal({"MaxPool",
                     {{1, 2, 17, 16}},
                     {{"kernel_shape", Ints{17, 16}}, {"keep_winner", int64_t{1}}}}),
            "keep_winner: 1, expected 0 for a window of more than 256 cells");
  EXPECT_EQ(output({"MaxPool",
                    {{1, 2, 16, 16}},
                    {{"kernel_shape", Ints{16, 16}}, {"keep_winner", int64_t{1}}}}),
            (Shape{1, 2, 1, 1}));
  EXPECT_EQ(
      refusal(
          {"MaxPool",
           {{1, 2, 16, 16}},
           {{"kernel_shape", Ints{16, 16}}, {"keep_winner", int64_t{1}}, {"relu", int64_t{1}}}}),
      "keep_winner: 1, expected 0 for a window of more than 255 cells");
  EXPECT_EQ(refusal({"AveragePool",
                     {{1, 2, 5, 5}},
                     {{"kernel_shape", Ints{2, 2}}, {"count_include_pad", int64_t{2}}}}),
            "count_include_pad: 2 is out of range, expected 0..1");
}

TEST(BatchNormalizationInfer, RefusesWhatCannotBeNormalized) {
  const auto request = [](Shape x, Attributes attributes) {
    return Request{"BatchNormalization", {std::move(x), {3}, {3}, {3}, {3}}, std::move(attributes)};
  };
  EXPECT_EQ(output(request({4, 3}, {})), (Shape{4, 3}));
  EXPECT_EQ(output(request({1, 3}, {})), (Shape{1, 3}));  // running statistics suffice for one row
  EXPECT_EQ(refusal(request({1, 3}, {{"training_mode", int64_t{1}}})),
            "x: shape [1, 3] has 1 value per channel, training needs at least 2 (a larger "
            "batch_size)");
  EXPECT_EQ(refusal(request({4, 3, 2}, {})),
            "x: shape [4, 3, 2] has rank 3, expected [N, C, H, W] or [N, C]");
  EXPECT_EQ(refusal(request({4, 5}, {})), "scale: shape [3], expected [5]");
  EXPECT_EQ(refusal(request({4, 3}, {{"epsilon", 0.0}})),
            "epsilon: 0.000000 is out of range, expected above 0, at most 1");
  EXPECT_EQ(refusal(request({4, 3}, {{"momentum", 1.5}})),
            "momentum: 1.500000 is out of range, expected 0..1");
  EXPECT_NE(refusal(request({4, 3}, {{"momentum", std::nan("")}})).find("momentum: nan"),
            std::string::npos);
}

}  // namespace
}  // namespace trainyard
