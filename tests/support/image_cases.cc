#include "tests/support/graph_cases.h"

namespace trainyard::testing {
namespace {

using Ints = std::vector<int64_t>;

CaseGraph conv(DType dtype, const Shape& x, const Shape& w, bool bias, Attributes attributes) {
  CaseBuilder b(dtype);
  std::vector<TensorId> inputs = {b.image("x", x), b.parameter("w", w)};
  if (bias) inputs.push_back(b.parameter("b", {w[0]}));
  return b.finish(b.one("y", "Conv", std::move(attributes), inputs));
}

/// Returns a convolution followed by ReLU, which a pass fuses into one op.
CaseGraph conv_relu(DType dtype, const Shape& x, const Shape& w, Attributes attributes) {
  CaseBuilder b(dtype);
  const TensorId pre = b.one("pre", "Conv", std::move(attributes),
                             {b.image("x", x), b.parameter("w", w), b.parameter("b", {w[0]})});
  return b.finish(b.one("y", "Relu", {}, {pre}));
}

CaseGraph conv_transpose(DType dtype, const Shape& x, const Shape& w, int64_t K, bool bias,
                         Attributes attributes) {
  CaseBuilder b(dtype);
  std::vector<TensorId> inputs = {b.image("x", x), b.parameter("w", w)};
  if (bias) inputs.push_back(b.parameter("b", {K}));
  return b.finish(b.one("y", "ConvTranspose", std::move(attributes), inputs));
}

// The image is the graph's input, so dx is omitted, and a Reorder precedes the convolution.
CaseGraph conv_first_layer(DType dtype, const Shape& x) {
  CaseBuilder b(dtype);
  return b.finish(
      b.one("y", "Conv", {},
            {b.input("x", x), b.parameter("w", {4, x[1], 3, 3}), b.parameter("b", {4})}));
}

CaseGraph pool(DType dtype, const std::string& op, const Shape& x, Attributes attributes) {
  CaseBuilder b(dtype);
  const size_t outputs = attributes.get_int("keep_winner", 0) == 1 ? 2 : 1;
  return b.finish(b.node("y", op, std::move(attributes), {b.image("x", x)}, outputs)[0]);
}

// Returns max pooling between convolutions: backward keeps only the winners' indices, so x can be
// freed early.
CaseGraph max_pool_between(DType dtype, int64_t C, Attributes attributes) {
  CaseBuilder b(dtype);
  attributes.set("keep_winner", int64_t{1});
  const TensorId h =
      b.one("h", "Conv", {}, {b.image("x", {2, 3, 7, 6}), b.parameter("w1", {C, 3, 1, 1})});
  const TensorId y = b.node("y", "MaxPool", std::move(attributes), {h}, 2)[0];
  return b.finish(b.one("z", "Conv", {}, {y, b.parameter("w2", {2, C, 1, 1})}));
}

// Returns ReLU before or after a pool, which a pass fuses with it (src/passes/fuse_pools.h).
CaseGraph max_pool_and_relu(DType dtype, int64_t C, bool before, Attributes attributes) {
  CaseBuilder b(dtype);
  attributes.set("keep_winner", int64_t{1});
  TensorId h =
      b.one("h", "Conv", {}, {b.image("x", {2, 3, 7, 6}), b.parameter("w1", {C, 3, 1, 1})});
  if (before) h = b.one("r", "Relu", {}, {h});
  TensorId y = b.node("y", "MaxPool", std::move(attributes), {h}, 2)[0];
  if (!before) y = b.one("r", "Relu", {}, {y});
  return b.finish(b.one("z", "Conv", {}, {y, b.parameter("w2", {2, C, 1, 1})}));
}

CaseGraph batch_norm(DType dtype, bool is_image, bool training) {
  CaseBuilder b(dtype);
  const TensorId x = is_image ? b.image("x", {2, 3, 4, 5}) : b.parameter("x", {7, 3});
  const std::vector<TensorId> inputs = {x, b.parameter("scale", {3}), b.parameter("b", {3}),
                                        b.state("running_mean", {3}, 0.25),
                                        b.state("running_var", {3}, 0.75)};
  const auto outputs =
      b.node("y", "BatchNormalization", {{"training_mode", int64_t{training}}}, inputs, 3);
  return b.finish(outputs[0]);
}

CaseGraph group_norm(DType dtype, const Shape& x, int64_t groups, bool scaled_alone) {
  CaseBuilder b(dtype);
  const TensorId image = scaled_alone ? b.input("x", x) : b.image("x", x);
  const std::vector<TensorId> inputs = {image, b.parameter("scale", {x[1]}),
                                        b.parameter("b", {x[1]})};
  if (groups == 0) return b.finish(b.node("y", "InstanceNormalization", {}, inputs, 3)[0]);
  return b.finish(b.node("y", "GroupNormalization", {{"num_groups", groups}}, inputs, 3)[0]);
}

// Applies the op directly to a parameter, whose shape may have any number of dimensions.
CaseGraph moved(DType dtype, const std::string& op, const Shape& x, Attributes attributes) {
  CaseBuilder b(dtype);
  return b.finish(b.one("y", op, std::move(attributes), {b.parameter("x", x)}));
}

// Everything between the two convolutions is channels-last.
CaseGraph resampled_net(DType dtype, const std::string& op, Attributes attributes) {
  CaseBuilder b(dtype);
  const TensorId x = b.input("x", {2, 3, 5, 4});
  const TensorId h = b.one("h", "Conv", {}, {x, b.parameter("w1", {5, 3, 2, 2})});
  const TensorId r = b.one("r", op, std::move(attributes), {h});
  return b.finish(b.one("y", "Conv", {}, {r, b.parameter("w2", {3, 5, 2, 2})}));
}

// Returns BatchNormalization followed by ReLU, which a pass fuses.
CaseGraph batch_norm_relu(DType dtype, bool is_image) {
  CaseBuilder b(dtype);
  const TensorId x = is_image ? b.image("x", {3, 5, 3, 2}) : b.parameter("x", {7, 3});
  const int64_t C = is_image ? 5 : 3;
  const auto outputs =
      b.node("n", "BatchNormalization", {{"training_mode", int64_t{1}}},
             {x, b.parameter("scale", {C}), b.parameter("b", {C}),
              b.state("running_mean", {C}, 0.25), b.state("running_var", {C}, 0.75)},
             3);
  return b.finish(b.one("y", "Relu", {}, {outputs[0]}));
}

// Returns a batch normalization between two convolutions, in channels-last. The number of channels
// fills whole vectors.
CaseGraph batch_norm_between(DType dtype, const Shape& shape, bool relu) {
  CaseBuilder b(dtype);
  const int64_t C = shape[1];
  const TensorId x = b.one("h", "Conv", {}, {b.image("x", shape), b.parameter("w1", {C, C, 1, 1})});
  TensorId y = b.node("n", "BatchNormalization", {{"training_mode", int64_t{1}}},
                      {x, b.parameter("scale", {C}), b.parameter("b", {C}),
                       b.state("running_mean", {C}, 0.25), b.state("running_var", {C}, 0.75)},
                      3)[0];
  if (relu) y = b.one("r", "Relu", {}, {y});
  return b.finish(b.one("z", "Conv", {}, {y, b.parameter("w2", {2, C, 1, 1})}));
}

CaseGraph batch_norm_residual(DType dtype, bool two_norms) {
  CaseBuilder b(dtype);
  const Attributes training{{"training_mode", int64_t{1}}};
  const auto norm = [&](const std::string& name, TensorId x) {
    return b.node(name, "BatchNormalization", training,
                  {x, b.parameter(name + ".scale", {4}), b.parameter(name + ".b", {4}),
                   b.state(name + ".mean", {4}, 0.5), b.state(name + ".var", {4}, 0.5)},
                  3)[0];
  };
  const TensorId x = b.image("x", {2, 3, 4, 3});
  const TensorId h = b.one("h", "Conv", {}, {x, b.parameter("w1", {4, 3, 1, 1})});
  const TensorId g = b.one("g", "Conv", {}, {x, b.parameter("w2", {4, 3, 1, 1})});
  const TensorId residual = two_norms ? norm("shortcut", g) : g;
  const TensorId sum = b.one("sum", "Add", {}, {norm("main", h), residual});
  const TensorId y = b.one("y", "Relu", {}, {sum});
  return b.finish(b.one("z", "Conv", {}, {y, b.parameter("w3", {2, 4, 1, 1})}));
}

// The output of the normalization has two readers, whose gradients are added.
CaseGraph batch_norm_read_twice(DType dtype, int64_t C, bool residual) {
  CaseBuilder b(dtype);
  const TensorId x = b.image("x", {2, 3, 4, 3});
  const TensorId h = b.one("h", "Conv", {}, {x, b.parameter("w1", {C, 3, 1, 1})});
  TensorId y = b.node("n", "BatchNormalization", {{"training_mode", int64_t{1}}},
                      {h, b.parameter("scale", {C}), b.parameter("b", {C}),
                       b.state("running_mean", {C}, 0.25), b.state("running_var", {C}, 0.75)},
                      3)[0];
  if (residual) {
    const TensorId g = b.one("g", "Conv", {}, {x, b.parameter("w2", {C, 3, 1, 1})});
    y = b.one("sum", "Add", {}, {y, g});
  }
  y = b.one("y", "Relu", {}, {y});
  const TensorId z = b.one("z", "Conv", {}, {y, b.parameter("w3", {C, C, 1, 1})});
  return b.finish(b.one("last", "Add", {}, {b.one("t", "Tanh", {}, {z}), y}));
}

CaseGraph batch_norm_replay(DType dtype, bool residual) {
  CaseBuilder b(dtype);
  std::vector<TensorId> inputs = {b.image("x", {2, 3, 4, 5}), b.parameter("scale", {3}),
                                  b.parameter("b", {3}), b.parameter("saved_mean", {3}),
                                  b.optimizer_state("saved_inv_std", {3})};
  if (residual) inputs.push_back(b.image("residual", {2, 3, 4, 5}));
  const TensorId y = b.one("y", "BatchNormalizationReplay", {{"relu", int64_t{residual}}}, inputs);
  CaseGraph c = b.finish_update();
  c.graph.mark_output(y);
  return c;
}

// Returns two branches over one image, elementwise ops between layers, and a flatten, so that the
// layout pass makes one group of nodes channels-last.
CaseGraph residual_net(DType dtype) {
  CaseBuilder b(dtype);
  const Attributes same{{"pads", Ints{1, 1, 1, 1}}};
  const TensorId x = b.input("x", {2, 3, 6, 6});
  const TensorId h = b.one("h", "Conv", same, {x, b.parameter("w1", {4, 3, 3, 3})});
  const TensorId r = b.one("r", "Tanh", {}, {h});
  const TensorId h2 = b.one("h2", "Conv", same, {r, b.parameter("w2", {4, 4, 3, 3})});
  const TensorId sum = b.one("sum", "Add", {}, {r, h2});
  const TensorId pooled =
      b.one("pooled", "MaxPool", {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}}, {sum});
  const TensorId flat = b.one("flat", "Flatten", {}, {pooled});
  const TensorId z =
      b.one("z", "Gemm", {{"transB", int64_t{1}}}, {flat, b.parameter("w3", {5, 36})});
  return b.finish_with_loss(
      b.node("loss", "SoftmaxCrossEntropyLoss", {}, {z, b.labels("labels", 2, 5)}, 2)[0]);
}

}  // namespace

