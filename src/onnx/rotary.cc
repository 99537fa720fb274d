// Writes rotary position embeddings. ONNX has a RotaryEmbedding node only since opset 23.
#include <cmath>

#include "src/onnx/op_table.h"

namespace trainyard::onnx {
namespace {

using Names = std::vector<std::string>;

std::vector<float> floats_of(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

// Tables of positions that a graph is given are computed in it; those of positions 0, 1, ... are
// constants.
void write_rotary_tables(NodeWriter& w) {
  GraphWriter& onnx = w.onnx();
  const std::vector<float> frequencies = floats_of(w.attributes().get_floats("frequencies", {}));
  const auto factor = static_cast<float>(w.attributes().get_float("factor", 1));
  const auto pairs = std::ssize(frequencies);
  if (!w.has_input(0)) {
    const int64_t length = w.attributes().get_int("length", 0);
    std::vector<float> cos, sin;
    for (int64_t t = 0; t < length; ++t) {
      for (const float frequency : frequencies) {
        const float angle = static_cast<float>(t) * frequency;
        cos.push_back(std::cos(angle) * factor);
        sin.push_back(std::sin(angle) * factor);
      }
    }
    onnx.add_floats(w.output(0), {length, pairs}, cos);
    onnx.add_floats(w.output(1), {length, pairs}, sin);
    return;
  }
  onnx.add_floats(w.between("frequencies"), {pairs}, frequencies);
  const std::string numbers =
      w.put_between("numbers", "Cast", {w.input(0)}, {{"to", data_type_of(DType::kF32)}});
  const std::string column =
      w.put_between("column", "Unsqueeze", {numbers, onnx.constant(std::vector<int64_t>{2})});
  const std::string angles = w.put_between("angles", "Mul", {column, w.between("frequencies")});
  const std::string by = onnx.constant(factor);
  onnx.add_node("Mul", {w.put_between("cos", "Cos", {angles}), by}, w.output(0));
  onnx.add_node("Mul", {w.put_between("sin", "Sin", {angles}), by}, w.output(1));
}

// Heads are an axis of their own, [N, T, H, D], over which the tables broadcast.
void write_rotary(NodeWriter& w) {
  GraphWriter& onnx = w.onnx();
  const Shape &x = w.shape(0), &table = w.shape(1);
  const int64_t heads = w.attributes().get_int("num_heads", 1), width = x[2] / heads;
  const int64_t pairs = table[table.rank() - 1], rest = width - 2 * pairs;
  const bool is_interleaved = w.attributes().get_int("interleaved", 0) != 0;
  const auto table_of = [&](size_t i, const std::string& what) {
    std::string rows = w.input(i);
    if (w.has_input(3)) {
      rows = w.put_between(what + "_rows", "Gather", {rows, w.input(3)}, {{"axis", int64_t{0}}});
    } else if (table.rank() == 2 && table[0] > x[1]) {
      rows = w.put_between(what + "_rows", "Slice",
                           {rows, onnx.constant(std::vector<int64_t>{0}),
                            onnx.constant(std::vector<int64_t>{x[1]})});
    }
    const bool has_batch = w.has_input(3) || table.rank() == 3;
    return w.put_between(what + "_heads", "Unsqueeze",
                         {rows, onnx.constant(std::vector<int64_t>{has_batch ? 2 : 1})});
  };
  const std::string split =
      w.put_between("heads", "Reshape", {w.input(0), onnx.constant({kBatch, x[1], heads, width})});
  Names parts = {w.between("first"), w.between("second")};
  std::vector<int64_t> sizes = {pairs, pairs};
  if (is_interleaved) {
    parts = {w.between("rotated")};
    sizes = {2 * pairs};
  }
  if (rest > 0) {
    parts.push_back(w.between("rest"));
    sizes.push_back(rest);
  }
  onnx.add_node_with_outputs("Split", {split, onnx.constant(sizes)}, parts, {{"axis", int64_t{3}}});
  const std::string last = is_interleaved ? onnx.constant(std::vector<int64_t>{4}) : "";
  if (is_interleaved) {
    const std::string two = w.put_between(
        "pairs", "Reshape", {parts[0], onnx.constant({kBatch, x[1], heads, pairs, 2})});
    const Names halves = {w.between("first_column"), w.between("second_column")};
    onnx.add_node_with_outputs("Split", {two, onnx.constant({1, 1})}, halves,
                               {{"axis", int64_t{4}}});
    (void)w.put_between("first", "Squeeze", {halves[0], last});
    (void)w.put_between("second", "Squeeze", {halves[1], last});
  }
  const std::string first = w.between("first"), second = w.between("second");
  const std::string cos = table_of(1, "cos"), sin = table_of(2, "sin");
  const auto times = [&](const std::string& what, const std::string& a, const std::string& b) {
    return w.put_between(what, "Mul", {a, b});
  };
  std::string low = w.put_between(
      "low", "Sub", {times("first_cos", first, cos), times("second_sin", second, sin)});
  std::string high = w.put_between(
      "high", "Add", {times("first_sin", first, sin), times("second_cos", second, cos)});
  Names joined = {low, high};
  if (is_interleaved) {
    low = w.put_between("low_column", "Unsqueeze", {low, last});
    high = w.put_between("high_column", "Unsqueeze", {high, last});
    const std::string both = w.put_between("both", "Concat", {low, high}, {{"axis", int64_t{4}}});
    joined = {w.put_between("neighbours", "Reshape",
                            {both, onnx.constant({kBatch, x[1], heads, 2 * pairs})})};
  }
  if (rest > 0) joined.push_back(w.between("rest"));
  const std::string whole = w.put_between("whole", "Concat", joined, {{"axis", int64_t{3}}});
  w.put("Reshape", {whole, onnx.constant({kBatch, x[1], x[2]})});
}

}  // namespace

std::vector<OpRow> rotary_rows() {
  return {{.op = "RotaryTables",
           .onnx = {"Cast", "Unsqueeze", "Mul", "Cos", "Sin"},
           .write = write_rotary_tables},
          {.op = "RotaryEmbedding",
           .onnx = {"Gather", "Slice", "Unsqueeze", "Reshape", "Split", "Squeeze", "Mul", "Sub",
                    "Add", "Concat"},
           .write = write_rotary}};
}

}  // namespace trainyard::onnx
