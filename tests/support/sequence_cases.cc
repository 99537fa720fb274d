#include <cmath>

#include "tests/support/graph_cases.h"

namespace trainyard::testing {
namespace {

CaseGraph layer_norm(DType dtype, const Shape& x, int64_t axis, bool bias, double epsilon = 1e-5) {
  CaseBuilder b(dtype);
  const auto first = static_cast<size_t>(axis < 0 ? axis + x.rank() : axis);
  const Shape vector(
      std::vector<int64_t>(x.dims().begin() + static_cast<int64_t>(first), x.dims().end()));
  std::vector<TensorId> inputs = {b.parameter("x", x), b.parameter("scale", vector)};
  if (bias) inputs.push_back(b.parameter("b", vector));
  return b.finish(
      b.node("y", "LayerNormalization", {{"axis", axis}, {"epsilon", epsilon}}, inputs, 3)[0]);
}

CaseGraph rms_norm(DType dtype, const Shape& x, double epsilon) {
  CaseBuilder b(dtype);
  return b.finish(b.node("y", "RMSNormalization", {{"epsilon", epsilon}},
                         {b.parameter("x", x), b.parameter("scale", {x[x.rank() - 1]})}, 2)[0]);
}

// Returns two terms, the normalization of their sum, and another reader of the sum, which a pass
// fuses. With `dropped`, the second term goes through dropout.
CaseGraph residual_norm(DType dtype, const std::string& op, const Shape& shape, bool bias,
                        bool dropped = false) {
  CaseBuilder b(dtype);
  const int64_t width = shape[shape.rank() - 1];
  const TensorId x = b.one("x", "Tanh", {}, {b.parameter("px", shape)});
  TensorId r = b.one("r", "Sigmoid", {}, {b.parameter("pr", shape)});
  if (dropped) {
    r = b.one(
        "kept", "Dropout",
        {{"ratio", 0.375}, {"seed", int64_t{5}}, {"stream", int64_t{9}}, {"rank", int64_t{2}}},
        {r, b.step(7)});
  }
  const TensorId sum = b.one("sum", "Add", {}, {x, r});
  std::vector<TensorId> inputs = {sum, b.parameter("scale", {width})};
  if (bias) inputs.push_back(b.parameter("b", {width}));
  const size_t outputs = op == "LayerNormalization" ? 3 : 2;
  const TensorId y = b.node("y", op, {{"epsilon", 1e-3}}, inputs, outputs)[0];
  return b.finish(b.one("z", "Add", {}, {b.one("h", "Tanh", {}, {y}), sum}));
}

// Returns a sum with dropout that only the normalization reads, so its gradient comes from there
// alone.
CaseGraph post_norm(DType dtype, const std::string& op, const Shape& shape) {
  CaseBuilder b(dtype);
  const TensorId x = b.one("x", "Tanh", {}, {b.parameter("px", shape)});
  const TensorId kept = b.one("kept", "Dropout", {{"ratio", 0.25}, {"stream", int64_t{2}}},
                              {b.one("r", "Sigmoid", {}, {b.parameter("pr", shape)}), b.step(7)});
  const size_t outputs = op == "LayerNormalization" ? 3 : 2;
  const TensorId scale = b.parameter("scale", {shape[shape.rank() - 1]});
  return b.finish(b.node("y", op, {}, {b.one("sum", "Add", {}, {kept, x}), scale}, outputs)[0]);
}

// Returns a transformer's first feed-forward layer: rows of the product are positions, and GELU is
// between the reshapes.
CaseGraph gelu_rows(DType dtype, int64_t N, int64_t F, int64_t K, bool bias, bool positions,
                    const std::string& form = "tanh", int64_t outputs = 3) {
  CaseBuilder b(dtype);
  const Attributes trans_b{{"transB", int64_t{1}}};
  const auto reshape = [&](const std::string& name, TensorId x, const std::vector<int64_t>& shape) {
    return positions ? b.one(name, "Reshape", {{"shape", shape}}, {x}) : x;
  };
  const TensorId x = b.one("x", "Tanh", {}, {b.parameter("p", {N, F})});
  std::vector<TensorId> inputs = {x, b.parameter("w1", {K, F})};
  if (bias) inputs.push_back(b.parameter("b1", {K}));
  const TensorId h = reshape("h", b.one("product", "Gemm", trans_b, inputs), {1, N, K});
  const TensorId g = b.one("gelu", "Gelu", {{"approximate", form}}, {h});
  const TensorId rows = reshape("rows", g, {N, K});
  return b.finish(b.one("y", "Gemm", trans_b,
                        {rows, b.parameter("w2", {outputs, K}), b.parameter("b2", {outputs})}));
}

// Returns fully connected layers with ReLU between them, as in an MLP.
CaseGraph relu_rows(DType dtype, int64_t N, int64_t F, int64_t K, bool bias) {
  CaseBuilder b(dtype);
  const Attributes trans_b{{"transB", int64_t{1}}};
  TensorId x = b.one("x", "Tanh", {}, {b.parameter("p", {N, F})});
  for (const std::string n : {"1", "2"}) {
    std::vector<TensorId> inputs = {x, b.parameter("w" + n, {K, n == "1" ? F : K})};
    if (bias) inputs.push_back(b.parameter("b" + n, {K}));
    x = b.one("relu" + n, "Relu", {}, {b.one("fc" + n, "Gemm", trans_b, inputs)});
  }
  return b.finish(
      b.one("y", "Gemm", trans_b, {x, b.parameter("w3", {3, K}), b.parameter("b3", {3})}));
}

// Returns two layers of one input, each with a low-rank addition (src/models/lora.h).
CaseGraph low_rank(DType dtype, int64_t N, int64_t F, int64_t K, int64_t rank, bool scaled) {
  CaseBuilder b(dtype);
  const Attributes trans_b{{"transB", int64_t{1}}};
  const TensorId x = b.one("x", "Tanh", {}, {b.parameter("p", {N, F})});
  std::vector<TensorId> layers;
  for (const std::string n : {"1", "2"}) {
    const TensorId base = b.one("base" + n, "Gemm", trans_b,
                                {x, b.parameter("w" + n, {K, F}), b.parameter("b" + n, {K})});
    TensorId u = b.one("u" + n, "Gemm", trans_b, {x, b.parameter("lora_A" + n, {rank, F})});
    if (scaled) u = b.one("scaled" + n, "Mul", {}, {u, b.input("scale" + n, {1, 1})});
    const TensorId v = b.one("v" + n, "Gemm", trans_b, {u, b.parameter("lora_B" + n, {K, rank})});
    layers.push_back(b.one("y" + n, "Add", {}, {base, v}));
  }
  return b.finish(b.one("y", "Mul", {}, layers));
}

CaseGraph gather(DType dtype, const Shape& table, const Shape& indices) {
  CaseBuilder b(dtype);
  return b.finish(b.one("y", "Gather", {},
                        {b.parameter("table", table), b.tokens("indices", indices, table[0])}));
}

// The indices are numbers of the data, converted by a Cast.
CaseGraph gather_codes(DType dtype) {
  CaseBuilder b(dtype);
  const TensorId codes = b.input("codes", {5});
  const TensorId index = b.one("index", "Cast", {{"to", "I32"}}, {codes});
  CaseGraph c = b.finish(b.one("y", "Gather", {}, {b.parameter("table", {4, 3}), index}));
  c.values[codes] = {0, 3, 1, 3, 2};
  return c;
}

// Head and embedding share a table, so its two gradients are summed.
CaseGraph tied_embedding(DType dtype) {
  CaseBuilder b(dtype);
  const TensorId table = b.parameter("table", {7, 5});
  const TensorId tokens = b.tokens("tokens", {2, 3}, 7);
  const TensorId x = b.one("x", "Gather", {}, {table, tokens});
  const TensorId rows = b.one("rows", "Reshape", {{"shape", std::vector<int64_t>{6, 5}}}, {x});
  const TensorId z = b.one("z", "Gemm", {{"transB", int64_t{1}}}, {rows, table});
  return b.finish_with_loss(
      b.node("loss", "SoftmaxCrossEntropyLoss", {}, {z, b.labels("labels", 6, 7)}, 2)[0]);
}

CaseGraph positions(DType dtype, const Shape& x, int64_t prefix) {
  CaseBuilder b(dtype);
  std::vector<TensorId> inputs = {b.parameter("x", x),
                                  b.parameter("position", {prefix + x[1], x[2]})};
  if (prefix > 0) inputs.push_back(b.parameter("prefix", {prefix, x[2]}));
  return b.finish(b.one("y", "PositionEmbedding", {}, inputs));
}

// Positions are out of order, repeated at the end of a row, or outside of the cache. A later node
// reads the cache with the new rows.
CaseGraph tensor_scatter(DType dtype, int64_t width) {
  CaseBuilder b(dtype);
  const TensorId cache = b.cache("cache", {2, 5, width});
  const TensorId positions = b.indices("positions", {2, 4},
                                       {3, 1, 2, 2,  //
                                        4, -1, 5, 0});
  b.node("scatter", "TensorScatter", {}, {cache, b.input("update", {2, 4, width}), positions}, 0);
  return b.finish(b.one("y", "Add", {}, {cache, b.parameter("p", {2, 5, width})}));
}

// A language model's head: rows are positions, and only the loss reads the logits.
struct HeadCase {
  int64_t N, F, K;
  bool bias = false;
  Attributes loss = {};
};
CaseGraph head_loss(DType dtype, const HeadCase& head) {
  CaseBuilder b(dtype);
  const auto& [N, F, K, bias, loss] = head;
  const TensorId x = b.one("x", "Tanh", {}, {b.parameter("p", {N, F})});
  std::vector<TensorId> inputs = {x, b.parameter("w", {K, F})};
  if (bias) inputs.push_back(b.parameter("b", {K}));
  const TensorId y = b.one("y", "Gemm", {{"transB", int64_t{1}}}, inputs);
  const TensorId positions =
      b.one("positions", "Reshape", {{"shape", std::vector<int64_t>{1, N, K}}}, {y});
  const TensorId z = b.one("z", "Reshape", {{"shape", std::vector<int64_t>{N, K}}}, {positions});
  return b.finish_with_loss(
      b.node("loss", "SoftmaxCrossEntropyLoss", loss, {z, b.labels("labels", N, K)}, 2)[0]);
}

void append_heads(std::vector<GraphCase>& cases) {
  const auto row = [&](const std::string& name, const HeadCase& head, bool is_large = false) {
    cases.push_back({"GemmSoftmaxCrossEntropyLoss/" + name,
                     [head](DType t) { return head_loss(t, head); }, is_large});
  };
  std::vector<double> weights(11);
  for (size_t k = 0; k < weights.size(); ++k) weights[k] = 0.25 * static_cast<double>(k);
  row("two", {1, 1, 2});
  row("eights", {5, 3, 8});
  row("odd", {9, 5, 11, true});
  row("all",
      {13,
       6,
       11,
       true,
       {{"label_smoothing", 0.125}, {"class_weights", weights}, {"ignore_index", int64_t{3}}}});
  row("none_counts", {1, 3, 2, true, {{"ignore_index", int64_t{1}}}});
  row("longer", {3, 4, 1031, true, {{"label_smoothing", 0.25}}}, true);
  row("rows", {1100, 3, 5}, true);
  const auto uncounted = [&](const std::string& name, const HeadCase& head, bool is_large = false) {
    cases.push_back({"GemmSoftmaxCrossEntropyLoss/uncounted" + name,
                     [head](DType t) { return with_uncounted(head_loss(t, head)); }, is_large});
  };
  uncounted("", {13, 6, 11, true, {{"class_weights", weights}}});
  uncounted("_one", {1, 3, 8});
  uncounted("_long", {4, 4, 1031, true, {{"label_smoothing", 0.25}}}, true);
}

// x is data, so the gradient node omits dx.
CaseGraph positions_of_data(DType dtype) {
  CaseBuilder b(dtype);
  return b.finish(b.one(
      "y", "PositionEmbedding", {},
      {b.input("x", {3, 2, 5}), b.parameter("position", {3, 5}), b.parameter("prefix", {1, 5})}));
}

/// `more`: how many more tokens there are than positions.
CaseGraph sequence_pool(DType dtype, const Shape& x, const std::string& mode, int64_t vocabulary,
                        int64_t more = 0, int64_t padding = 0) {
  CaseBuilder b(dtype);
  std::vector<TensorId> inputs = {b.parameter("x", x)};
  if (vocabulary > 0) inputs.push_back(b.tokens("tokens", {x[0], x[1] + more}, vocabulary));
  Attributes attributes{{"mode", mode}};
  if (padding > 0) attributes.set("padding_id", padding);
  return b.finish(b.one("y", "SequencePool", std::move(attributes), inputs));
}

CaseGraph reverse_sequence(DType dtype, const Shape& x) {
  CaseBuilder b(dtype);
  const TensorId lengths = b.tokens("lengths", {x[0]}, x[1] + 2);
  return b.finish(b.one("y", "ReverseSequence", {}, {b.parameter("x", x), lengths}));
}

// The lengths are the counts of keys of attention, which reads nothing else.
CaseGraph sequence_lengths(DType dtype, const Shape& tokens, int64_t padding, int64_t vocabulary) {
  CaseBuilder b(dtype);
  const TensorId lengths = b.one("lengths", "SequenceLengths", {{"padding_id", padding}},
                                 {b.tokens("tokens", tokens, vocabulary)});
  const TensorId x = b.parameter("x", {tokens[0], tokens[1], 3});
  return b.finish(b.node("y", "Attention", {{"q_num_heads", int64_t{1}}},
                         {x, kNoTensor, kNoTensor, kNoTensor, kNoTensor, lengths}, 2)[0]);
}

CaseGraph image_to_sequence(DType dtype, const Shape& x) {
  CaseBuilder b(dtype);
  return b.finish(b.one("y", "ImageToSequence", {}, {b.image("x", x)}));
}

// After a convolution the image is channels-last, so the op moves no elements.
CaseGraph patches(DType dtype) {
  CaseBuilder b(dtype);
  const TensorId h =
      b.one("h", "Conv", {{"strides", std::vector<int64_t>{2, 2}}},
            {b.input("x", {2, 3, 4, 6}), b.parameter("w", {5, 3, 2, 2}), b.parameter("b", {5})});
  return b.finish(b.one("y", "ImageToSequence", {}, {h}));
}

/// The input of an attention case that limits which keys its queries see, besides mask and window.
enum class Seen : uint8_t { kPlain, kDocuments, kCached, kCounts };

struct AttentionCase {
  int64_t N, Tq, Tk, H, D;
  bool causal = false;
  double dropout = 0;
  int64_t rank = 0;
  bool computed = false;  // operands and y are activations, stored in the precision's type
  int64_t kv_heads = 0;   // 0: as many as H
  int64_t window = 0;
  Seen seen = Seen::kPlain;
};

TensorId operand(CaseBuilder& b, const std::string& name, TensorId x, bool computed) {
  return computed ? b.one(name + "_tanh", "Tanh", {}, {x}) : x;
}

/// Appends the step number after query, key and value if there is dropout. With packed operands,
/// two inputs stay empty.
void add_dropout(CaseBuilder& b, const AttentionCase& a, Attributes& attributes,
                 std::vector<TensorId>& inputs) {
  if (a.dropout == 0) return;
  attributes.set("dropout", a.dropout);
  if (a.rank > 0) attributes.set("rank", a.rank);
  attributes.set("seed", int64_t{5});
  attributes.set("stream", int64_t{11});
  inputs.resize(3, kNoTensor);
  inputs.push_back(b.step(3));
}

int64_t key_heads(const AttentionCase& a) { return a.kv_heads > 0 ? a.kv_heads : a.H; }

/// Appends positions or key counts, and sets the attributes of groups and windows.
void add_limits(CaseBuilder& b, const AttentionCase& a, Attributes& attributes,
                std::vector<TensorId>& inputs) {
  if (a.kv_heads > 0) attributes.set("kv_num_heads", a.kv_heads);
  if (a.window > 0) attributes.set("window", a.window);
  if (a.seen == Seen::kCached) attributes.set("cached", int64_t{1});
  if (a.seen == Seen::kPlain) return;
  inputs.resize(4, kNoTensor);
  if (a.seen == Seen::kCounts) {
    inputs.push_back(kNoTensor);
    inputs.push_back(b.tokens("key_counts", {a.N}, a.Tk + 2));
  } else {
    inputs.push_back(b.tokens("positions", {a.N, a.Tq}, a.Tk + 2));
  }
}

/// Gives the positions of rows in which documents follow each other, each twice as long as the one
/// before it; the last quarter of the row is padding, of which each token is a document. Of counts
/// of keys, the first becomes 0.
CaseGraph with_limits(CaseGraph c, const AttentionCase& a) {
  if (a.seen == Seen::kCounts) c.values.at(*c.graph.find_tensor("key_counts"))[0] = 0;
  if (a.seen != Seen::kDocuments) return c;
  std::vector<double>& positions = c.values.at(*c.graph.find_tensor("positions"));
  for (int64_t n = 0; n < a.N; ++n) {
    int64_t at = 0, length = n + 1;
    for (int64_t i = 0; i < a.Tq; ++i) {
      const bool padding = i >= a.Tq - a.Tq / 4;
      positions[static_cast<size_t>(n * a.Tq + i)] = padding ? 0 : static_cast<double>(at);
      if (++at == length) {
        at = 0;
        length += length;
      }
    }
  }
  return c;
}

CaseGraph attention(DType dtype, const AttentionCase& a) {
  CaseBuilder b(dtype);
  const auto parameter = [&](const std::string& name, int64_t T, int64_t heads) {
    return operand(b, name, b.parameter(name, {a.N, T, heads * a.D}), a.computed);
  };
  const TensorId q = parameter("q", a.Tq, a.H), k = parameter("k", a.Tk, key_heads(a)),
                 v = parameter("v", a.Tk, key_heads(a));
  Attributes attributes{{"q_num_heads", a.H}, {"is_causal", int64_t{a.causal}}, {"scale", 0.75}};
  std::vector<TensorId> inputs = {q, k, v};
  add_dropout(b, a, attributes, inputs);
  add_limits(b, a, attributes, inputs);
  const TensorId y = b.node("y", "Attention", std::move(attributes), std::move(inputs), 2)[0];
  return with_limits(b.finish(operand(b, "y", y, a.computed)), a);
}

CaseGraph packed_attention(DType dtype, const AttentionCase& a) {
  CaseBuilder b(dtype);
  const TensorId qkv = operand(
      b, "qkv", b.parameter("qkv", {a.N, a.Tq, (a.H + 2 * key_heads(a)) * a.D}), a.computed);
  Attributes attributes{{"q_num_heads", a.H}, {"is_causal", int64_t{a.causal}}};
  std::vector<TensorId> inputs = {qkv};
  add_dropout(b, a, attributes, inputs);
  add_limits(b, a, attributes, inputs);
  const TensorId y = b.node("y", "Attention", std::move(attributes), std::move(inputs), 2)[0];
  return with_limits(b.finish(operand(b, "y", y, a.computed)), a);
}

// Only the query gets a gradient.
CaseGraph attention_to_data(DType dtype, int64_t width, bool computed = false) {
  CaseBuilder b(dtype);
  const TensorId q = operand(b, "q", b.parameter("q", {2, 3, width}), computed),
                 k = operand(b, "k", b.input("k", {2, 4, width}), computed),
                 v = operand(b, "v", b.input("v", {2, 4, width}), computed);
  const TensorId y = b.node("y", "Attention", {{"q_num_heads", int64_t{2}}}, {q, k, v}, 2)[0];
  return b.finish(operand(b, "y", y, computed));
}

struct RotaryCase {
  int64_t N, T, H, D, R;
  bool interleaved = false;
  // "none": one table row for each place in a row, "longer": and more; "tables": tables of each
  // token's position; "rows": positions name rows of one table.
  std::string positions = "none";
};

CaseGraph rotary(DType dtype, const RotaryCase& r) {
  CaseBuilder b(dtype);
  std::vector<double> frequencies;
  for (int64_t j = 0; j < r.R / 2; ++j) {
    frequencies.push_back(
        std::pow(100.0, -2.0 * static_cast<double>(j) / static_cast<double>(r.R)));
  }
  Attributes tables{
      {"frequencies", frequencies}, {"factor", 1.25}, {"dtype", std::string(name_of(dtype))}};
  std::vector<TensorId> places;
  if (r.positions == "tables" || r.positions == "rows")
    places.push_back(b.tokens("positions", {r.N, r.T}, 9));
  std::vector<TensorId> of_tables;
  if (r.positions == "tables") {
    of_tables = places;
  } else {
    tables.set("length", r.positions == "none" ? r.T : int64_t{9});
  }
  const std::vector<TensorId> table = b.node("tables", "RotaryTables", tables, of_tables, 2);
  std::vector<TensorId> inputs = {b.parameter("x", {r.N, r.T, r.H * r.D}), table[0], table[1]};
  if (r.positions == "rows") inputs.push_back(places[0]);
  return b.finish(b.one("y", "RotaryEmbedding",
                        {{"num_heads", r.H}, {"interleaved", int64_t{r.interleaved}}},
                        std::move(inputs)));
}

CaseGraph mat_mul(DType dtype, const Shape& a, const Shape& b) {
  CaseBuilder builder(dtype);
  return builder.finish(
      builder.one("y", "MatMul", {}, {builder.parameter("a", a), builder.parameter("b", b)}));
}

// Only b gets a gradient.
CaseGraph mat_mul_of_data(DType dtype) {
  CaseBuilder b(dtype);
  return b.finish(b.one("y", "MatMul", {}, {b.input("a", {2, 3, 5}), b.parameter("b", {2, 5, 4})}));
}

CaseGraph softmax(DType dtype, const std::string& op, const Shape& x, int64_t axis) {
  CaseBuilder b(dtype);
  return b.finish(b.one("y", op, {{"axis", axis}}, {b.parameter("x", x)}));
}

// Appends cases with rows and tables larger than one thread, warp, block or tile handles, with
// widths that are multiples of four and others.
void append_large(std::vector<GraphCase>& cases) {
  const auto row = [&](std::string name, std::function<CaseGraph(DType)> build) {
    cases.push_back({std::move(name), std::move(build), /*is_large=*/true});
  };
  row("LayerNormalization/warps", [](DType t) { return layer_norm(t, {5, 132}, -1, true); });
  row("LayerNormalization/few_long", [](DType t) { return layer_norm(t, {3, 260}, -1, true); });
  row("LayerNormalization/longer", [](DType t) { return layer_norm(t, {2, 1031}, -1, false); });
  row("LayerNormalization/many", [](DType t) { return layer_norm(t, {197, 6}, -1, true); });
  row("SkipNormalization/layer_odd", [](DType t) {
    return residual_norm(t, "LayerNormalization", {2, 3, 17}, true);
  });
  row("SkipNormalization/layer_fours", [](DType t) {
    return residual_norm(t, "LayerNormalization", {5, 36}, true);
  });
  row("SkipNormalization/layer_long", [](DType t) {
    return residual_norm(t, "LayerNormalization", {2, 1031}, false);
  });
  row("SkipNormalization/rms_odd", [](DType t) {
    return residual_norm(t, "RMSNormalization", {5, 19}, false);
  });
  row("SkipNormalization/rms_fours", [](DType t) {
    return residual_norm(t, "RMSNormalization", {2, 3, 8}, false);
  });
  row("SkipNormalization/dropout_layer_odd", [](DType t) {
    return residual_norm(t, "LayerNormalization", {2, 3, 17}, true, true);
  });
  row("SkipNormalization/dropout_layer_fours", [](DType t) {
    return residual_norm(t, "LayerNormalization", {5, 36}, true, true);
  });
  row("SkipNormalization/dropout_layer_long", [](DType t) {
    return residual_norm(t, "LayerNormalization", {2, 1032}, false, true);
  });
  row("SkipNormalization/dropout_rms_odd", [](DType t) {
    return residual_norm(t, "RMSNormalization", {5, 19}, false, true);
  });
  row("SkipNormalization/dropout_rms_fours", [](DType t) {
    return residual_norm(t, "RMSNormalization", {2, 3, 8}, false, true);
  });
  row("SkipNormalization/dropout_layer_post", [](DType t) {
    return post_norm(t, "LayerNormalization", {3, 20});
  });
  row("SkipNormalization/dropout_rms_post", [](DType t) {
    return post_norm(t, "RMSNormalization", {2, 2, 7});
  });
  append_heads(cases);
  row("GemmGelu/eights", [](DType t) { return gelu_rows(t, 5, 7, 16, true, false); });
  row("GemmGelu/positions", [](DType t) { return gelu_rows(t, 6, 5, 8, true, true); });
  row("GemmGelu/no_bias", [](DType t) { return gelu_rows(t, 3, 4, 8, false, true); });
  row("GemmGelu/odd", [](DType t) { return gelu_rows(t, 4, 3, 9, true, true); });
  row("GemmGelu/exact", [](DType t) { return gelu_rows(t, 5, 8, 16, true, true, "none", 8); });
  row("GemmGelu/exact_without_bias",
      [](DType t) { return gelu_rows(t, 3, 16, 8, false, false, "none", 24); });
  row("GemmGelu/exact_odd", [](DType t) { return gelu_rows(t, 4, 3, 9, true, true, "none"); });
  row("GemmAdd/small", [](DType t) { return low_rank(t, 5, 7, 6, 2, true); });
  row("GemmAdd/unscaled", [](DType t) { return low_rank(t, 3, 9, 4, 3, false); });
  row("GemmRelu/eights", [](DType t) { return relu_rows(t, 5, 7, 16, true); });
  row("GemmRelu/odd", [](DType t) { return relu_rows(t, 6, 4, 9, true); });
  row("GemmRelu/bits", [](DType t) { return relu_rows(t, 3, 5, 136, true); });
  row("GemmRelu/no_bias", [](DType t) { return relu_rows(t, 4, 6, 8, false); });
  row("RMSNormalization/many", [](DType t) { return rms_norm(t, {150, 8}, 1e-3); });
  row("RMSNormalization/long", [](DType t) { return rms_norm(t, {2, 1028}, 1e-3); });
  row("Gather/large_table", [](DType t) { return gather(t, {700, 4}, {3, 211}); });
  row("Gather/few_rows", [](DType t) { return gather(t, {3, 5}, {2, 130}); });
  row("Gather/one_row", [](DType t) { return gather(t, {1, 8}, {97}); });
  row("PositionEmbedding/many", [](DType t) { return positions(t, {130, 2, 4}, 1); });
  row("PositionEmbedding/fours", [](DType t) { return positions(t, {3, 5, 12}, 2); });
  row("SequencePool/long", [](DType t) { return sequence_pool(t, {2, 70, 132}, "mean", 3); });
  row("SequencePool/long_last", [](DType t) { return sequence_pool(t, {2, 70, 33}, "last", 4); });
  row("SequencePool/long_max", [](DType t) { return sequence_pool(t, {2, 70, 33}, "max", 2, 3); });
  row("ImageToSequence/tiles", [](DType t) { return image_to_sequence(t, {2, 37, 5, 9}); });
  row("RotaryEmbedding/fours", [](DType t) { return rotary(t, {2, 37, 3, 16, 16}); });
  row("RotaryEmbedding/interleaved_fours", [](DType t) {
    return rotary(t, {2, 37, 3, 16, 8, true, "tables"});
  });
  row("MatMul/heads", [](DType t) { return mat_mul(t, {2, 3, 16, 8}, {2, 3, 8, 20}); });
  row("MatMul/one_left_of_many", [](DType t) { return mat_mul(t, {16, 8}, {11, 8, 12}); });
  for (const std::string op : {"Softmax", "LogSoftmax"}) {
    row(op + "/warps", [op](DType t) { return softmax(t, op, {11, 132}, -1); });
    row(op + "/few_long", [op](DType t) { return softmax(t, op, {3, 257}, -1); });
    row(op + "/longer", [op](DType t) { return softmax(t, op, {2, 1100}, -1); });
    row(op + "/spans", [op](DType t) { return softmax(t, op, {2, 37, 150}, 1); });
  }
  // Sizes are one more than a tile of queries and of keys, and widths on both sides of every size
  // at which the kernels change.
  row("Attention/tiles", [](DType t) { return attention(t, {2, 65, 130, 2, 12}); });
  row("Attention/tiles_causal", [](DType t) { return attention(t, {1, 130, 130, 2, 4, true}); });
  row("Attention/tiles_more_keys", [](DType t) { return attention(t, {1, 66, 140, 1, 3, true}); });
  row("Attention/tiles_more_queries", [](DType t) {
    return attention(t, {1, 140, 66, 1, 3, true});
  });
  for (const int64_t D : {33, 64, 68, 129, 160, 257, 260}) {
    row("Attention/width" + std::to_string(D), [D](DType t) {
      return attention(t, {1, 5, 7, 2, D});
    });
  }
  // Head widths are multiples of eight, for which a GPU library has 16-bit kernels.
  const auto eights = [&](const std::string& name, AttentionCase a) {
    a.computed = true;
    row("Attention/eights" + name, [a](DType t) { return attention(t, a); });
  };
  eights("", {2, 7, 7, 2, 8});
  eights("_causal", {2, 33, 33, 1, 16, true});
  eights("_more_keys", {2, 5, 11, 2, 8, true});
  eights("_more_queries", {1, 11, 5, 3, 24, true});
  eights("_one_query", {2, 1, 9, 2, 8});
  eights("_dropout", {2, 5, 7, 2, 8, true, 0.25});
  row("Attention/eights_packed", [](DType t) {
    return packed_attention(t, {2, 9, 9, 3, 8, false, 0, 0, true});
  });
  row("Attention/eights_packed_causal", [](DType t) {
    return packed_attention(t, {2, 67, 67, 2, 64, true, 0, 0, true});
  });
  row("Attention/eights_to_data", [](DType t) { return attention_to_data(t, 16, true); });
  row("Attention/packed_width", [](DType t) {
    return packed_attention(t, {1, 66, 66, 2, 36, true});
  });
  row("Attention/width_dropout", [](DType t) {
    return attention(t, {1, 65, 67, 1, 72, true, 0.25});
  });
  row("Attention/wide_causal", [](DType t) {
    return packed_attention(t, {1, 3, 3, 2, 258, true, 0.25});
  });
  row("Attention/wide_long", [](DType t) { return attention(t, {1, 2, 300, 1, 257, false, 0.5}); });
  row("Attention/wide_long_queries", [](DType t) {
    return attention(t, {1, 300, 2, 1, 257, true, 0.5});
  });
}

}  // namespace

void append_sequence_cases(std::vector<GraphCase>& cases) {
  const auto row = [&](std::string name, std::function<CaseGraph(DType)> build) {
    cases.push_back({std::move(name), std::move(build)});
  };
  // A single value is its own mean: dx is 0, but a rounding error would be divided by the root of
  // epsilon.
  row("LayerNormalization/one", [](DType t) { return layer_norm(t, {1, 1}, -1, true, 1.0); });
  row("LayerNormalization/odd", [](DType t) { return layer_norm(t, {2, 3, 17}, -1, true); });
  row("LayerNormalization/two_axes", [](DType t) { return layer_norm(t, {3, 5, 7}, 1, false); });
  row("RMSNormalization/one", [](DType t) { return rms_norm(t, {1, 1}, 1.0); });
  row("RMSNormalization/odd", [](DType t) { return rms_norm(t, {5, 19}, 1e-3); });
  row("Gather/one", [](DType t) { return gather(t, {1, 1}, {1}); });
  row("Gather/odd", [](DType t) { return gather(t, {5, 3}, {2, 7}); });
  row("Gather/tables", [](DType t) { return gather(t, {3, 2, 5}, {2, 1, 4}); });
  row("Gather/tied", tied_embedding);
  row("Gather/codes", gather_codes);
  row("TensorScatter/odd", [](DType t) { return tensor_scatter(t, 7); });
  row("TensorScatter/fours", [](DType t) { return tensor_scatter(t, 12); });
  row("PositionEmbedding/one", [](DType t) { return positions(t, {1, 1, 1}, 0); });
  row("PositionEmbedding/odd", [](DType t) { return positions(t, {3, 5, 7}, 0); });
  row("PositionEmbedding/prefix", [](DType t) { return positions(t, {3, 2, 5}, 2); });
  row("PositionEmbedding/data", positions_of_data);
  row("RotaryEmbedding/one", [](DType t) { return rotary(t, {1, 1, 1, 2, 2}); });
  row("RotaryEmbedding/odd", [](DType t) { return rotary(t, {3, 5, 2, 6, 6}); });
  row("RotaryEmbedding/part", [](DType t) { return rotary(t, {2, 3, 2, 7, 4, false, "tables"}); });
  row("RotaryEmbedding/interleaved", [](DType t) { return rotary(t, {2, 3, 1, 7, 6, true}); });
  row("RotaryEmbedding/rows", [](DType t) { return rotary(t, {2, 3, 2, 4, 4, false, "rows"}); });
  row("RotaryEmbedding/longer", [](DType t) {
    return rotary(t, {3, 4, 1, 4, 4, false, "longer"});
  });
  row("RotaryTables/tokens", [](DType t) { return rotary(t, {2, 5, 1, 6, 6, true, "tables"}); });
  row("ReverseSequence/odd", [](DType t) { return reverse_sequence(t, {5, 7, 3}); });
  row("ReverseSequence/fours", [](DType t) { return reverse_sequence(t, {3, 2, 8}); });
  row("SequenceLengths/odd", [](DType t) { return sequence_lengths(t, {5, 7}, 0, 2); });
  row("SequenceLengths/other_padding", [](DType t) { return sequence_lengths(t, {9, 3}, 1, 3); });
  row("SequenceLengths/long", [](DType t) { return sequence_lengths(t, {2, 70}, 0, 2); });
  row("SequencePool/mean", [](DType t) { return sequence_pool(t, {3, 5, 7}, "mean", 0); });
  row("SequencePool/first", [](DType t) { return sequence_pool(t, {3, 5, 7}, "first", 0); });
  row("SequencePool/last", [](DType t) { return sequence_pool(t, {3, 5, 7}, "last", 0); });
  row("SequencePool/last_padded", [](DType t) { return sequence_pool(t, {3, 5, 7}, "last", 3); });
  for (const char* mode : {"last", "mean", "max"}) {
    row("SequencePool/" + std::string(mode) + "_padding_id", [mode](DType t) {
      return sequence_pool(t, {4, 5, 7}, mode, 3, 0, 2);
    });
  }
  row("SequencePool/last_nothing", [](DType t) { return sequence_pool(t, {2, 3, 5}, "last", 1); });
  row("SequencePool/padded", [](DType t) { return sequence_pool(t, {3, 5, 7}, "mean", 3); });
  row("SequencePool/nothing", [](DType t) { return sequence_pool(t, {2, 3, 5}, "mean", 1); });
  row("SequencePool/max", [](DType t) { return sequence_pool(t, {3, 5, 7}, "max", 0); });
  row("SequencePool/max_padded", [](DType t) { return sequence_pool(t, {4, 5, 17}, "max", 3); });
  row("SequencePool/max_windows", [](DType t) { return sequence_pool(t, {5, 3, 5}, "max", 3, 2); });
  row("SequencePool/max_nothing", [](DType t) { return sequence_pool(t, {2, 3, 5}, "max", 1); });
  row("ImageToSequence", [](DType t) { return image_to_sequence(t, {2, 3, 2, 5}); });
  row("ImageToSequence/patches", patches);
  row("MatMul/one", [](DType t) { return mat_mul(t, {1, 1}, {1, 1}); });
  row("MatMul/odd", [](DType t) { return mat_mul(t, {3, 5, 7}, {3, 7, 11}); });
  row("MatMul/one_right", [](DType t) { return mat_mul(t, {2, 3, 5, 4}, {4, 3}); });
  row("MatMul/one_left", [](DType t) { return mat_mul(t, {3, 5}, {2, 5, 4}); });
  row("MatMul/both_broadcast", [](DType t) { return mat_mul(t, {2, 1, 3, 5}, {3, 5, 2}); });
  row("MatMul/row", [](DType t) { return mat_mul(t, {5}, {2, 5, 3}); });
  row("MatMul/column", [](DType t) { return mat_mul(t, {2, 3, 5}, {5}); });
  row("MatMul/dot", [](DType t) { return mat_mul(t, {5}, {5}); });
  row("MatMul/data", mat_mul_of_data);
  for (const std::string op : {"Softmax", "LogSoftmax"}) {
    row(op + "/one", [op](DType t) { return softmax(t, op, {1, 1}, -1); });
    row(op + "/odd", [op](DType t) { return softmax(t, op, {3, 2, 37}, -1); });
    row(op + "/inside", [op](DType t) { return softmax(t, op, {3, 5, 7}, 1); });
    row(op + "/first", [op](DType t) { return softmax(t, op, {5, 3}, 0); });
  }
  row("Attention/one", [](DType t) { return attention(t, {1, 1, 1, 1, 1}); });
  row("Attention/odd", [](DType t) { return attention(t, {2, 3, 5, 3, 5}); });
  row("Attention/causal", [](DType t) { return attention(t, {2, 5, 5, 1, 7, true}); });
  row("Attention/causal_more_queries", [](DType t) { return attention(t, {1, 7, 3, 2, 3, true}); });
  row("Attention/causal_more_keys", [](DType t) { return attention(t, {1, 3, 7, 2, 3, true}); });
  row("Attention/packed", [](DType t) { return packed_attention(t, {2, 5, 5, 3, 3}); });
  row("Attention/packed_causal", [](DType t) {
    return packed_attention(t, {1, 5, 5, 2, 5, true});
  });
  row("Attention/dropout", [](DType t) { return attention(t, {2, 3, 5, 3, 5, false, 0.25}); });
  row("Attention/dropout_rank", [](DType t) {
    return attention(t, {2, 3, 5, 3, 5, false, 0.25, 3});
  });
  row("Attention/dropout_causal", [](DType t) { return attention(t, {1, 7, 6, 2, 3, true, 0.5}); });
  row("Attention/dropout_packed", [](DType t) {
    return packed_attention(t, {2, 9, 9, 2, 3, true, 0.3});
  });
  row("Attention/dropout_tiles", [](DType t) {
    return attention(t, {1, 67, 70, 1, 2, false, 0.1});
  });
  row("Attention/data", [](DType t) { return attention_to_data(t, 6); });
  // Each row: causal, dropout, rank, computed, heads of keys, window, what limits the keys.
  const auto limited = [&](const std::string& name, const AttentionCase& a) {
    row("Attention/" + name, [a](DType t) { return attention(t, a); });
  };
  const auto limited_packed = [&](const std::string& name, const AttentionCase& a) {
    row("Attention/" + name, [a](DType t) { return packed_attention(t, a); });
  };
  limited("grouped", {2, 3, 5, 6, 5, false, 0, 0, false, 2});
  limited("grouped_causal", {1, 7, 7, 4, 4, true, 0, 0, false, 1});
  limited_packed("grouped_packed", {2, 5, 5, 4, 3, true, 0, 0, false, 2});
  limited("grouped_dropout", {1, 6, 6, 4, 3, true, 0.25, 0, false, 2});
  limited("window", {1, 9, 9, 2, 3, true, 0, 0, false, 0, 3});
  limited("window_more_queries", {1, 9, 3, 2, 3, true, 0, 0, false, 0, 2});
  limited("documents", {2, 12, 12, 2, 3, true, 0, 0, false, 0, 0, Seen::kDocuments});
  limited_packed("documents_packed",
                 {2, 13, 13, 4, 4, true, 0.25, 0, false, 2, 3, Seen::kDocuments});
  limited("cached", {2, 3, 7, 4, 4, true, 0, 0, false, 2, 0, Seen::kCached});
  limited("cached_window", {2, 3, 9, 2, 5, true, 0, 0, false, 1, 4, Seen::kCached});
  limited("counts", {4, 5, 7, 2, 3, false, 0, 0, false, 0, 0, Seen::kCounts});
  limited_packed("counts_packed", {4, 6, 6, 4, 4, false, 0.25, 0, false, 2, 0, Seen::kCounts});
  append_large(cases);
}

}  // namespace trainyard::testing