void append_image_cases(std::vector<GraphCase>& cases) {
  const auto row = [&](std::string name, std::function<CaseGraph(DType)> build) {
    cases.push_back({std::move(name), std::move(build)});
  };
  row("Conv/one", [](DType t) { return conv(t, {1, 1, 1, 1}, {1, 1, 1, 1}, true, {}); });
  row("Conv/odd", [](DType t) { return conv(t, {2, 3, 5, 7}, {5, 3, 3, 2}, true, {}); });
  row("Conv/strided_padded", [](DType t) {
    return conv(t, {2, 2, 6, 5}, {3, 2, 3, 3}, false,
                {{"strides", Ints{2, 3}}, {"pads", Ints{1, 2, 0, 1}}});
  });
  row("Conv/dilated", [](DType t) {
    return conv(t, {2, 3, 9, 8}, {5, 3, 3, 2}, true,
                {{"dilations", Ints{2, 3}}, {"pads", Ints{2, 1, 1, 3}}});
  });
  row("Conv/grouped", [](DType t) {
    return conv(t, {2, 6, 5, 7}, {9, 2, 3, 3}, true,
                {{"group", int64_t{3}}, {"pads", Ints{1, 1, 1, 1}}});
  });
  row("Conv/depthwise", [](DType t) {
    return conv(t, {2, 17, 6, 5}, {17, 1, 3, 3}, true,
                {{"group", int64_t{17}}, {"strides", Ints{2, 1}}, {"pads", Ints{1, 1, 1, 1}}});
  });
  row("Conv/depthwise_multiplied", [](DType t) {
    return conv(t, {1, 4, 5, 5}, {8, 1, 3, 3}, false,
                {{"group", int64_t{4}}, {"dilations", Ints{2, 2}}});
  });
  const auto large = [&](std::string name, std::function<CaseGraph(DType)> build) {
    cases.push_back({std::move(name), std::move(build), /*is_large=*/true});
  };
  large("ConvRelu/odd", [](DType t) { return conv_relu(t, {2, 3, 5, 7}, {5, 3, 3, 2}, {}); });
  large("ConvRelu/fours", [](DType t) {
    return conv_relu(t, {3, 2, 6, 6}, {8, 2, 3, 3}, {{"pads", Ints{1, 1, 1, 1}}});
  });
  large("ConvRelu/strided_padded", [](DType t) {
    return conv_relu(t, {2, 2, 7, 5}, {3, 2, 3, 3},
                     {{"strides", Ints{2, 3}}, {"pads", Ints{1, 2, 0, 1}}});
  });
  row("ConvTranspose/one", [](DType t) {
    return conv_transpose(t, {1, 1, 1, 1}, {1, 1, 1, 1}, 1, true, {});
  });
  row("ConvTranspose/odd", [](DType t) {
    return conv_transpose(t, {2, 3, 3, 5}, {3, 7, 3, 2}, 7, true, {});
  });
  row("ConvTranspose/doubling", [](DType t) {
    return conv_transpose(
        t, {2, 4, 3, 4}, {4, 5, 3, 3}, 5, true,
        {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}, {"output_padding", Ints{1, 1}}});
  });
  row("ConvTranspose/grouped_dilated", [](DType t) {
    return conv_transpose(t, {1, 6, 4, 3}, {6, 2, 2, 3}, 6, false,
                          {{"group", int64_t{3}},
                           {"dilations", Ints{2, 1}},
                           {"strides", Ints{1, 3}},
                           {"pads", Ints{0, 1, 1, 0}},
                           {"output_padding", Ints{0, 2}}});
  });
  row("Conv/first_layer", [](DType t) { return conv_first_layer(t, {2, 3, 5, 5}); });
  row("Conv/first_layer_gray", [](DType t) { return conv_first_layer(t, {2, 1, 5, 5}); });
  for (const std::string op : {"MaxPool", "AveragePool"}) {
    row(op + "/halving", [op](DType t) {
      return pool(t, op, {2, 3, 4, 6}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
    });
    row(op + "/overlapping_padded", [op](DType t) {
      return pool(
          t, op, {1, 2, 5, 7},
          {{"kernel_shape", Ints{3, 2}}, {"strides", Ints{2, 1}}, {"pads", Ints{1, 0, 1, 1}}});
    });
  }
  for (const int64_t C : {5, 8}) {
    const std::string channels = std::to_string(C) + "_channels";
    row("MaxPool/winner_halving_" + channels, [C](DType t) {
      return max_pool_between(t, C, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
    });
    row("MaxPool/winner_overlapping_" + channels, [C](DType t) {
      return max_pool_between(
          t, C,
          {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}});
    });
  }
  for (const bool before : {false, true}) {
    const std::string name = std::string("MaxPool/relu_") + (before ? "before_" : "behind_");
    for (const int64_t C : {5, 8}) {
      row(name + std::to_string(C) + "_channels", [C, before](DType t) {
        return max_pool_and_relu(t, C, before,
                                 {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
      });
    }
    row(name + "overlapping", [before](DType t) {
      return max_pool_and_relu(
          t, 8, before,
          {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}});
    });
  }
  row("MaxPool/winner_dilated", [](DType t) {
    return pool(t, "MaxPool", {2, 5, 9, 8},
                {{"kernel_shape", Ints{3, 2}},
                 {"strides", Ints{2, 1}},
                 {"dilations", Ints{2, 3}},
                 {"pads", Ints{1, 2, 2, 1}},
                 {"ceil_mode", int64_t{1}},
                 {"keep_winner", int64_t{1}}});
  });
  row("MaxPool/large_window", [](DType t) {
    return pool(t, "MaxPool", {1, 2, 18, 17}, {{"kernel_shape", Ints{17, 16}}});
  });
  for (const std::string op : {"MaxPool", "AveragePool"}) {
    row(op + "/ceil_mode", [op](DType t) {
      return pool(t, op, {2, 3, 6, 5},
                  {{"kernel_shape", Ints{2, 3}},
                   {"strides", Ints{4, 2}},
                   {"pads", Ints{1, 0, 0, 1}},
                   {"ceil_mode", int64_t{1}}});
    });
  }
  row("AveragePool/include_pad", [](DType t) {
    return pool(t, "AveragePool", {1, 2, 5, 5},
                {{"kernel_shape", Ints{3, 3}},
                 {"pads", Ints{1, 1, 1, 1}},
                 {"count_include_pad", int64_t{1}}});
  });
  for (const std::string op : {"MaxPool", "AveragePool"}) {
    row(op + "/dilated", [op](DType t) {
      return pool(t, op, {2, 5, 9, 8},
                  {{"kernel_shape", Ints{3, 2}},
                   {"strides", Ints{2, 1}},
                   {"dilations", Ints{2, 3}},
                   {"pads", Ints{1, 2, 2, 1}}});
    });
    row(op + "/dilated_ceil_mode", [op](DType t) {
      return pool(t, op, {1, 3, 8, 7},
                  {{"kernel_shape", Ints{2, 2}},
                   {"strides", Ints{2, 2}},
                   {"dilations", Ints{2, 1}},
                   {"ceil_mode", int64_t{1}}});
    });
    // Dilated windows have no adjacent pixels, but a special kernel exists for windows of this
    // size.
    row(op + "/halving_dilated", [op](DType t) {
      return pool(
          t, op, {1, 4, 6, 6},
          {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"dilations", Ints{2, 2}}});
    });
  }
  row("GroupNormalization/image", [](DType t) { return group_norm(t, {2, 6, 3, 5}, 3, false); });
  row("GroupNormalization/one_group", [](DType t) {
    return group_norm(t, {3, 5, 2, 3}, 1, false);
  });
  row("GroupNormalization/first", [](DType t) { return group_norm(t, {2, 4, 3, 3}, 2, true); });
  row("GroupNormalization/fours", [](DType t) { return group_norm(t, {2, 8, 2, 4}, 2, false); });
  row("GroupNormalization/rows", [](DType t) { return group_norm(t, {3, 8}, 2, true); });
  row("InstanceNormalization/image", [](DType t) { return group_norm(t, {2, 7, 3, 4}, 0, false); });
  row("InstanceNormalization/one_row", [](DType t) {
    return group_norm(t, {1, 1, 1, 5}, 0, false);
  });
  row("InstanceNormalization/sequence", [](DType t) { return group_norm(t, {3, 5, 7}, 0, true); });
  for (const std::string mode : {"constant", "reflect", "edge"}) {
    const auto pads = [mode](Ints values) {
      return Attributes{{"pads", std::move(values)}, {"axes", Ints{2, 3}}, {"mode", mode}};
    };
    row("Pad/" + mode, [pads](DType t) {
      return pool(t, "Pad", {2, 3, 4, 5}, pads({1, 3, 2, 4}));
    });
    row("Pad/" + mode + "_one_side", [pads](DType t) {
      return pool(t, "Pad", {1, 1, 2, 7}, pads({0, 0, 0, 5}));
    });
    row("Pad/" + mode + "_between", [pads](DType t) {
      return resampled_net(t, "Pad", pads({1, 1, 2, 2}));
    });
    row("Pad/" + mode + "_all_axes", [mode](DType t) {
      return moved(t, "Pad", {3, 2, 5}, {{"pads", Ints{2, 1, 0, 1, 0, 3}}, {"mode", mode}});
    });
  }
  row("Pad/value", [](DType t) {
    return moved(t, "Pad", {2, 1}, {{"pads", Ints{1, 2, 0, 1}}, {"value", -0.5}});
  });
  for (const std::string mode : {"nearest", "linear"}) {
    for (const std::string where : {"half_pixel", "align_corners", "asymmetric"}) {
      const auto resize = [mode, where](std::pair<const std::string, Attribute> size) {
        return Attributes{
            std::move(size), {"mode", mode}, {"coordinate_transformation_mode", where}};
      };
      const std::string name = "Resize/" + mode + "_" + where;
      row(name + "_larger", [resize](DType t) {
        return pool(t, "Resize", {2, 3, 3, 5}, resize({"sizes", Ints{7, 11}}));
      });
      row(name + "_smaller", [resize](DType t) {
        return pool(t, "Resize", {1, 2, 7, 9}, resize({"scales", 0.6}));
      });
      row(name + "_from_one", [resize](DType t) {
        return pool(t, "Resize", {1, 1, 1, 4}, resize({"sizes", Ints{3, 1}}));
      });
    }
  }
  for (const std::string how : {"round_prefer_ceil", "floor", "ceil"}) {
    row("Resize/" + how, [how](DType t) {
      return pool(t, "Resize", {1, 2, 4, 3}, {{"sizes", Ints{6, 9}}, {"nearest_mode", how}});
    });
  }
  // PyTorch's mode "nearest".
  const Attributes floor{{"coordinate_transformation_mode", std::string("asymmetric")},
                         {"nearest_mode", std::string("floor")}};
  row("Resize/asymmetric_floor", [floor](DType t) {
    Attributes larger = floor;
    larger.set("sizes", Ints{7, 11});
    return pool(t, "Resize", {2, 3, 3, 5}, larger);
  });
  row("Resize/asymmetric_floor_smaller", [floor](DType t) {
    Attributes smaller = floor;
    smaller.set("scales", 0.6);
    return pool(t, "Resize", {1, 2, 7, 9}, smaller);
  });
  row("Resize/between", [](DType t) {
    return resampled_net(t, "Resize", {{"scales", 1.5}, {"mode", std::string("linear")}});
  });
  row("GlobalAveragePool", [](DType t) { return pool(t, "GlobalAveragePool", {2, 5, 3, 3}, {}); });
  row("BatchNormalization/image", [](DType t) { return batch_norm(t, true, true); });
  row("BatchNormalization/fours", [](DType t) {
    return batch_norm_between(t, {2, 8, 3, 4}, /*relu=*/false);
  });
  row("BatchNormalizationRelu/fours", [](DType t) {
    return batch_norm_between(t, {2, 4, 2, 6}, /*relu=*/true);
  });
  row("BatchNormalization/rows", [](DType t) { return batch_norm(t, false, true); });
  row("BatchNormalizationRelu/image", [](DType t) { return batch_norm_relu(t, true); });
  row("BatchNormalizationRelu/rows", [](DType t) { return batch_norm_relu(t, false); });
  row("BatchNormalizationRelu/residual", [](DType t) { return batch_norm_residual(t, false); });
  row("BatchNormalizationRelu/two_norms", [](DType t) { return batch_norm_residual(t, true); });
  row("SkipBatchNormalizationReluGrad/eights",
      [](DType t) { return batch_norm_read_twice(t, 8, false); });
  row("SkipBatchNormalizationReluGrad/eights_residual",
      [](DType t) { return batch_norm_read_twice(t, 8, true); });
  row("SkipBatchNormalizationReluGrad/odd",
      [](DType t) { return batch_norm_read_twice(t, 5, false); });
  row("SkipBatchNormalizationReluGrad/odd_residual",
      [](DType t) { return batch_norm_read_twice(t, 5, true); });
  row("BatchNormalizationReplay/plain", [](DType t) { return batch_norm_replay(t, false); });
  row("BatchNormalizationReplay/residual", [](DType t) { return batch_norm_replay(t, true); });
  row("ResidualNet", residual_net);
}

}  // namespace trainyard::testing
