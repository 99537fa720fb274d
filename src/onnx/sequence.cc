// Writes ops on sequences and rows of tokens: attention, normalization, recurrence, embeddings,
// softmax.
#include <cmath>
#include <limits>
#include <numeric>

#include "src/onnx/op_table.h"
#include "src/ops/layer_normalization.h"

namespace trainyard::onnx {
namespace {

using Names = std::vector<std::string>;

void write_softmax(NodeWriter& w) {
  w.put(w.op(), {w.input(0)}, {{"axis", w.attributes().get_int("axis", -1)}});
}

void write_layer_normalization(NodeWriter& w) {
  w.put("LayerNormalization", w.inputs(),
        {{"axis", normalization_axis(w.attributes(), w.shape(0))},
         {"epsilon", w.attributes().get_float("epsilon", 1e-5)}});
}

// Writes nodes for y = x / sqrt(mean(x^2) + epsilon) * scale. ONNX has an RMSNormalization node
// only since opset 23.
void write_rms_normalization(NodeWriter& w) {
  std::vector<int64_t> axes;
  for (int64_t i = normalization_axis(w.attributes(), w.shape(0)); i < w.shape(0).rank(); ++i) {
    axes.push_back(i);
  }
  const auto epsilon = static_cast<float>(w.attributes().get_float("epsilon", 1e-5));
  const std::string square = w.put_between("square", "Mul", {w.input(0), w.input(0)});
  const std::string mean = w.put_between("mean", "ReduceMean", {square, w.onnx().constant(axes)});
  const std::string sum = w.put_between("sum", "Add", {mean, w.onnx().constant(epsilon)});
  const std::string rms = w.put_between("rms", "Sqrt", {sum});
  w.put("Mul", {w.put_between("normal", "Div", {w.input(0), rms}), w.input(1)});
}

/// Returns a mask that is minus infinity where a query does not see a key, and 0 where it does. A
/// query sees no key above the diagonal, and with a window none that is `window` or more below it.
std::string write_causal_mask(NodeWriter& w, int64_t queries, int64_t keys) {
  GraphWriter& onnx = w.onnx();
  const std::string hidden = w.put_between(
      "hidden", "Expand",
      {onnx.constant(-std::numeric_limits<float>::infinity()), onnx.constant({queries, keys})});
  const std::string mask =
      w.put_between("mask", "Trilu", {hidden, onnx.constant(int64_t{1})}, {{"upper", int64_t{1}}});
  const int64_t window = w.attributes().get_int("window", 0);
  if (window == 0) return mask;
  const std::string old =
      w.put_between("old", "Trilu", {hidden, onnx.constant(-window)}, {{"upper", int64_t{0}}});
  return w.put_between("band", "Add", {mask, old});
}

/// Returns a mask that has the lowest number at the keys from the row's count on, and 0 at the keys
/// before them. The scores have `rank` dimensions. If the count is 0, all weights are equal, and
/// the result is to be multiplied by 0, which is then the value `some`.
std::string write_count_mask(NodeWriter& w, int64_t keys, int64_t rank) {
  GraphWriter& onnx = w.onnx();
  std::vector<int64_t> numbers(static_cast<size_t>(keys)), behind(static_cast<size_t>(rank - 1));
  std::iota(numbers.begin(), numbers.end(), int64_t{0});
  std::iota(behind.begin(), behind.end(), int64_t{1});
  const std::string counts =
      w.put_between("counts", "Unsqueeze", {w.input(5), onnx.constant(behind)});
  const std::string seen = w.put_between("seen", "Less", {onnx.constant(numbers), counts});
  const std::string least = w.put_between("least", "Min", {counts, onnx.constant(int64_t{1})});
  w.put_between("some", "Cast", {least}, {{"to", data_type_of(DType::kF32)}});
  return w.put_between(
      "padding_mask", "Where",
      {seen, onnx.constant(0.0f), onnx.constant(std::numeric_limits<float>::lowest())});
}

// Writes nodes for softmax(scale q k^T + mask) v of each head. ONNX has an Attention node only
// since opset 23. If several heads of queries share one of keys, they are an axis of their own,
// over which the products broadcast.
void write_attention(NodeWriter& w) {
  GraphWriter& onnx = w.onnx();
  const int64_t heads = w.attributes().get_int("q_num_heads", 1);
  const int64_t kv = w.attributes().get_int("kv_num_heads", heads);
  const bool is_packed = !w.has_input(1), is_grouped = kv != heads;
  const int64_t head = w.shape(0)[2] / (is_packed ? heads + 2 * kv : heads);
  const int64_t width = heads * head;  // of all heads of y together
  Names qkv = {w.input(0), w.input(1), w.input(2)};
  if (is_packed) {
    qkv = {w.between("query"), w.between("key"), w.between("value")};
    onnx.add_node_with_outputs("Split", {w.input(0), onnx.constant({width, kv * head, kv * head})},
                               qkv, {{"axis", int64_t{2}}});
  }
  const int64_t queries = w.shape(0)[1];
  const int64_t keys = w.shape(is_packed ? 0 : 1)[1];
  const auto by_head = [&](const std::string& x, const std::string& what, int64_t positions,
                           int64_t group, bool transposed) {
    std::vector<int64_t> dims = {kBatch, positions, kv * group, head};
    std::vector<int64_t> perm = {0, 2, 1, 3};
    if (is_grouped) {
      dims = {kBatch, positions, kv, group, head};
      perm = {0, 2, 3, 1, 4};
    }
    if (transposed) std::swap(perm[perm.size() - 2], perm.back());
    const std::string split = w.put_between(what + "_heads", "Reshape", {x, onnx.constant(dims)});
    return w.put_between(what + "_by_head", "Transpose", {split}, {{"perm", std::move(perm)}});
  };
  const std::string query = by_head(qkv[0], "query", queries, heads / kv, false);
  const std::string key = by_head(qkv[1], "key", keys, 1, true);
  const std::string value = by_head(qkv[2], "value", keys, 1, false);

  const double scale = w.attributes().get_float("scale", 1 / std::sqrt(static_cast<double>(head)));
  const std::string scaled =
      w.put_between("scaled", "Mul", {query, onnx.constant(static_cast<float>(scale))});
  std::string scores = w.put_between("scores", "MatMul", {scaled, key});
  if (w.attributes().get_int("is_causal", 0) != 0) {
    scores = w.put_between("masked", "Add", {scores, write_causal_mask(w, queries, keys)});
  }
  const bool has_counts = w.has_input(5);
  if (has_counts) {
    const std::string mask = write_count_mask(w, keys, is_grouped ? 5 : 4);
    scores = w.put_between("counted", "Add", {scores, mask});
  }
  const std::string weights =
      w.put_between("weights", "Softmax", {scores}, {{"axis", int64_t{-1}}});
  std::string mixed = w.put_between("mixed", "MatMul", {weights, value});
  if (has_counts) mixed = w.put_between("of_some", "Mul", {mixed, w.between("some")});
  const std::vector<int64_t> perm =
      is_grouped ? std::vector<int64_t>{0, 3, 1, 2, 4} : std::vector<int64_t>{0, 2, 1, 3};
  const std::string back = w.put_between("back", "Transpose", {mixed}, {{"perm", perm}});
  w.put("Reshape", {back, onnx.constant({kBatch, queries, width})});
}

/// Returns the token of the node's attribute that fills the end of short texts.
int64_t padding_of(const NodeWriter& w) { return w.attributes().get_int("padding_id", 0); }

/// Position t has the number t + 1, or 0 if it is padding, so the largest number is the length.
void write_sequence_lengths(NodeWriter& w) {
  GraphWriter& onnx = w.onnx();
  std::vector<int64_t> numbers(static_cast<size_t>(w.shape(0)[1]));
  std::iota(numbers.begin(), numbers.end(), int64_t{1});
  const std::string equal =
      w.put_between("is_padding", "Equal", {w.input(0), onnx.constant(padding_of(w))});
  const std::string counts = w.put_between("is_token", "Not", {equal});
  const std::string mask =
      w.put_between("mask", "Cast", {counts}, {{"to", data_type_of(DType::kI64)}});
  const std::string ranks = w.put_between("ranks", "Mul", {mask, onnx.constant(numbers)});
  w.put("ReduceMax", {ranks, onnx.constant(std::vector<int64_t>{1})}, {{"keepdims", int64_t{0}}});
}

void write_reverse_sequence(NodeWriter& w) {
  w.put("ReverseSequence", w.inputs(), {{"batch_axis", int64_t{0}}, {"time_axis", int64_t{1}}});
}

/// Splits the rows of an input into gates, and concatenates these in ONNX's order: `order` has, for
/// each of ONNX's gates, its index in the op's order.
std::string reorder_gates(NodeWriter& w, size_t input, const std::vector<size_t>& order,
                          int64_t hidden) {
  const std::string what = "operand" + std::to_string(input);
  Names gates;
  for (size_t i = 0; i < order.size(); ++i) {
    gates.push_back(w.between(what + "_gate" + std::to_string(i)));
  }
  const std::vector<int64_t> sizes(order.size(), hidden);
  w.onnx().add_node_with_outputs("Split", {w.input(input), w.onnx().constant(sizes)}, gates,
                                 {{"axis", int64_t{0}}});
  Names reordered;
  for (const size_t i : order) reordered.push_back(gates[i]);
  return w.put_between(what + "_gates", "Concat", std::move(reordered), {{"axis", int64_t{0}}});
}

// ONNX has time as the first axis, an axis for directions, and the gate order i, o, f, c or z, r,
// h, where the op has i, f, g, o or r, z, n. (Runtimes do not support batch first, layout 1.) Nodes
// in the file reorder the weights, so that initializers stay the same as in training.
void write_recurrent(NodeWriter& w) {
  GraphWriter& onnx = w.onnx();
  const bool is_lstm = w.op() == "LSTM";
  const int64_t hidden = w.shape(2)[1];
  const std::vector<size_t> order =
      is_lstm ? std::vector<size_t>{0, 3, 1, 2} : std::vector<size_t>{1, 0, 2};
  const std::string first = onnx.constant(std::vector<int64_t>{0});
  const std::vector<int64_t> swap = {1, 0, 2};

  Names operands = {w.put_between("time_first", "Transpose", {w.input(0)}, {{"perm", swap}})};
  for (const size_t i : {size_t{1}, size_t{2}}) {
    operands.push_back(w.put_between("weights" + std::to_string(i), "Unsqueeze",
                                     {reorder_gates(w, i, order, hidden), first}));
  }
  if (w.has_input(3)) {
    const std::string biases =
        w.put_between("both_biases", "Concat",
                      {reorder_gates(w, 3, order, hidden), reorder_gates(w, 4, order, hidden)},
                      {{"axis", int64_t{0}}});
    operands.push_back(w.put_between("biases", "Unsqueeze", {biases, first}));
  }
  Attributes attributes = {{"hidden_size", hidden},
                           {"direction", w.attributes().get_string("direction", "forward")}};
  if (!is_lstm) attributes.set("linear_before_reset", int64_t{1});
  onnx.add_node_with_outputs(w.op(), operands, {w.between("sequence"), w.between("last")},
                             attributes);
  const std::string sequence = w.put_between(
      "one_direction", "Squeeze", {w.between("sequence"), onnx.constant(std::vector<int64_t>{1})});
  w.put("Transpose", {sequence}, {{"perm", swap}});
  onnx.add_node("Squeeze", {w.between("last"), first}, w.output(1));
}

/// Writes the sum or mean of the vectors [N, T, D] whose token is not `padding`; zeros if there are
/// none.
void write_masked_sum(NodeWriter& w, const std::string& vectors, const std::string& tokens,
                      int64_t padding, bool is_mean) {
  GraphWriter& onnx = w.onnx();
  const std::string second = onnx.constant(std::vector<int64_t>{1});
  const std::string equal = w.put_between("is_padding", "Equal", {tokens, onnx.constant(padding)});
  const std::string counts = w.put_between("counts", "Not", {equal});
  const std::string mask =
      w.put_between("mask", "Cast", {counts}, {{"to", data_type_of(DType::kF32)}});
  const std::string row = w.put_between("row", "Unsqueeze", {mask, second});  // shape [N, 1, T]
  const std::string product = w.put_between("product", "MatMul", {row, vectors});
  if (!is_mean) return w.put("Squeeze", {product, second});
  const std::string sum = w.put_between("sum", "Squeeze", {product, second});
  const std::string count = w.put_between("count", "ReduceSum", {mask, second});  // shape [N, 1]
  const std::string at_least_one = w.put_between("divisor", "Max", {count, onnx.constant(1.0f)});
  w.put("Div", {sum, at_least_one});
}

/// Writes the vector of the last token that is not padding; zeros if there is none. Position t has
/// the number t + 1, or 0 if it is padding, so the largest number belongs to the last token.
void write_last_token(NodeWriter& w) {
  GraphWriter& onnx = w.onnx();
  std::vector<int64_t> numbers(static_cast<size_t>(w.shape(0)[1]));
  std::iota(numbers.begin(), numbers.end(), int64_t{1});
  const std::string equal =
      w.put_between("is_padding", "Equal", {w.input(1), onnx.constant(padding_of(w))});
  const std::string counts = w.put_between("counts", "Not", {equal});
  const std::string mask =
      w.put_between("mask", "Cast", {counts}, {{"to", data_type_of(DType::kI64)}});
  const std::string ranks = w.put_between("ranks", "Mul", {mask, onnx.constant(numbers)});
  const std::string last = w.put_between("last", "ArgMax", {ranks}, {{"axis", int64_t{1}}});
  const std::string vector =
      w.put_between("vector", "GatherND", {w.input(0), last}, {{"batch_dims", int64_t{1}}});
  const std::string some =
      w.put_between("some", "ReduceMax", {mask, onnx.constant(std::vector<int64_t>{1})});
  const std::string share =
      w.put_between("share", "Cast", {some}, {{"to", data_type_of(DType::kF32)}});
  w.put("Mul", {vector, share});
}

/// Returns numbers that are 0 for padding and positive for other tokens.
std::string write_distance_to_padding(NodeWriter& w, const std::string& tokens) {
  const int64_t padding = padding_of(w);
  if (padding == 0) return tokens;
  const std::string difference =
      w.put_between("to_padding", "Sub", {tokens, w.onnx().constant(padding)});
  return w.put_between("to_padding_squared", "Mul", {difference, difference});
}

/// Writes the maximum over the positions, or over those whose last token is not padding and the
/// first. Padding is only at the end.
void write_sequence_max(NodeWriter& w) {
  GraphWriter& onnx = w.onnx();
  const std::string second = onnx.constant(std::vector<int64_t>{1});
  std::string x = w.input(0);
  if (w.has_input(1)) {
    const int64_t length = w.shape(0)[1];
    std::vector<int64_t> last(static_cast<size_t>(length));  // of each position's tokens
    std::iota(last.begin(), last.end(), w.shape(1)[1] - length);
    std::vector<int64_t> is_first(static_cast<size_t>(length), 0);
    is_first[0] = 1;
    const std::string tokens = w.put_between(
        "last_tokens", "Gather", {w.input(1), onnx.constant(last)}, {{"axis", int64_t{1}}});
    const std::string some = w.put_between(
        "or_first", "Max", {write_distance_to_padding(w, tokens), onnx.constant(is_first)});
    const std::string equal =
        w.put_between("is_padding", "Equal", {some, onnx.constant(int64_t{0})});
    const std::string by_row =
        w.put_between("by_row", "Unsqueeze", {equal, onnx.constant(std::vector<int64_t>{2})});
    x = w.put_between("counted", "Where",
                      {by_row, onnx.constant(std::numeric_limits<float>::lowest()), x});
  }
  w.put("ReduceMax", {x, second}, {{"keepdims", int64_t{0}}});
}

void write_sequence_pool(NodeWriter& w) {
  GraphWriter& onnx = w.onnx();
  const std::string mode = w.attributes().get_string("mode", "mean");
  if (mode == "max") return write_sequence_max(w);
  if (mode == "last" && w.has_input(1)) return write_last_token(w);
  if (mode != "mean") {
    const int64_t position = mode == "last" ? w.shape(0)[1] - 1 : 0;
    return w.put("Gather", {w.input(0), onnx.constant(position)}, {{"axis", int64_t{1}}});
  }
  if (w.has_input(1))
    return write_masked_sum(w, w.input(0), w.input(1), padding_of(w), /*is_mean=*/true);
  w.put("ReduceMean", {w.input(0), onnx.constant(std::vector<int64_t>{1})},
        {{"keepdims", int64_t{0}}});
}

void write_embedding_bag(NodeWriter& w) {
  const bool is_mean = w.attributes().get_string("mode", "mean") == "mean";
  const int64_t padding = w.attributes().get_int("padding_idx", -1);
  const std::string vectors = w.put_between("vectors", "Gather", {w.input(0), w.input(1)});
  if (padding >= 0) return write_masked_sum(w, vectors, w.input(1), padding, is_mean);
  w.put(is_mean ? "ReduceMean" : "ReduceSum", {vectors, w.onnx().constant(std::vector<int64_t>{1})},
        {{"keepdims", int64_t{0}}});
}

void write_gather(NodeWriter& w) { w.put("Gather", w.inputs(), {{"axis", int64_t{0}}}); }

void write_position_embedding(NodeWriter& w) {
  std::string x = w.input(0);
  if (w.has_input(2)) {
    const Shape& prefix = w.shape(2);
    GraphWriter& onnx = w.onnx();
    const std::string shape =
        w.put_between("prefix_shape", "Concat", {w.batch(), onnx.constant({prefix[0], prefix[1]})},
                      {{"axis", int64_t{0}}});
    const std::string repeated = w.put_between("prefix", "Expand", {w.input(2), shape});
    x = w.put_between("with_prefix", "Concat", {repeated, x}, {{"axis", int64_t{1}}});
  }
  w.put("Add", {x, w.input(1)});
}

}  // namespace

std::vector<OpRow> sequence_rows() {
  const std::vector<std::string_view> recurrent = {"Split", "Concat", "Unsqueeze", "Squeeze",
                                                   "Transpose"};
  const auto with = [&](std::string_view op) {
    std::vector<std::string_view> ops = {op};
    ops.insert(ops.end(), recurrent.begin(), recurrent.end());
    return ops;
  };
  return {{.op = "Softmax", .write = write_softmax},
          {.op = "LogSoftmax", .write = write_softmax},
          {.op = "LayerNormalization", .write = write_layer_normalization},
          {.op = "RMSNormalization",
           .onnx = {"Mul", "ReduceMean", "Add", "Sqrt", "Div"},
           .write = write_rms_normalization},
          {.op = "Attention",
           .onnx = {"Split", "Reshape", "Transpose", "Mul", "MatMul", "Expand", "Trilu", "Add",
                    "Unsqueeze", "Less", "Min", "Cast", "Where", "Softmax"},
           .write = write_attention},
          {.op = "ReverseSequence", .write = write_reverse_sequence},
          {.op = "SequenceLengths",
           .onnx = {"Equal", "Not", "Cast", "Mul", "ReduceMax"},
           .write = write_sequence_lengths},
          {.op = "LSTM", .onnx = with("LSTM"), .write = write_recurrent},
          {.op = "GRU", .onnx = with("GRU"), .write = write_recurrent},
          {.op = "Gather", .write = write_gather},
          {.op = "EmbeddingBag",
           .onnx = {"Gather", "Equal", "Not", "Cast", "Unsqueeze", "MatMul", "Squeeze", "ReduceSum",
                    "ReduceMean", "Max", "Div"},
           .write = write_embedding_bag},
          {.op = "SequencePool",
           .onnx = {"Gather", "ReduceMean", "Equal", "Not", "Cast", "Unsqueeze", "MatMul",
                    "Squeeze", "ReduceSum", "Max", "Div", "Mul", "ArgMax", "GatherND", "ReduceMax",
                    "Where", "Sub"},
           .write = write_sequence_pool},
          {.op = "PositionEmbedding",
           .onnx = {"Add", "Shape", "Expand", "Concat"},
           .write = write_position_embedding}};
}

}  // namespace trainyard::onnx
